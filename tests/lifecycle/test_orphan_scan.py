"""The application's own scan for orphans: what it quarantines by itself, leaves to operators, and reports."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from offloader.errors import StoreUnavailableError
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, ledger_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.ledgers.refusals import Refusal, RefusalKind
from offloader.lifecycle.orphan_scan import BucketScanRound, LedgerScanRound, OrphanScanTask, ScanLimits, ScannedSide
from offloader.metadata.root import open_root
from offloader.metrics import Metrics
from offloader.offload.lifecycle_tasks import OrphanScanReport
from tests.lifecycle.deletion.cluster import DAY, NAMESPACE, JudgingScanner
from tests.lifecycle.deletion.test_service import DELETED, Setting
from tests.lifecycle.ledgers.world import schema_of, view_custom

BY = "orphan scan"

WIDE = DeletionBounds(number=10_000, percent=100)
CURSOR = {"pulsar/cursor": b"removed"}
EMPTY, OLD_CURSOR = 5, 6
TRIMMED, OPEN, ABSENT, ABSENT_CURSOR, UNKNOWN, KEPT = 7, 8, 30, 31, 32, 33


class Scene(Setting):
    """A topic with a list, and orphans of every sort beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.on()
        open_root(self.store, "main", lambda: "root")
        self.most, self.quarantines = 100, True
        cluster = self.cluster
        cluster.ledger(3, "kept")
        for ledger in (3, 1000):
            cluster.ledger(ledger, "t" if ledger == 1000 else "kept")
        cluster.list_ledgers("t", 1000)
        cluster.list_ledgers("kept", 3, 999)
        cluster.ledger(EMPTY, "t", 0)
        cluster.ledger(OLD_CURSOR, "t", 2, **CURSOR)
        cluster.ledger(TRIMMED, "t", 2)
        cluster.ledger(OPEN, "t", 0, is_open=True)
        cluster.ledger(ABSENT, "gone", 0)
        cluster.ledger(ABSENT_CURSOR, "gone", 1, **CURSOR)
        cluster.ledger(UNKNOWN, "", 0, **{"pulsar/managed-ledger": b"no/where/persistent/t"})
        cluster.ledger(KEPT, "kept", 2)
        self.later()

    def scan(self, scanner: JudgingScanner | None = None):
        """One scheduled scan of BookKeeper."""
        more = {} if scanner is None else {"scanner": scanner}
        limits = ScanLimits(self.quarantines, self.most)
        return LedgerScanRound(
            lambda _: self.cluster.side(**more), self.queue, WIDE, limits, lambda: self.cluster.now_ms
        ).run()

    def quarantined(self) -> set[int]:
        records = (one.record for one in self.queue.readable())
        return {one.ledger_id for one in records if one.state is DeletionState.MARKED}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_only_what_is_beyond_doubt_is_quarantined_and_the_second_phase_deletes_it(scene):
    found = scene.scan()
    assert scene.quarantined() == {EMPTY, OLD_CURSOR}
    assert (found.quarantined, found.refusals) == (2, ())
    assert found.numbers == {"confirmed": 6, "suspected": 1, "with data": 1}
    assert scene.record(EMPTY).marked_by == BY
    assert scene.record(KEPT).answer is DeletionAnswer.HOLDS_DATA  # remembered, whatever its list looks like later
    scene.later(DAY + 1)
    scene.service().round()
    assert scene.end_of(EMPTY) == scene.end_of(OLD_CURSOR) == DELETED
    assert {TRIMMED, OPEN, ABSENT, ABSENT_CURSOR, UNKNOWN, KEPT} <= scene.cluster.ledger_ids()


@pytest.mark.parametrize(
    "custom", [view_custom(f"{NAMESPACE}/persistent/gone"), schema_of(f"{NAMESPACE}/t")], ids=["view", "schema"]
)
def test_schemas_and_compacted_views_with_entries_are_left_to_operators(scene, custom):
    scene.cluster.ledger(50, "", 1, **custom)
    scene.later()
    scene.scan()
    assert 50 not in scene.quarantined()


