"""`lifecycle`: what deletion asks the store for while nothing is due, switched off and switched on. Counts are exact; a
store in memory answers."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import ExitStack, closing
from typing import TypeVar

from benchmarks.counted import CountedStore
from benchmarks.figures import Figure, Report
from benchmarks.options import Options
from offloader.config import Config
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import (
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.metadata.journal import Journal
from offloader.metrics.metrics import Metrics
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.runtime.connections import Dependencies, Runtime
from offloader.storage.memory import MemoryStore

T = TypeVar("T")
MARKED = 1_000
CLUSTER = "bench"
_CONFIG = """
application: bench
pulsar: {{serviceUrl: "pulsar://127.0.0.1:6650", adminUrl: "http://127.0.0.1:8080",
  metadataServiceUri: "zk://127.0.0.1:2181/ledgers"}}
storage: {{root: "memory://bench"}}
lifecycle: {{topicTwoPhaseDeletionEnabled: {on}, bookkeeperIsNotShared: true}}
"""


class _Application:
    """What the application builds of the section, over a store that counts."""

    def __init__(self, *, on: bool) -> None:
        tokens = (f"token-{number}" for number in itertools.count())
        self.config = Config.parse(_CONFIG.format(on="true" if on else "false"))
        self.store = CountedStore(MemoryStore())
        self.queue = DeletionQueue(self.store, CLUSTER, lambda: next(tokens))
        journal = Journal.open(self.store, "bench", lambda: next(tokens))
        self._journal = journal
        self.store.asked.clear()
        threads = threading.active_count()
        parts = LifecycleParts(
            Runtime(self.config, Dependencies(store=lambda _: self.store)), journal, Metrics(), CLUSTER
        )
        self._stack = ExitStack()
        self.tasks = lifecycle_tasks(parts, lambda: False, self._stack)
        self.at_start = self.store.asked.total()
        self.threads = threading.active_count() - threads

    def close(self) -> None:
        self._stack.close()
        self._journal.close()

    def round(self) -> int:
        """The requests of one look of all tasks, once the first ones are over."""
        for _ in range(2):
            self._run()
        self.store.asked.clear()
        self._run()
        return self.store.asked.total()

    def mark(self, count: int) -> None:
        """Records that are not due for a day."""
        now = time.time_ns() // 1_000_000
        evidence = DeletionEvidence(DeletionProof.PASSED_BY, "/managed-ledgers/bench", 1)
        for ledger in range(count):
            node = LedgerNode(b"metadata", 0, now)
            kind, component = LedgerType.LEDGER, LedgerComponent.MANAGED_LEDGER
            record = PendingDeleteLedgerInfo(
                ledger, kind, component, "persistent://b/n/t", node, evidence, DeletionState.MARKED, now, "benchmark"
            )
            assert self.queue.write(record, None) is not None

    def _run(self) -> None:
        for task in self.tasks:
            task.run()


def run(_: Options) -> Report:
    with closing(_Application(on=False)) as off, closing(_Application(on=True)) as on:
        minutes = on.config.lifecycle.deletion_interval_ms / 60_000
        nothing = on.round()
        on.mark(MARKED)
        pending = on.round()
        free = not off.tasks and not off.threads
        figures = [
            Figure("off: tasks", len(off.tasks), "", target="none, and no thread", met=free),
            Figure("off: requests at the start", off.at_start, ""),
            Figure("off: requests a minute", off.round() / minutes, "1/min", target="0", met=off.round() == 0),
            Figure("on, nothing marked: requests a look", nothing, ""),
            Figure("the same", nothing / minutes, "1/min"),
            Figure(f"on, {MARKED} marked, none due: requests a look", pending, ""),
            Figure("the same", pending / minutes, "1/min"),
        ]
    title = f"requests to the store, a look every {minutes:.0f} minutes; ZooKeeper and brokers are asked nothing"
    return Report("lifecycle", title, figures)
