"""The first phase of left-over managed ledgers: by name, with all evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offloader.lifecycle.deletion.bookkeeper_side import round_path
from offloader.lifecycle.deletion.leftover_records import leftover_candidate
from offloader.lifecycle.deletion.leftover_side import LeftoverSide, LeftoverToLookAt
from offloader.lifecycle.deletion.look_round import zookeeper_clock
from offloader.lifecycle.deletion.machine import FailedLook, GoneLedger
from offloader.lifecycle.deletion.marking import MarkOutcome, MarkStamp, warning_of
from offloader.lifecycle.deletion.queue import DeletionQueue, StoredDeletion
from offloader.lifecycle.deletion.records import LedgerType, leftover_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told


@dataclass(frozen=True, slots=True)
class LeftoverMark:
    """`why`: one sentence, where it was not marked, or where its deletion cannot be undone."""

    name: str
    outcome: MarkOutcome
    why: str = ""
    leftover: LeftoverManagedLedger | None = None


@dataclass(frozen=True, slots=True)
class LeftoverQuarantine:
    """`by`: who asks, as the records have it. Nothing is written where `dry`."""

    queue: DeletionQueue
    side: LeftoverSide
    bounds: DeletionBounds
    now_ms: Callable[[], int]
    by: str
    dry: bool = False

    def mark(self, scan: LedgerScan, names: Collection[str]) -> tuple[tuple[LeftoverMark, ...], tuple[str, ...]]:
        """What came of each, and why nothing was marked at all. Raises OffloadError: what was marked is marked."""
        refusals = tuple(map(refusal_told, scan.refusals)) or self._too_many(scan, names)
        if refusals:
            return (), refusals
        found, tree = {one.name: one for one in scan.leftovers}, self.side.tree
        clock = self.now_ms if self.dry else zookeeper_clock(tree.nodes, round_path(tree), self.now_ms)
        stamp = MarkStamp(clock, self.queue.switch())
        return tuple(self._mark(name, found.get(name), scan, stamp) for name in sorted(set(names))), ()

    def _too_many(self, scan: LedgerScan, names: Collection[str]) -> tuple[str, ...]:
        pending = {
            one.record.topic_name
            for one in self.queue.records()
            if isinstance(one, StoredDeletion)
            and one.record.ledger_type is LedgerType.MANAGED_LEDGER
            and one.record.is_in_flight
        }
        why = self.bounds.refusal(len(pending | set(names)), scan.ledgers)
        return (why,) if why else ()

    def _mark(
        self, name: str, leftover: LeftoverManagedLedger | None, scan: LedgerScan, stamp: MarkStamp
    ) -> LeftoverMark:
        if leftover is None:
            return LeftoverMark(name, MarkOutcome.NOT_DELETABLE, "there is no left-over managed ledger of this name")
        former = self.queue.read(leftover_record_name(name))
        if former is not None and not former.record.has_ended:
            return LeftoverMark(name, MarkOutcome.PENDING, f"it is {former.record.state}", leftover)
        seen = self.side.look_closer(leftover, scan)
        if not isinstance(seen, LeftoverToLookAt):
            why = "it is gone" if isinstance(seen, GoneLedger) else seen.why
            outcome = MarkOutcome.CHANGED if isinstance(seen, FailedLook | GoneLedger) else MarkOutcome.NOT_DELETABLE
            return LeftoverMark(name, outcome, why, leftover)
        candidate = leftover_candidate(leftover, seen.case.node, seen.evidence, self.by)
        record = stamp.marked(candidate, former.record if former else None)
        if record is None:
            return LeftoverMark(name, MarkOutcome.NOT_DELETABLE, "its record would not be whole", leftover)
        if self.dry:
            return LeftoverMark(name, MarkOutcome.WOULD_BE_MARKED, warning_of(record), leftover)
        if self.queue.write(record, former) is None:
            return LeftoverMark(name, MarkOutcome.CHANGED, "somebody else marks it, too", leftover)
        return LeftoverMark(name, MarkOutcome.MARKED, warning_of(record), leftover)
