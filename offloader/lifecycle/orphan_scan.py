"""`lifecycle.orphanScan`: the application scans for orphans by itself, and quarantines those that are beyond doubt."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Protocol

from offloader.lifecycle.bucket.holds import Held
from offloader.lifecycle.bucket.orphans import BucketOrphan
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.candidates import OrphanSide, OrphanVerdict
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.ledger_records import is_beyond_doubt
from offloader.lifecycle.deletion.marking import moved_clock
from offloader.lifecycle.deletion.quarantine import Keeping, Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import ledger_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.evidence import LedgerVerdict, Standing
from offloader.lifecycle.ledgers.told import refusal_told

BY = "orphan scan"
"""Who has marked, as the records have it."""
WITH_DATA, CONFIRMED, SUSPECTED = "with data", "confirmed", "suspected"
CLASSES = (CONFIRMED, SUSPECTED, WITH_DATA)
SOON = 1.0  # seconds; the other side is still to be scanned


@dataclass(frozen=True, slots=True)
class ScanLimits:
    """`quarantines`: whether anything is marked. `most`: new orphans that one scan may mark; more of them mark none."""

    quarantines: bool
    most: int

    def refusal(self, number: int) -> tuple[str, ...]:
        """Why none of so many new orphans is marked; empty: they are."""
        if number <= self.most:
            return ()
        return (
            f"{number} of them are new, more than lifecycle.orphanScan.most ({self.most}): see why with `offloader "
            "orphans scan`, then run `offloader orphans quarantine --all-certain --yes`",
        )


@dataclass(frozen=True, slots=True)
class ScannedSide:
    """What one scan found. `numbers`, `sizes`: orphans and their bytes by CLASSES. `pending`: how many of them were in
    quarantine before. `refusals`: why none was marked."""

    side: OrphanSide
    numbers: Counter[str]
    sizes: Counter[str]
    pending: int = 0
    quarantined: int = 0
    refusals: tuple[str, ...] = ()


class SideScan(Protocol):
    """One side to scan."""

    def run(self) -> ScannedSide:
        """Scan everything and mark what may be marked. Raises OffloadError."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerScanRound:
    """BookKeeper's side. It never marks ledgers with entries of messages, ledgers of absent topics or namespaces, nor
    ledgers of which brokers have a copy: see `is_beyond_doubt`."""

    open_side: Callable[[ExitStack], BookKeeperSide]
    queue: DeletionQueue
    bounds: DeletionBounds
    limits: ScanLimits
    now_ms: Callable[[], int]

    def run(self) -> ScannedSide:
        with ExitStack() as stack:
            side = self.open_side(stack)
            scan = side.scanner.scan()
            records = {one.record.name: one.record for one in self.queue.readable()}
            orphans = {ledger_record_name(one.ledger.ledger): one for one in scan.verdicts}
            found = _summed(
                OrphanSide.BOOKKEEPER,
                ((_class_of(one), one.ledger.length) for one in scan.verdicts),
                sum(name in records and records[name].is_in_flight for name in orphans),
            )
            refusals = tuple(map(refusal_told, scan.refusals))
            if not self.limits.quarantines or refusals:
                return replace(found, refusals=refusals)
            Keeping(self.queue, side.is_there, side.scanner.scan, self.now_ms, BY).remember(scan)
            chosen = tuple(one for name, one in orphans.items() if name not in records and is_beyond_doubt(one))
            refusals = self.limits.refusal(len(chosen))
            if refusals:
                return replace(found, refusals=refusals)
            phase = Quarantine(self.queue, side, self.bounds, self.now_ms, BY)
            marks = phase.mark(replace(scan, verdicts=chosen))
        return replace(found, quarantined=marks.number, refusals=marks.refusals)


@dataclass(frozen=True, slots=True)
class BucketScanRound:
    """The archive's side. Objects of Pulsar's own offloader are in another bucket, and are not looked at."""

    scanner: BucketScanner
    queue: DeletionQueue
    bounds: DeletionBounds
    limits: ScanLimits
    now_ms: Callable[[], int]
    held: Held

    def run(self) -> ScannedSide:
        scan = self.scanner.scan()
        records = {one.record.name: one.record for one in self.queue.readable()}
        orphans = {one.record(BY).name: one for one in scan.orphans}
        found = _summed(
            OrphanSide.BUCKET,
            ((_class_of_object(one), one.size) for one in scan.orphans),
            sum(name in records and records[name].is_in_flight for name in orphans),
        )
        if not self.limits.quarantines or scan.refusals:
            return replace(found, refusals=scan.refusals)
        chosen = tuple(
            one for name, one in orphans.items() if name not in records and one.deletable and one.stock is None
        )
        refusals = self.limits.refusal(len(chosen))
        if refusals:
            return replace(found, refusals=refusals)
        clock = moved_clock(self.now_ms, scan.now_ms)
        marks = ObjectQuarantine(self.queue, self.bounds, clock, BY, held=self.held).mark(replace(scan, orphans=chosen))
        return replace(found, quarantined=marks.number, refusals=marks.refusals)


@dataclass
class OrphanScanTask:
    """A `LifecycleTask`. `interval`: seconds between the beginnings of two scans. `report` receives the result of each
    side. `clock`: seconds."""

    interval: float
    sides: Sequence[SideScan]
    report: Callable[[ScannedSide], None]
    clock: Callable[[], float] = time.monotonic
    name: str = "orphan-scan"
    _left: deque[SideScan] = field(default_factory=deque)
    _begun: float = 0.0

    def run(self) -> float:
        if not self._left:
            self._left.extend(self.sides)
            self._begun = self.clock()
        side = self._left[0]
        self._left.rotate(-1)  # the other side has its turn where this one fails
        self.report(side.run())
        self._left.remove(side)
        took = self.clock() - self._begun
        return SOON if self._left else max(self.interval - took, took)


def _class_of(verdict: LedgerVerdict) -> str:
    if verdict.kept:
        return WITH_DATA
    return CONFIRMED if verdict.standing is Standing.CERTAIN else SUSPECTED


def _class_of_object(orphan: BucketOrphan) -> str:
    if orphan.ruling.kept:
        return WITH_DATA
    return CONFIRMED if orphan.ruling.verdict is OrphanVerdict.CERTAIN else SUSPECTED


def _summed(side: OrphanSide, found: Iterable[tuple[str, int]], pending: int) -> ScannedSide:
    numbers, sizes = Counter[str](), Counter[str]()
    for name, size in found:
        numbers[name] += 1
        sizes[name] += size
    return ScannedSide(side, numbers, sizes, pending)
