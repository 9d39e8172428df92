"""`deletion`: marked ledgers of a large cluster through the second phase, in a real ZooKeeper.

All is the product's own but the bookies and the broker, who are asked nothing here but where they are. The records are
in a local folder.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from benchmarks.counted import CountedNodes, CountedStore
from benchmarks.figures import Figure, Report
from benchmarks.ledger_tree import BROKER, EACH, RoomyZooKeeper
from benchmarks.options import Options
from offloader.bookkeeper.zookeeper import connect
from offloader.config.lifecycle import Lifecycle
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.quarantine import Quarantine
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionSwitch, LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.side import SideLooks
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.deletion.watcher import PendingDeletions
from offloader.lifecycle.ledgers.scanner import open_scanner
from offloader.ports.admin import BrokerStores
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.fakes.bookkeeper import SimulatedBookies, SimulatedCluster
from tests.fakes.cluster import MemoryCluster

A_ROUND = 100  # the default of lifecycle.limits
ON = DeletionSwitch(on=True, at=0)
_TIMING = DeletionTiming(delay=1, floor=0)  # the delay is not what is measured
_BOUNDS = DeletionBounds(number=10**6, percent=100, a_round=A_ROUND)


class _Timed(BookKeeperSide):
    """Says how long its looks took: all of a round's at once."""

    looking = 0.0

    def look(self, records: Sequence[PendingDeleteLedgerInfo], *, goes_on: bool = False) -> SideLooks:
        begun = time.perf_counter()
        try:
            return super().look(records, goes_on=goes_on)
        finally:
            self.looking += time.perf_counter() - begun


class _Ends:
    """What became of each."""

    def __init__(self) -> None:
        self.answers: Counter[str] = Counter()

    def pending(self, pending: PendingDeletions, *, on: bool) -> None:
        """Not told."""

    def refused(self, refusals: Mapping[LedgerType, Sequence[str]]) -> None:
        if refusals:
            raise SystemExit(f"deletion: {refusals}")

    def damaged(self, name: str, why: str) -> None:
        raise SystemExit(f"deletion: {name}: {why}")

    def failed(self, record: PendingDeleteLedgerInfo, why: str) -> None:
        raise SystemExit(f"deletion: {record.name}: {why}")

    def gave_up(self, record: PendingDeleteLedgerInfo) -> None:
        raise SystemExit(f"deletion: {record.name} was given up")

    def ended(self, record: PendingDeleteLedgerInfo) -> None:
        self.answers[str(record.answer)] += 1


def run(options: Options) -> Report:
    """One ledger in a hundred is an orphan."""
    count = options.deletions * EACH * EACH
    with RoomyZooKeeper(options.folder / "zookeeper") as zookeeper:
        zookeeper.fill(count, options.say)
        return _measured(options, zookeeper.address, count)


def _measured(options: Options, address: str, count: int) -> Report:
    pulsar = MemoryCluster(name="bench")
    pulsar.admin.stores = (BrokerStores(BROKER, f"zk:{address}"),)
    section = Lifecycle.model_validate({"bookkeeperIsNotShared": True})
    tokens = (f"token-{number}" for number in itertools.count())
    store = CountedStore(open_store(StoreSettings((options.folder / "records").as_uri())))
    with closing(connect(f"zk://{address}/ledgers", timeout=60.0)) as tree, closing(store):
        nodes = CountedNodes(tree.nodes)
        tree.nodes = nodes
        bookies = SimulatedBookies(SimulatedCluster(1, 0))
        scanner = open_scanner(section, tree, bookies, pulsar.admin, connect=_nobody, clock_ms=_now_ms)
        side = _Timed(tree, bookies, scanner, LoadedTopics.of(pulsar.admin))
        queue = DeletionQueue(store, "bench", lambda: next(tokens))
        scan = scanner.scan()
        begun = time.perf_counter()
        marks = Quarantine(queue, side, _BOUNDS, _now_ms, "benchmark").mark(scan)
        marking = len(marks.marks) / (time.perf_counter() - begun)
        if marks.refusals:
            raise SystemExit(f"deletion: {marks.refusals}")
        options.say(f"deletion: {len(marks.marks)} ledgers are marked")
        nodes.asked.clear()
        store.asked.clear()
        figures = [Figure("mark, after the scan", marking, "1/s"), *_second_phase(queue, side, options.deletions)]
        figures += [Figure(f"ZooKeeper: {kind}", number, "") for kind, number in sorted(nodes.asked.items())]
        figures += [Figure(f"bucket: {verb}", number, "") for verb, number in sorted(store.asked.items())]
    title = f"{options.deletions} marked ledgers of {count}, by {DeletionRules().parallelism} at a time"
    return Report("deletion", title, figures, ("ZooKeeper is a process of its own; records in a local folder",))


def _second_phase(queue: DeletionQueue, side: _Timed, wanted: int) -> list[Figure]:
    ends, rounds, more = _Ends(), 0, True
    service = LedgerDeletionService(queue, {LedgerType.LEDGER: side}, DeletionRules(_TIMING, _BOUNDS), ends, _now_ms)
    begun, cpu = time.perf_counter(), os.times()
    while more:
        this = service.round(ON, goes_on=rounds > 0)
        rounds += 1
        more = this.looked_at > 0 and this.left > 0
    seconds, used = time.perf_counter() - begun, os.times()
    deleted = ends.answers[DeletionAnswer.DELETED]
    right = deleted == wanted == ends.answers.total()
    return [
        Figure("second phase", seconds, "s"),
        Figure("deletions a second", deleted / seconds, "1/s"),
        Figure("rounds", rounds, "", target=f"{A_ROUND} ledgers each"),
        Figure("second look of a round", side.looking / rounds, "s"),
        Figure("deletions a second, without the looks", deleted / (seconds - side.looking), "1/s"),
        Figure("CPU for each", 1000 * (used.user + used.system - cpu.user - cpu.system) / deleted, "ms"),
        Figure("deleted", deleted, "", target="all, and no other", met=right),
    ]


def _nobody(hosts: tuple[str, ...]) -> Any:
    raise SystemExit(f"{hosts}: nobody else is to be asked")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
