"""What holds data stays known: a record remembers it, as nothing else does.

Metadata were rolled back, and a ledger's entries are in no list any more. With the next trim of what its list still has
before it, it looks like any ledger that was trimmed. So each full look writes down which ledgers hold data, and no
later one believes that they were trimmed. So it is with what somebody has undone or dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from offloader.ahead import map_ahead, unawaited_pool
from offloader.lifecycle.deletion.ledger_records import kept_record
from offloader.lifecycle.deletion.machine import HOLDS_DATA, gone, kept
from offloader.lifecycle.deletion.marking import Mark, MarkOutcome
from offloader.lifecycle.deletion.quarantine import LedgerMark
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import DeletionAnswer, ledger_record_name
from offloader.lifecycle.ledgers.evidence import Fact, LedgerVerdict, Standing
from offloader.lifecycle.ledgers.scanned import LedgerScan

WRITERS = 8


@dataclass(frozen=True, slots=True)
class Keeping:
    """`there`: whether a ledger has a node. `look`: scans some. `by`: who asks. Nothing is written where `dry`."""

    queue: DeletionQueue
    there: Callable[[int], bool]
    look: Callable[[Collection[int]], LedgerScan]
    now_ms: Callable[[], int]
    by: str
    dry: bool = False

    def remember(self, scan: LedgerScan) -> tuple[LedgerMark, ...]:
        """Of a scan of all ledgers: those that hold data. Also where something stands against deletion. Raises
        OffloadError: what was written is written."""
        if not (self.dry or scan.refusals):
            self._forget(scan)
        with unawaited_pool(WRITERS, "deletion-keeper") as pool:
            return tuple(map_ahead(pool, self._remember, filter(_holds_data, scan.verdicts), 2 * WRITERS))

    def _remember(self, verdict: LedgerVerdict) -> LedgerMark:
        former = self.queue.read(ledger_record_name(verdict.ledger.ledger))
        known = former is not None and (former.record.is_memory or not former.record.has_ended)
        if not (known or self.dry):  # what is pending is kept by its second look
            self.queue.write(kept_record(verdict, self.by, self.now_ms()), former)
        return Mark(verdict.ledger.ledger, MarkOutcome.KEPT, HOLDS_DATA, verdict)

    def _forget(self, scan: LedgerScan) -> None:
        """Of those that are gone, or are named again, the record is an end like others. One that is there, and only is
        no orphan now, is neither: its metadata may be damaged for a while, or say that it is another's."""
        orphans = {one.ledger.ledger for one in scan.verdicts}
        left = [one for one in self._memories() if one.record.ledger_id not in orphans]
        there = {one.record.ledger_id for one in left if self.there(one.record.ledger_id)}
        named = self._named(there) if there else frozenset()
        for one in left:
            now = self.now_ms()
            if one.record.ledger_id in named:
                ended = kept(one.record, DeletionAnswer.STILL_IN_USE, "it is named again", now)
            elif one.record.ledger_id not in there:
                ended = gone(one.record, now, by_us=False)
            else:
                continue
            self.queue.write(replace(ended, marked_by=self.by), one)

    def _named(self, ledgers: Collection[int]) -> frozenset[int]:
        scan = self.look(ledgers)
        if scan.refusals:
            return frozenset()
        return frozenset(one.ledger.ledger for one in scan.verdicts if one.standing is Standing.REFERENCED)

    def _memories(self) -> Iterator[StoredDeletion]:
        for one in self.queue.readable():
            if one.record.stays:
                yield one


def _holds_data(verdict: LedgerVerdict) -> bool:
    """But for one that has a damaged copy: its list knows it."""
    return verdict.kept and all(one.fact is not Fact.COPY_FAILS for one in verdict.evidence)
