"""What the section `lifecycle` says, from its own words to a verdict."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any
from uuid import uuid4

import pytest

from offloader.config import Config
from offloader.errors import ConfigError, StoreUnavailableError
from offloader.lifecycle.ledgers import stock_copies as module
from offloader.lifecycle.ledgers.evidence import Fact, LedgerVerdict, Standing
from offloader.lifecycle.ledgers.scanned import LedgerScan
from offloader.lifecycle.ledgers.scanner import open_scanner
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.lifecycle.ledgers.told import told
from offloader.metadata.stock_keys import data_key, index_key
from offloader.state.names import topic_of
from offloader.storage.memory import MemoryStore
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.archive.ledgers.support import messages, objects

from .test_stock_copies import COPY
from .world import World, data_of
from .written import NOW, Written

BASE = """
application: app
pulsar: {serviceUrl: "pulsar://h:6650", adminUrl: "http://h:8080", metadataServiceUri: "zk://memory:1/ledgers"}
storage: {root: "memory://archive"}
"""
NAME = "t/ns/persistent/a"
HEALTH = "pulsar/east/b:8080/persistent/healthcheck"


def scan(written: Written, settings: str, others: dict[tuple[str, ...], Any] | None = None) -> LedgerScan:
    """By a configuration. `others`: the ZooKeepers that are reached at these hosts."""
    section = Config.parse(f"{BASE}lifecycle: {{bookkeeperIsNotShared: true, {settings}}}\n", {}).lifecycle
    bookies, tree = written.bookkeeper.client()
    scanner = open_scanner(
        *(section, tree, bookies, written.pulsar.admin),
        connect=lambda hosts: (others or {})[hosts],
        verify_copies=stock_copies(section.stock_bucket, StoreSettings("memory://archive")),
        clock_ms=lambda: NOW,
    )
    found = scanner.scan()
    scanner.close()
    return found


def verdict_on(found: LedgerScan, ledger: int) -> LedgerVerdict | None:
    return next((one for one in found.verdicts if one.ledger.ledger == ledger), None)


@pytest.fixture
def world() -> World:
    made = World(Random(1))
    made.topic(NAME)
    return made


def test_cluster_names_says_whose_health_checks_are_ours(world):
    world.create(data_of(HEALTH), 0)
    world.namespaces.add("pulsar/east/b:8080")
    written = Written(world)
    assert [str(one.kind) for one in scan(written, "").refusals] == ["another-cluster"]
    assert [str(one.kind) for one in scan(written, "clusterNames: [west]").refusals] == ["another-cluster"]
    assert scan(written, "clusterNames: [west, east]").refusals == ()


def test_metadata_stores_names_whose_lists_are_read_too(world):
    """A ledger that only another cluster's list names is an orphan to whoever does not read that list."""
    ledger = world.create(data_of(NAME), 0)
    world.roll(NAME)
    written = Written(world)
    found = verdict_on(scan(written, ""), ledger)
    assert found is not None
    assert found.standing is Standing.CERTAIN
    theirs = World(Random(2), next_id=500)
    theirs.topic("t/ns/persistent/theirs")
    theirs.list_ledger("t/ns/persistent/theirs", ledger)
    other = {("other:2181",): Written(theirs).nodes}
    assert verdict_on(scan(written, "metadataStores: ['zk://other:2181']", other), ledger) is None


# The bucket of Pulsar's own offloader


def offloaded(world: World, bucket: str = "") -> tuple[Written, int]:
    """A ledger that its list says was deleted, with its copy in that bucket."""
    ledger = world.roll(NAME, 5)
    world.roll(NAME, 5)
    info = world.info(NAME)
    context = next(one for one in info.ledgerInfo if one.ledgerId == ledger).offloadContext
    context.uidMsb, context.uidLsb, context.complete, context.bookkeeperDeleted = 1, -2, True, True
    if bucket:
        context.driverMetadata.name = "aws-s3"
        context.driverMetadata.properties.add(key="region", value="here")
        context.driverMetadata.properties.add(key="bucket", value=bucket)
    world.put_list(NAME, info)
    entries = messages(ledger, 5, 0)
    known = world.ledgers[ledger]
    assert known is not None
    world.ledgers[ledger] = replace(known, length=sum(map(len, entries)))
    return Written(world), ledger


def a_bucket() -> str:
    return f"stock-{uuid4()}"


def put_copy(bucket: str, ledger: int) -> None:
    store = open_store(StoreSettings(f"memory://{bucket}"))
    data, index = objects(ledger, messages(ledger, 5, 0), topic_of(NAME))
    store.put(data_key(COPY, ledger), data)
    store.put(index_key(COPY, ledger), index)


@pytest.mark.parametrize("named", [False, True])
def test_the_stock_bucket_is_where_copies_are_read_back_from(world, named):
    """Old brokers do not name it in their lists."""
    bucket = a_bucket()
    written, ledger = offloaded(world, bucket if named else "")
    put_copy(bucket, ledger)
    found = verdict_on(scan(written, f"stockBucket: 'memory://{bucket}'"), ledger)
    assert found is not None
    assert found.standing is Standing.CERTAIN
    without = verdict_on(scan(written, ""), ledger)
    assert without is not None
    assert without.standing is Standing.SUSPECT


def test_a_sound_copy_in_another_bucket_than_readers_use_proves_nothing(world):
    """A mirror of a bucket that was lost: what is in BookKeeper is the last that can be read."""
    written, ledger = offloaded(world, "lost")
    mirror = a_bucket()
    put_copy(mirror, ledger)
    found = verdict_on(scan(written, f"stockBucket: 'memory://{mirror}'"), ledger)
    assert found is not None
    assert [one.fact for one in found.evidence] == [Fact.LEFT_BOOKKEEPER, Fact.COPY_NOT_READ]
    assert not found.deletable
    assert "Its copy in the bucket lost was not read back." in told(found)


def test_a_store_that_nobody_can_open_is_an_error_and_not_a_bucket_without_copies(world, caplog):
    written, _ = offloaded(world)
    with pytest.raises(ConfigError):
        scan(written, "stockBucket: 's4://bucket'")
    assert scan(written, "").refusals == ()
    assert caplog.records == []


def test_a_bucket_that_does_not_answer_is_told_and_its_ledgers_stay(world, caplog, monkeypatch):
    class Away(MemoryStore):
        def read(self, key, offset=0, length=None):
            raise StoreUnavailableError("the bucket is away")

    written, ledger = offloaded(world)

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailableError("the bucket is away")

    for opened in (lambda *_, **__: Away(), away):
        caplog.clear()
        monkeypatch.setattr(module, "open_store", opened)
        found = verdict_on(scan(written, "stockBucket: 's3://bucket'"), ledger)
        assert found is not None
        assert found.standing is Standing.SUSPECT
        (said,) = caplog.records
        assert "the bucket is away" in said.getMessage()
        assert said.see == "stock-bucket"
