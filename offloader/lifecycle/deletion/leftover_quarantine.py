"""The first phase of left-over managed ledgers: by name, with all evidence. Nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from offloader.lifecycle.deletion.bookkeeper_side import round_path
from offloader.lifecycle.deletion.leftover_records import leftover_candidate
from offloader.lifecycle.deletion.leftover_side import LeftoverSide, LeftoverToLookAt
from offloader.lifecycle.deletion.look_round import zookeeper_clock
from offloader.lifecycle.deletion.machine import FailedLook, GoneLedger, UnprovenLedger
from offloader.lifecycle.deletion.marking import Mark, Marker, MarkOutcome, Marks, too_many
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType, PendingDeleteLedgerInfo, leftover_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.leftovers import LeftoverManagedLedger
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.told import refusal_told

LeftoverMark = Mark[str, LeftoverManagedLedger]


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
