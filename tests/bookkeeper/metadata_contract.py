"""What every metadata service must do. Each one's test module runs all of it: `class TestX(MetadataContract)` with a
fixture `world`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo
from offloader.bookkeeper.api import BookieAddress, LedgerMetadataStore
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState
from offloader.errors import (
    BookieUnavailableError,
    DamagedRecordError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    TopicNotFoundError,
    VersionConflictError,
)
from offloader.model import TopicName
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.subscription import CursorState
from tests.fakes.ledger_metadata import ClusterMetadata, Compression

TOPIC = TopicName("public", "default", "off l*~+%é.x-partition-3")
METADATA = LedgerMetadata(
    3, 3, 2, LedgerState.OPEN, (Fragment(0, ("a:1", "b", "c")),), custom={"application": b"pulsar"}
)
BIG = 2**31 + 7
SOON_SECONDS = 240.0  # after which it hangs


@dataclass
class World:
    """A metadata service with an empty cluster. `goes`, `comes`: it stops answering, and answers again."""

    store: MetadataTree
    cluster: ClusterMetadata
    goes: Callable[[], None]
    comes: Callable[[], None]


def soon(is_so: Callable[[], bool]) -> None:
    """Watches fire a moment later."""
    deadline = time.monotonic() + SOON_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def closed(metadata: LedgerMetadata, last: int) -> LedgerMetadata:
    return replace(metadata, state=LedgerState.CLOSED, last_entry=last, length=last + 1)


class MetadataContract:
    """LedgerMetadataStore, see there."""

    @pytest.fixture
    def store(self, world: World) -> LedgerMetadataStore:
        return world.store

    @pytest.fixture
    def cluster(self, world: World) -> ClusterMetadata:
        return world.cluster

    @pytest.mark.parametrize("ledger", [0, 15, BIG])
    def test_a_ledger_is_read_and_changed(self, store, cluster, ledger):
        cluster.put_ledger(ledger, METADATA)
        metadata, version = store.read(ledger)
        assert replace(metadata, created_ms=None) == METADATA
        newer = store.write(ledger, closed(metadata, 9), version)
        assert newer != version
        assert store.read(ledger) == (closed(metadata, 9), newer)

    def test_a_cluster_has_an_instance_id(self, store):
        assert store.instance_id() == ""
        store.nodes.create(f"{store.uri.root}/INSTANCEID", b"8f1a2b3c")
        assert store.instance_id() == "8f1a2b3c"

    def test_a_ledger_without_a_time_of_creation_has_its_nodes(self, store, cluster):
        cluster.put_ledger(1, METADATA)
        cluster.put_ledger(2, replace(METADATA, created_ms=17))
        metadata, version = store.read(1)
        assert metadata.created_ms is not None
        assert metadata.created_ms > 10**12
        store.write(1, closed(metadata, 3), version)
        assert store.read(1).metadata.created_ms == metadata.created_ms
        assert store.read(2).metadata.created_ms == 17

    def test_of_several_writers_one_wins(self, store, cluster):
        cluster.put_ledger(1, METADATA)
        metadata, version = store.read(1)

        def write(last):
            try:
                return store.write(1, closed(metadata, last), version)
            except VersionConflictError:
                return None

        with ThreadPoolExecutor(8) as pool:
            versions = list(pool.map(write, range(8)))
        (winner,) = [last for last, written in enumerate(versions) if written is not None]
        assert store.read(1) == (closed(metadata, winner), versions[winner])

    def test_a_version_that_is_not_the_present_one_is_refused(self, store, cluster):
        cluster.put_ledger(1, METADATA)
        metadata, version = store.read(1)
        cluster.put_ledger(1, METADATA)
        for wrong in (version, version + 2):
            with pytest.raises(VersionConflictError, match="somebody else"):
                store.write(1, closed(metadata, 1), wrong)
        assert not store.read(1).metadata.closed

    def test_a_ledger_that_is_not_there(self, store, cluster):
        with pytest.raises(LedgerNotFoundError, match="no ledger 5"):
            store.read(5)
        with pytest.raises(LedgerNotFoundError, match="no ledger 5"):
            store.write(5, METADATA, 0)
        cluster.put_ledger(5, METADATA)
        store.read(5)
        cluster.delete_ledger(5)
        with pytest.raises(LedgerNotFoundError):
            store.read(5)
        with pytest.raises(LedgerNotFoundError):
            store.read(-1)

    def test_a_damaged_ledger_is_named(self, store, cluster):
        cluster.put_ledger(7, b"BookieMetadataFormatVersion\t3\n\x05abc")
        with pytest.raises(DamagedRecordError, match=r"^ledger 7: "):
            store.read(7)

    def test_a_bookies_address_follows_it(self, store, cluster):
        with pytest.raises(BookieUnavailableError, match="b-1 is not registered"):
            store.address("b-1")
        cluster.register("b-1", BookieAddress("one", 3181))
        assert store.address("b-1") == ("one", 3181)
        cluster.register("b-1", BookieAddress("two", 3182))
        soon(lambda: store.address("b-1") == ("two", 3182))
        cluster.unregister("b-1")
        soon(lambda: _is_gone(store, "b-1"))
        cluster.register("b-1", BookieAddress("three", 3183), read_only=True)
        assert store.address("b-1") == ("three", 3183)
        cluster.register("b-1", BookieAddress("four", 3184))
        cluster.unregister("b-1", read_only=True)
        soon(lambda: store.address("b-1") == ("four", 3184))

    def test_an_older_bookie_is_where_its_id_says(self, store, cluster):
        cluster.register("host.example:3181", None)
        assert store.address("host.example:3181") == ("host.example", 3181)

    def test_bookies_come_and_go(self, store, cluster):
        assert store.available() == {}
        cluster.register("a:1", None)
        cluster.register("b", BookieAddress("b", 1), read_only=True)
        soon(lambda: store.available() == {"a:1": True, "b": False})
        cluster.register("b", BookieAddress("b", 1))
        cluster.unregister("b", read_only=True)
        soon(lambda: store.available() == {"a:1": True, "b": True})
        cluster.unregister("a:1")
        soon(lambda: store.available() == {"b": True})

    @pytest.mark.parametrize("name", [".", ".."])
    def test_a_topic_that_no_node_can_be_named_after_has_no_managed_ledger(self, store, name):
        for topic in (TopicName("public", "default", name), TopicName(name, "default", "t")):
            for ask in (store.managed_ledger, store.cursors):
                with pytest.raises(TopicNotFoundError, match="no node can have such a name"):
                    ask(topic)

    def test_a_cookie_has_a_time(self, store, cluster):
        assert store.cookie("b-1") is None
        cluster.put_cookie("b-1", b"disks")
        first = store.cookie("b-1")
        assert first is not None
        assert first == (b"disks", first.created_ms, first.created_ms)
        cluster.delete_cookie("b-1")
        assert store.cookie("b-1") is None
        cluster.put_cookie("b-1", b"disks")
        again = store.cookie("b-1")
        assert again is not None
        assert again.created_ms >= first.created_ms > 10**12

    def test_a_cookie_that_is_replaced_in_place_keeps_its_time_and_gets_another_one(self, store, cluster):
        cluster.put_cookie("b-1", b"disks")
        first = store.cookie("b-1")
        time.sleep(0.005)
        cluster.put_cookie("b-1", b"other disks")
        changed = store.cookie("b-1")
        assert first is not None
        assert changed is not None
        assert (changed.data, changed.created_ms) == (b"other disks", first.created_ms)
        assert changed.modified_ms > first.modified_ms

    @pytest.mark.parametrize("packed", Compression.values())
    def test_a_topics_ledgers_and_cursors(self, store, cluster, packed):
        with pytest.raises(TopicNotFoundError, match="managed ledger"):
            store.managed_ledger(TOPIC)
        with pytest.raises(TopicNotFoundError, match="managed ledger"):
            store.cursors(TOPIC)
        ledgers = (ListedLedger(3, 10, 1000), ListedLedger(7, 0, 0))
        cluster.put_managed_ledger(TOPIC, ManagedLedger(ledgers, terminated=(7, 4)), packed)
        found = store.managed_ledger(TOPIC)
        assert (found.ledgers, found.terminated) == (ledgers, (7, 4))
        assert store.cursors(TOPIC) == {}
        info = ManagedCursorInfo(cursorsLedgerId=-1, markDeleteLedgerId=3, markDeleteEntryId=8)
        cluster.put_cursor(TOPIC, "a sub/é", info.SerializeToString(), packed)
        cluster.put_cursor(TOPIC, "b", ManagedCursorInfo(cursorsLedgerId=9).SerializeToString(), packed)
        assert store.cursors(TOPIC) == {"a sub/é": CursorState((3, 8)), "b": CursorState(cursor_ledger=9)}
        cluster.put_managed_ledger(TOPIC, ManagedLedger((*ledgers, ListedLedger(8, 0, 0))), packed)
        assert store.managed_ledger(TOPIC).version != found.version
        assert store.managed_ledger(TOPIC).ledgers[-1].ledger == 8

    def test_a_service_that_is_gone_is_unavailable_until_it_is_back(self, world):
        world.cluster.put_ledger(1, METADATA)
        world.cluster.register("b-1", BookieAddress("one", 3181))
        metadata, version = world.store.read(1)
        world.goes()
        for call in (
            lambda: world.store.read(1),
            lambda: world.store.write(1, metadata, version),
            lambda: world.store.cookie("b-1"),
            lambda: world.store.address("b-1"),
            lambda: world.store.available(),
            lambda: world.store.managed_ledger(TOPIC),
        ):
            with pytest.raises(MetadataUnavailableError):
                call()
        world.comes()
        soon(lambda: _answers(world.store))
        assert world.store.read(1) == (metadata, version)
        assert world.store.address("b-1") == ("one", 3181)


def _is_gone(store: LedgerMetadataStore, bookie: str) -> bool:
    try:
        store.address(bookie)
    except BookieUnavailableError:
        return True
    return False


def _answers(store: LedgerMetadataStore) -> bool:
    try:
        store.read(1)
    except MetadataUnavailableError:
        return False
    return True
