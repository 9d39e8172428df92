"""Each setting of deletion, by the name that an operator writes, is where it has its effect and nowhere else."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict

from offloader.config import Config
from offloader.lifecycle.deletion.machine import due_at
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.task import DeletionTask
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.metadata.journal import Journal
from offloader.metrics import Metrics
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.runtime.connections import Dependencies, Runtime
from offloader.runtime.deletion import bounds_of, timing_of
from offloader.storage.memory import MemoryStore

from .support import candidate

DIFFERENT = Config.parse(
    """
application: main
storage: {root: "file:///tmp/archive"}
pulsar: {serviceUrl: "pulsar://b:6650", adminUrl: "http://b:8080", metadataServiceUri: "zk://z/ledgers"}
lifecycle:
  topicTwoPhaseDeletionEnabled: true
  twoPhaseDeletionLedgerDeletionParallelism: 11
  twoPhaseDeletionReconsumeLaterInSeconds: 12
  twoPhaseDeletionMaxRetryDeleteCount: 13
  quarantine: 14s
  longestCompaction: 15s
  quarantineFloor: 16s
  recordRetention: 17s
  deletionInterval: 18s
  limits: {number: 19, percent: 20, aRound: 21}
  archiveGrace: 22s
  removeCursorsAfter: 23s
  visits: {atOnce: 24, aMinute: 25, interval: 26s}
""",
    {},
)


def test_every_field_of_the_timings_and_bounds_is_its_own_setting():
    timing = DeletionTiming(
        delay=14_000, longest_compaction=15_000, reconsume_later=12_000, max_tries=13, kept=17_000, floor=16_000
    )
    assert timing_of(DIFFERENT.lifecycle) == timing
    marked = candidate(ledger_type=LedgerType.SUBSCRIPTION, marked_at=5, noted_at=0)
    assert due_at(marked, timing) == 5 + 16_001, "compaction has no part in it"
    assert due_at(candidate(marked_at=5, noted_at=0), timing) == 5 + 30_000
    assert bounds_of(DIFFERENT.lifecycle) == DeletionBounds(number=19, percent=20, a_round=21)


def test_no_field_is_left_to_its_default():
    """But for the one that has no setting. A new field needs a setting, and a line above."""
    found, usual = asdict(timing_of(DIFFERENT.lifecycle)), asdict(DeletionTiming())
    assert {name for name in found if found[name] == usual[name]} == {"longest_wait"}
    found, usual = asdict(bounds_of(DIFFERENT.lifecycle)), asdict(DeletionBounds())
    assert {name for name in found if found[name] == usual[name]} == set()


def test_the_application_s_task_has_them():
    store = MemoryStore()
    journal = Journal.open(store, "main", lambda: "token")
    parts = LifecycleParts(Runtime(DIFFERENT, Dependencies(store=lambda _: store)), journal, Metrics(), "main")
    task = next(one for one in lifecycle_tasks(parts, bool, ExitStack()) if one.name == "deletion")
    assert isinstance(task, DeletionTask)
    assert (task.on, task.interval, task.rules.parallelism) == (True, 18.0, 11)
    assert task.rules.timing == timing_of(DIFFERENT.lifecycle)
    assert task.rules.bounds == bounds_of(DIFFERENT.lifecycle)
    assert task.run() == 18.0
