"""The first phase: what a scan found is marked, with all its evidence. Nothing else changes.

Ledgers that hold data stay known: a record remembers them, as nothing else does. Metadata were rolled back, and a
ledger's entries are in no list any more. With the next trim of what its list still has before it, it looks like any
ledger that was trimmed. So each full look writes down which ledgers hold data, and no later one believes that they were
trimmed. So it is with what somebody has undone or dropped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from offloader.ahead import map_ahead, unawaited_pool
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide, LedgerToLookAt, ProvenLedger, round_path
from offloader.lifecycle.deletion.guarded import zookeeper_clock
from offloader.lifecycle.deletion.ledger_records import (
    candidate_of,
    kept_record,
    leftover_candidate,
    may_be_demanded,
    was_open_with_entries,
)
from offloader.lifecycle.deletion.leftover_side import LeftoverSide, LeftoverToLookAt
from offloader.lifecycle.deletion.machine import HOLDS_DATA, FailedLook, GoneLedger, UnprovenLedger, gone, kept
from offloader.lifecycle.deletion.marking import Mark, Marker, MarkOutcome, Marks, too_many
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import (
    DeletionAnswer,
    LedgerType,
    PendingDeleteLedgerInfo,
    ledger_record_name,
    leftover_record_name,
)
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.evidence import Fact, LedgerVerdict, Standing
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import confirmation_told, refusal_told

LedgerMark = Mark[int, LedgerVerdict]
LedgerMarks = Marks[int, LedgerVerdict]

LeftoverMark = Mark[str, LeftoverManagedLedger]

WRITERS = 8


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
            if verdict.confirmable:
                why = " ".join(confirmation_told(verdict))
            marks.append(Mark(ledger, MarkOutcome.NOT_DELETABLE, why, verdict))
    return tuple(marks)


@dataclass(frozen=True, slots=True)
class LeftoverQuarantine:
    """`by`: who asks, as the records have it. Nothing is written where `dry`."""

    queue: DeletionQueue
    side: LeftoverSide
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    by: str
    dry: bool = False

    def mark(self, scan: LedgerScan, names: Collection[str]) -> Marks[str, LeftoverManagedLedger]:
        """Of each. Raises OffloadError: what was marked is marked."""
        kind = LedgerType.MANAGED_LEDGER
        asked = {kind: {leftover_record_name(name) for name in names}}
        refusals = tuple(map(refusal_told, scan.refusals)) or too_many(
            self.queue, self.bounds, asked, {kind: scan.ledgers}
        )
        if refusals:
            return Marks((), refusals)
        found, tree = {one.name: one for one in scan.leftovers}, self.side.tree
        clock = self.now_ms if self.dry else zookeeper_clock(tree.nodes, round_path(tree), self.now_ms)
        marker = Marker(self.queue, clock, self.queue.switch(), by_name=True, dry=self.dry, ours_ms=self.now_ms)
        return Marks(tuple(self._mark(name, found.get(name), scan, marker) for name in sorted(set(names))))

    def _mark(
        self, name: str, leftover: LeftoverManagedLedger | None, scan: LedgerScan, marker: Marker
    ) -> LeftoverMark:
        if leftover is None:
            return Mark(name, MarkOutcome.NOT_DELETABLE, "there is no left-over managed ledger of this name")

        def candidate() -> PendingDeleteLedgerInfo | UnprovenLedger | FailedLook | GoneLedger:
            seen = self.side.look_closer(leftover, scan)
            if not isinstance(seen, LeftoverToLookAt):
                return seen
            return leftover_candidate(leftover, seen.case.node, seen.evidence, self.by)

        return marker.mark(name, leftover, leftover_record_name(name), candidate)


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