def test_without_quarantine_a_scan_only_reports(scene):
    scene.quarantines = False
    found = scene.scan()
    assert list(scene.queue.readable()) == []
    assert (found.quarantined, found.numbers.total()) == (0, 8)


def test_what_an_operator_has_undone_is_not_quarantined_again(scene):
    scene.scan()
    stored = scene.queue.read(ledger_record_name(EMPTY))
    scene.queue.write(replace(stored.record, state=DeletionState.UNDONE), stored)
    for _ in range(2):
        assert scene.scan().quarantined == 0
    assert scene.quarantined() == {OLD_CURSOR}


def test_more_new_orphans_than_the_limit_quarantine_none(scene):
    scene.most = 1
    found = scene.scan()
    assert scene.quarantined() == set()
    assert "lifecycle.orphanScan.most" in found.refusals[0]


def test_what_stands_against_deletion_stands_against_quarantine(scene):
    nodes = scene.cluster.metadata.nodes
    scanner = JudgingScanner(nodes, lambda: scene.cluster.now_ms, (Refusal(RefusalKind.IN_TROUBLE),))
    found = scene.scan(scanner)
    assert found.refusals
    assert scene.quarantined() == set()


def test_objects_of_the_archive_that_nothing_names_are_quarantined(scene):
    scene.store.put("_proof/left", b"x")
    scene.store.backing.clock_ms = lambda: scene.cluster.now_ms
    scene.store.put("_proof/left", b"x")
    scene.later()

    def now() -> int:
        return scene.cluster.now_ms

    scanner = BucketScanner(scene.store, now, lambda: f"p{next(scene.numbers)}", 3_600_000)
    found = BucketScanRound(scanner, scene.queue, WIDE, ScanLimits(True, 10), now, lambda _: "").run()
    assert (found.side, found.quarantined, found.numbers) == (OrphanSide.BUCKET, 1, {"confirmed": 1})
    assert BucketScanRound(scanner, scene.queue, WIDE, ScanLimits(True, 10), now, lambda _: "").run().quarantined == 0


class Failing:
    def run(self):
        raise StoreUnavailableError("away")


def test_a_side_that_fails_holds_up_no_other_and_is_repeated(scene):
    reports, times = list[ScannedSide](), iter(range(100))

    class Ledgers:
        def run(self):
            return scene.scan()

    failing = Failing()
    task = OrphanScanTask(3600.0, (failing, Ledgers()), reports.append, lambda: float(next(times)))
    with pytest.raises(StoreUnavailableError):
        task.run()
    assert task.run() == 1.0
    assert [one.side for one in reports] == [OrphanSide.BOOKKEEPER]
    failing.run = scene.scan
    assert 3590 < task.run() <= 3600
    assert len(reports) == 2


def test_metrics_and_alarms_say_what_waits_once(scene, caplog):
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    report = OrphanScanReport(metrics)
    for _ in range(2):
        report(scene.scan())
    assert [one.see for one in caplog.records if one.levelno >= logging.WARNING] == ["orphans-found"]
    value = metrics.registry.get_sample_value
    assert value("offloader_orphans_quarantined_total", {"side": "bookkeeper"}) == 2
    assert value("offloader_orphan_scans_total", {"side": "bookkeeper"}) == 2
    assert value("offloader_orphans", {"side": "bookkeeper", "class": "with data"}) == 1
    scene.most = 0
    scene.cluster.ledger(9, "t", 0)
    scene.later()
    report(scene.scan())
    assert [one.see for one in caplog.records if one.levelno >= logging.WARNING] == [
        *("orphans-found", "orphan-scan-refused", "orphans-found"),
    ]
    assert value("offloader_orphan_scan_refusals", {"side": "bookkeeper"}) == 1
