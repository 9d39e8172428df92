"""Parts and read-backs on executors: what a job does, without Spark. A real job is compared in `integration`."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from pyspark import cloudpickle

from offloader.bridge import transfer
from offloader.bridge.building import LedgerBuilder, LedgerBuilds
from offloader.bridge.core.rounds import BridgedLedger, BridgeVerdict, UnbridgedLedger
from offloader.bridge.driver import spark
from offloader.bridge.driver.spark import PieceJobs
from offloader.bridge.sources import LedgerBookies
from offloader.bridge.transfer import BridgeStores
from offloader.errors import ConfigError, ExecutorUnfitError, UncommittedLedgerError
from offloader.metadata import layout
from offloader.metadata.stock_keys import data_key, index_key
from offloader.offload.worker.secrets import without_secrets
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import Buckets, open_store
from offloader.storage.settings import StoreSettings
from tests.archive.support import TOPIC
from tests.bridge.support import LEDGER, SETTINGS, UUID, BridgeWorld, built

DATA, INDEX = data_key(UUID, LEDGER), index_key(UUID, LEDGER)


class Here:
    """Spark's session, as far as a job needs it: its tasks are run in this process, by the function as it travels."""

    def __init__(self, *, twice: bool = False) -> None:
        self.sparkContext = self
        self.jobs: list[int] = []
        self._twice = twice

    def parallelize(self, tasks, slices):
        self.jobs.append(slices)
        self._tasks = tasks
        return self

    def mapPartitions(self, function):  # noqa: N802 (Spark's name)
        self._function = cloudpickle.dumps(function)
        return self

    def collect(self):
        found = []
        for task in self._tasks:
            for _ in range(2 if self._twice else 1):  # a second attempt of the same task: its answer is the one taken
                answer = list(cloudpickle.loads(self._function)([task]))
            found += answer
        return found


@pytest.fixture
def world(tmp_path):
    """The archive and the brokers' bucket are folders, which executors open by themselves."""
    world = BridgeWorld(gaps=[(3, 5)])
    archive = StoreSettings((tmp_path / "archive").as_uri())
    store = open_store(archive)
    for key, _ in world.store.list():
        store.put(key, world.store.read(key)[0])
    return world, archive, StoreSettings((tmp_path / "bucket").as_uri())


@pytest.fixture(autouse=True)
def no_task_is_too_few(monkeypatch):
    monkeypatch.setattr(spark, "FEW", 0)
    monkeypatch.setattr(transfer, "CHECKED_AT_ONCE", 1_000)


def builder_of(places, session, at_once=3):
    world, archive, bucket = places
    public, secrets = without_secrets(PulsarSettings(), archive)
    os.environ.update(secrets)
    stores = BridgeStores(open_store(archive), open_store(bucket))
    bookies, metadata = world.cluster.client()
    builder = LedgerBuilder(stores, LedgerBookies(metadata, bookies), PieceJobs(session, public, at_once), SETTINGS)
    builder.copies_refused()
    return builder, stores


@pytest.mark.parametrize("twice", [False, True])
def test_executors_write_what_one_process_writes(world, *, twice) -> None:
    session = Here(twice=twice)
    builder, stores = builder_of(world, session)
    found = built(builder.build(TOPIC, world[0].wanted))
    assert found.copied == 0
    world[0].build()
    for key in (DATA, INDEX):
        assert stores.bucket.read(key)[0] == world[0].bucket.read(key)[0]
    assert max(session.jobs) == 3
    assert sum(session.jobs) > 5


def test_what_an_executor_finds_damaged_is_told_by_its_name(world) -> None:
    builder, stores = builder_of(world, Here())
    segment = world[0].archive.catalog.segments[1]
    key = layout.data_key(TOPIC, segment.uuid)
    data = bytearray(stores.archive.read(key)[0])
    data[len(data) // 2] ^= 1
    stores.archive.put(key, bytes(data))
    told = builder.build(TOPIC, world[0].wanted)
    assert isinstance(told, UnbridgedLedger)
    assert (told.verdict, key in told.why) == (BridgeVerdict.DAMAGED, True)
    assert stores.bucket.stat(INDEX) is None


def test_an_executor_of_another_version_says_so(world, monkeypatch) -> None:
    monkeypatch.setattr(spark, "installed", lambda: "another")
    builder, _ = builder_of(world, Here())
    with pytest.raises(ExecutorUnfitError, match="the driver another"):
        builder.build(TOPIC, world[0].wanted)


def test_an_executor_without_the_secrets_says_which_one_it_lacks(world, monkeypatch) -> None:
    archive = replace(world[1], options=(("key", "secret"),))
    public, secrets = without_secrets(PulsarSettings(), archive)
    for name in secrets:
        monkeypatch.delenv(name, raising=False)
    stores = BridgeStores(open_store(world[1]), open_store(world[2]))
    jobs = PieceJobs(Here(), public, 2)
    builder = LedgerBuilder(stores, workers=jobs, settings=SETTINGS)
    builder.copies_refused()
    with pytest.raises(ConfigError, match="an executor's environment has no"):
        builder.build(TOPIC, replace(world[0].wanted, ledger=LEDGER + 1, last=4, length=0))


def opening(settings: StoreSettings) -> Buckets:
    return Buckets(settings, open_store)


def test_rounds_are_built_in_the_bucket_that_they_name(world, tmp_path) -> None:
    bookies, metadata = world[0].cluster.client()
    public, _ = without_secrets(PulsarSettings(), world[1])
    jobs = PieceJobs(Here(), public, 2)
    opened = opening(world[1])
    builds = LedgerBuilds(open_store(world[1]), opened.open, LedgerBookies(metadata, bookies), jobs, SETTINGS)
    other = (tmp_path / "other").as_uri()
    for bucket in (world[2].root, other):
        found = builds.build(TOPIC, world[0].wanted, bucket)
        assert found == world[0].build().ledger
        store = open_store(StoreSettings(bucket))
        assert [key for key, _ in store.list()] == [DATA, INDEX]
        assert isinstance(found, BridgedLedger)
        builds.discard(bucket, [found])
        assert list(store.list()) == []
    opened.close()


def test_what_is_not_committed_yet_is_tried_again_later(world) -> None:
    public, _ = without_secrets(PulsarSettings(), world[1])
    opened = opening(world[1])
    builds = LedgerBuilds(open_store(world[1]), opened.open, None, PieceJobs(Here(), public, 2), SETTINGS)
    with pytest.raises(UncommittedLedgerError, match="entry 5 is not committed"):
        builds.build(TOPIC, replace(world[0].wanted, ledger=LEDGER + 1, last=9, length=0), world[2].root)
    assert isinstance(builds.build(TOPIC, world[0].wanted, world[2].root), UnbridgedLedger)
    opened.close()
