"""The first phase: what a scan found is marked, with all its evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide, LedgerToLookAt, ProvenLedger, round_path
from offloader.lifecycle.deletion.ledger_records import candidate_of, may_be_demanded, was_open_with_entries
from offloader.lifecycle.deletion.look_round import zookeeper_clock
from offloader.lifecycle.deletion.machine import HOLDS_DATA, GoneLedger, UnprovenLedger
from offloader.lifecycle.deletion.marking import MarkOutcome, MarkStamp
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
)
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told

HELD_DATA = "it held data that no list had"


@dataclass(frozen=True, slots=True)
class Mark:
    """`why`: one sentence, where it was not marked, or there is more to know. `record`: what is pending, or is or would
    be written."""

    ledger: int
    outcome: MarkOutcome
    why: str = ""
    verdict: LedgerVerdict | None = None
    record: PendingDeleteLedgerInfo | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """`refusals`: why nothing was marked at all."""

    marks: tuple[Mark, ...]
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """`by`: who asks, as the records have it. Nothing is written where `dry`."""

    queue: DeletionQueue
    side: BookKeeperSide
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    by: str
    dry: bool = False

    def mark(self, scan: LedgerScan, named: Collection[int] | None = None, *, suspect: bool = False) -> Marks:
        """What is deletable in a scan; `named`: only these, also those that somebody has undone, and with `suspect`
        those that may be demanded. Repeated it marks nothing twice. Raises OffloadError: what was marked until then is
        marked."""
        refusals = tuple(map(refusal_told, scan.refusals))
        chosen = [
            one
            for one in scan.verdicts
            if (named is None or one.ledger.ledger in named)
            and (one.deletable or (suspect and named is not None and may_be_demanded(one) and not one.kept))
        ]
        others = _not_deletable(scan, {*(named or ())} - {one.ledger.ledger for one in chosen})
        if not refusals and chosen:
            refusals = self._too_many(chosen, scan.ledgers)
        if refusals:
            return Marks(others, refusals)
        if not chosen:
            return Marks(others)
        tree = self.side.tree
        clock = self.now_ms if self.dry else zookeeper_clock(tree.nodes, round_path(tree), self.now_ms)
        stamp = MarkStamp(clock, self.queue.switch())
        return Marks((*(self._mark(one, scan, stamp, by_number=named is not None) for one in chosen), *others))

    def _too_many(self, chosen: Sequence[LedgerVerdict], ledgers: int) -> tuple[str, ...]:
        pending = {
            one.record.name
            for one in self.queue.records()
            if isinstance(one, StoredDeletion)
            and one.record.ledger_type is LedgerType.LEDGER
            and one.record.is_in_flight
        }
        together = pending | {ledger_record_name(one.ledger.ledger) for one in chosen}
        why = self.bounds.refusal(len(together), ledgers)
        return (why,) if why else ()

    def _mark(self, verdict: LedgerVerdict, scan: LedgerScan, stamp: MarkStamp, *, by_number: bool) -> Mark:
        ledger = verdict.ledger.ledger
        former = self.queue.read(ledger_record_name(ledger))
        if former is not None and not former.record.has_ended:
            return Mark(ledger, MarkOutcome.PENDING, f"it is {former.record.state}", verdict, former.record)
        if former is not None and not by_number:
            why = _why_spared(former.record, verdict)
            if why:
                return Mark(ledger, MarkOutcome.SPARED, why, verdict)
        seen = self.side.look_closer(verdict, scan)
        if not isinstance(seen, LedgerToLookAt):
            why = "it is gone" if isinstance(seen, GoneLedger) else seen.why
            unproven = isinstance(seen, UnprovenLedger)
            return Mark(ledger, MarkOutcome.NOT_DELETABLE if unproven else MarkOutcome.CHANGED, why, verdict)
        proven = self.side.proven(seen, demanded=by_number)
        if not isinstance(proven, ProvenLedger):
            return Mark(ledger, MarkOutcome.NOT_DELETABLE, proven.why, verdict)
        candidate = candidate_of(verdict, seen.node, proven.evidence, self.by)
        record = stamp.marked(candidate, former.record if former else None)
        if record is None:
            return Mark(ledger, MarkOutcome.NOT_DELETABLE, "the record would lack what a deletion needs", verdict)
        return self._write(record, former, verdict, HELD_DATA if former and _held_data(former.record, verdict) else "")

    def _write(
        self, record: PendingDeleteLedgerInfo, former: StoredDeletion | None, verdict: LedgerVerdict, note: str
    ) -> Mark:
        if self.dry:
            return Mark(record.ledger_id, MarkOutcome.WOULD_BE_MARKED, note, verdict, record)
        if self.queue.write(record, former) is None:
            return Mark(record.ledger_id, MarkOutcome.CHANGED, "somebody else marks it, too", verdict)
        return Mark(record.ledger_id, MarkOutcome.MARKED, note, verdict, record)


def _held_data(record: PendingDeleteLedgerInfo, verdict: LedgerVerdict) -> bool:
    return record.is_memory or was_open_with_entries(record.node, verdict)


def _why_spared(record: PendingDeleteLedgerInfo, verdict: LedgerVerdict) -> str:
    """Empty: it was not."""
    if _held_data(record, verdict):
        return f"{HELD_DATA}: name it to mark it"
    return f"it was {record.answer or record.state} before: name it to mark it again" if record.was_spared else ""


def _not_deletable(scan: LedgerScan, named: Collection[int]) -> tuple[Mark, ...]:
    found = {one.ledger.ledger: one for one in scan.verdicts}
    marks = []
    for ledger in sorted(named):
        verdict = found.get(ledger)
        if verdict is None:
            marks.append(Mark(ledger, MarkOutcome.NOT_DELETABLE, "there is no such ledger"))
        else:
            why = HOLDS_DATA if verdict.kept else f"it is {verdict.standing}"
            marks.append(Mark(ledger, MarkOutcome.NOT_DELETABLE, why, verdict))
    return tuple(marks)
