"""The first phase: what a scan found is marked, with all its evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide, LedgerToLookAt, ProvenLedger, round_path
from offloader.lifecycle.deletion.ledger_records import candidate_of, may_be_demanded, was_open_with_entries
from offloader.lifecycle.deletion.look_round import zookeeper_clock
from offloader.lifecycle.deletion.machine import HOLDS_DATA, FailedLook, GoneLedger, UnprovenLedger
from offloader.lifecycle.deletion.marking import Mark, Marker, MarkOutcome, Marks, too_many
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
)
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told

LedgerMark = Mark[int, LedgerVerdict]
LedgerMarks = Marks[int, LedgerVerdict]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """`by`: who asks, as the records have it. Nothing is written where `dry`."""

    queue: DeletionQueue
    side: BookKeeperSide
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    by: str
    dry: bool = False

    def mark(self, scan: LedgerScan, named: Collection[int] | None = None, *, suspect: bool = False) -> LedgerMarks:
        """What is deletable in a scan; `named`: only these, also those that somebody has undone, and what is kept and
        was rescued; with `suspect` also those that may be demanded. Repeated it marks nothing twice. Raises
        OffloadError: what was marked until then is marked."""
        refusals = tuple(map(refusal_told, scan.refusals))
        chosen = [one for one in scan.verdicts if _may_go(one, named, suspect=suspect)]
        others = _not_deletable(scan, {*(named or ())} - {one.ledger.ledger for one in chosen})
        if not refusals:
            names = {ledger_record_name(one.ledger.ledger) for one in chosen}
            refusals = too_many(self.queue, self.bounds, {LedgerType.LEDGER: names}, {LedgerType.LEDGER: scan.ledgers})
        if refusals or not chosen:
            return Marks(others, refusals)
        tree = self.side.tree
        clock = self.now_ms if self.dry else zookeeper_clock(tree.nodes, round_path(tree), self.now_ms)
        marker = Marker(self.queue, clock, self.queue.switch(), named is not None, self.dry, self.now_ms)
        return Marks((*(self._mark(one, scan, marker) for one in chosen), *others))

    def _mark(self, verdict: LedgerVerdict, scan: LedgerScan, marker: Marker) -> LedgerMark:
        ledger = verdict.ledger.ledger

        def held_data(former: PendingDeleteLedgerInfo) -> bool:
            return former.is_memory or was_open_with_entries(former.node, verdict)

        def candidate() -> PendingDeleteLedgerInfo | UnprovenLedger | FailedLook | GoneLedger:
            seen = self.side.look_closer(verdict, scan)
            if not isinstance(seen, LedgerToLookAt):
                return seen
            proven = self.side.proven(seen, demanded=marker.by_name)
            if not isinstance(proven, ProvenLedger):
                return UnprovenLedger(proven.why)
            return candidate_of(verdict, seen.node, proven.evidence, self.by)

        return marker.mark(ledger, verdict, ledger_record_name(ledger), candidate, held_data)


def _may_go(verdict: LedgerVerdict, named: Collection[int] | None, *, suspect: bool) -> bool:
    """What is kept or suspect goes only by its number."""
    if named is None:
        return verdict.deletable
    demanded = suspect and may_be_demanded(verdict) and not verdict.kept
    return verdict.ledger.ledger in named and (verdict.deletable_on_demand or demanded)


def _not_deletable(scan: LedgerScan, named: Collection[int]) -> tuple[LedgerMark, ...]:
    found = {one.ledger.ledger: one for one in scan.verdicts}
    marks: list[LedgerMark] = []
    for ledger in sorted(named):
        verdict = found.get(ledger)
        if verdict is None:
            marks.append(Mark(ledger, MarkOutcome.NOT_DELETABLE, "there is no such ledger"))
        else:
            why = f"{HOLDS_DATA}: `orphans rescue` copies it first" if verdict.kept else f"it is {verdict.standing}"
            marks.append(Mark(ledger, MarkOutcome.NOT_DELETABLE, why, verdict))
    return tuple(marks)
