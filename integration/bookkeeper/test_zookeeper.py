"""The metadata service that bookies, brokers and BookKeeper's own client use: a real ZooKeeper."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from kazoo.client import KazooClient

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from dev.embedded.process import JavaProcess
from dev.embedded.settings import free_ports
from dev.embedded.standalone import PulsarStandalone
from dev.embedded.zookeeper import zookeeper_is_ready
from integration.bookkeeper.cluster import AGAIN, BookKeeperCluster
from integration.bookkeeper.contents import Contents
from integration.bookkeeper.official import OfficialError, Shape
from integration.processes import HANGS, suspend
from integration.pulsar.waiting import until
from integration.starting import started
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.model import DigestType, Fragment, LedgerState
from offloader.bookkeeper.uri import MetadataUri
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import FatalError, LedgerNotFoundError, MetadataUnavailableError, VersionConflictError
from offloader.java import find_java
from offloader.model import TopicName
from offloader.state.names import encoded, managed_ledger_name, managed_ledger_of
from tests.bookkeeper.metadata_contract import METADATA, MetadataContract, World, closed, soon
from tests.bookkeeper.nodes_contract import NodesContract
from tests.fakes.ledger_metadata import ClusterMetadata
from tests.lifecycle.deletion.guard_contract import GuardContract

pytestmark = pytest.mark.pulsar

PATIENT, HURRIED = 60.0, 3.0  # seconds that a call may take, the second where it is to be in vain
ALONE = Shape(1, 1, 1)

_ROOTS = itertools.count()


class LoneZooKeeper:
    """A ZooKeeper without a cluster, which can be killed, paused and brought back."""

    def __init__(self, directory: Path) -> None:
        (self._port,) = free_ports(1, random.SystemRandom())
        self.address = f"127.0.0.1:{self._port}"
        self._directory = directory
        self._directory.mkdir(parents=True)
        self._command = JavaCommands(find_java(), fetch_lock(PULSAR), directory).zookeeper(self._port)
        self.client = KazooClient(
            self.address, connection_retry={"max_tries": -1, "max_delay": 0.5}, command_retry=AGAIN
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.end)
            self.start()
            self.client.start(HANGS)
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        self._process = JavaProcess(self._command, self._directory, self._directory / "zookeeper.log")
        self._process.await_ready(lambda: zookeeper_is_ready(self._port), HANGS)

    def kill(self) -> None:
        self._process.kill()

    @contextmanager
    def paused(self) -> Iterator[None]:
        suspend(self._process.pid)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def end(self) -> None:
        self.client.stop()
        self.client.close()
        self.kill()

    # Writing

    def put(self, path: str, value: bytes) -> None:
        self.client.retry(self._put, path, value)

    def _put(self, path: str, value: bytes) -> None:
        self.client.ensure_path(path.rpartition("/")[0] or "/")
        if self.client.exists(path):
            self.client.set(path, value)
        else:
            self.client.create(path, value)

    def delete(self, path: str) -> None:
        self.client.retry(self.client.delete, path)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneZooKeeper]:
    with started(tmp_path_factory.mktemp("zookeeper"), LoneZooKeeper) as lone:
        yield lone


@pytest.fixture
def world(zookeeper: LoneZooKeeper) -> Iterator[World]:
    with world_of(zookeeper, PATIENT) as world:
        yield world


@pytest.fixture
def hurried_world(zookeeper: LoneZooKeeper) -> Iterator[World]:
    with world_of(zookeeper, HURRIED) as world:
        yield world


@contextmanager
def world_of(zookeeper: LoneZooKeeper, timeout: float) -> Iterator[World]:
    """`timeout`: seconds that a call of its store may take."""
    uri = MetadataUri((zookeeper.address,), f"/root-{next(_ROOTS)}/ledgers")
    filled = ClusterMetadata(zookeeper, uri)
    filled.format()
    with closing(until(lambda: connect(uri, timeout=timeout))) as store:
        yield World(store, filled, zookeeper.kill, zookeeper.start)


class TestZooKeeper(MetadataContract):
    """With the fixture above."""

    def test_a_service_that_is_gone_is_unavailable_until_it_is_back(self, hurried_world: World) -> None:
        super().test_a_service_that_is_gone_is_unavailable_until_it_is_back(hurried_world)

    def test_a_server_that_hangs_is_unavailable_in_time(self, hurried_world: World, zookeeper: LoneZooKeeper) -> None:
        hurried_world.cluster.put_ledger(1, METADATA)
        store = hurried_world.store
        before = until(lambda: store.read(1))
        with zookeeper.paused():
            soon(lambda: _seconds_until_unavailable(store) < 3 * HURRIED)  # a busy machine may take longer once
        assert until(lambda: store.read(1)) == before

    def test_what_changed_while_the_server_was_away_is_seen(self, world: World, zookeeper: LoneZooKeeper) -> None:
        world.cluster.register("b", BookieAddress("one", 1))
        assert world.store.address("b") == ("one", 1)
        assert world.store.available() == {"b": True}
        zookeeper.kill()
        zookeeper.start()
        world.cluster.register("b", BookieAddress("two", 2))
        world.cluster.register("c", BookieAddress("c", 3), read_only=True)
        soon(lambda: world.store.address("b") == ("two", 2))
        soon(lambda: world.store.available() == {"b": True, "c": False})


class TestZooKeeperNodes(NodesContract):
    """With the same."""

    @pytest.fixture
    def world(self, request: pytest.FixtureRequest, zookeeper: LoneZooKeeper) -> Iterator[World]:
        hurried = request.node.originalname == "test_a_tree_that_is_gone_is_unavailable"
        with world_of(zookeeper, HURRIED if hurried else PATIENT) as world:
            yield world


class TestGuardOnZooKeeper(GuardContract):
    """With the fixture above."""


def _seconds_until_unavailable(store: MetadataTree) -> float:
    begun = time.monotonic()
    with pytest.raises(MetadataUnavailableError):
        store.read(1)
    return time.monotonic() - begun


@pytest.fixture(scope="module")
def metadata(shared_cluster: BookKeeperCluster) -> Iterator[MetadataTree]:
    with closing(connect(shared_cluster.metadata_uri, timeout=HANGS)) as store:
        yield store


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("ledger", [None, (1 << 31) - 2, (1 << 31) - 1, (1 << 31) + 99])
def test_a_ledger_of_the_official_client(
    cluster: BookKeeperCluster, metadata: MetadataTree, version: int, ledger: int | None
) -> None:
    shape = Shape(4, 3, 2, digest="CRC32", password="sécret\0", format=version)
    written = cluster.official.write(shape, 20, Contents(1), ledger=ledger, custom={"application": "tests"})
    said = cluster.official.metadata(written)
    found = metadata.read(written).metadata
    assert (found.ensemble_size, found.write_quorum, found.ack_quorum) == (4, 3, 2)
    assert (found.state, found.last_entry, found.length) == (LedgerState.CLOSED, 19, said["length"])
    assert (found.digest, found.password, found.format_version) == (DigestType.CRC32, "sécret\0".encode(), version)
    assert [[f.first_entry, list(f.ensemble)] for f in found.fragments] == said["fragments"]
    assert found.custom["application"] == b"tests"
    assert found.created_ms == said["created"]
    cluster.official.call("delete", ledger=written)
    with pytest.raises(LedgerNotFoundError):
        metadata.read(written)


@pytest.mark.parametrize("version", [2, 3])
def test_the_official_client_reads_what_we_write(
    cluster: BookKeeperCluster, metadata: MetadataTree, version: int
) -> None:
    shape = Shape(3, 3, 2, password="x", format=version)
    ledger = cluster.official.create(shape, custom={"k": "v"})
    before = metadata.read(ledger)
    assert before.metadata.state is LedgerState.OPEN
    recovering = replace(before.metadata, state=LedgerState.IN_RECOVERY)
    recovery = metadata.write(ledger, recovering, before.version)
    assert cluster.official.metadata(ledger)["state"] == "IN_RECOVERY"
    more = (*recovering.fragments, Fragment(5, tuple(reversed(recovering.fragments[0].ensemble))))
    done = replace(closed(recovering, 8), fragments=more)
    with pytest.raises(VersionConflictError):
        metadata.write(ledger, done, before.version)
    metadata.write(ledger, done, recovery)
    said = cluster.official.metadata(ledger)
    assert (said["state"], said["last"], said["length"], said["format"]) == ("CLOSED", 8, 9, version)
    assert [[f.first_entry, list(f.ensemble)] for f in more] == said["fragments"]
    assert said["custom"].keys() == {"k"}


def test_who_writes_second_is_told(cluster: BookKeeperCluster, metadata: MetadataTree) -> None:
    writer = cluster.client()
    ledger = writer.create(Shape())
    writer.add(ledger, 10, Contents(2)).result(HANGS)
    before = metadata.read(ledger)
    assert cluster.official.recover(ledger, Shape()).result(HANGS)["last"] == 9
    with pytest.raises(VersionConflictError):
        metadata.write(ledger, closed(before.metadata, 3), before.version)
    assert metadata.read(ledger).metadata.last_entry == 9


def test_what_we_changed_the_official_client_does_not_overwrite(
    cluster: BookKeeperCluster, metadata: MetadataTree
) -> None:
    writer = cluster.client()
    ledger = writer.create(Shape())
    writer.add(ledger, 10, Contents(3)).result(HANGS)
    before = metadata.read(ledger)
    metadata.write(ledger, closed(before.metadata, 3), before.version)
    with pytest.raises(OfficialError):
        writer.close_ledger(ledger)
    assert metadata.read(ledger).metadata.last_entry == 3


def test_a_field_of_a_newer_version_survives_beside_the_official_client(
    cluster: BookKeeperCluster, metadata: MetadataTree
) -> None:
    ledger = cluster.official.create(Shape())
    path = "/ledgers" + ledger_path(Layout.HIERARCHICAL, ledger)
    value, _ = cluster.zookeeper.get(path)
    header, _, body = value.partition(b"\n")
    length = (body[0] & 127) + (body[1] << 7) if body[0] > 127 else body[0]
    new = bytes.fromhex("da05036e6577")
    body = body[-length:] + new
    cluster.zookeeper.set(path, header + b"\n" + bytes([len(body) % 128 + 128, len(body) // 128]) + body)
    before = metadata.read(ledger)
    metadata.write(ledger, closed(before.metadata, 3), before.version)
    assert cluster.zookeeper.get(path)[0].endswith(new)
    assert cluster.official.metadata(ledger)["last"] == 3


@pytest.mark.parametrize("layout", [Layout.FLAT, Layout.LONG_HIERARCHICAL])
def test_other_layouts(tmp_path: Path, layout: Layout) -> None:
    with BookKeeperCluster(tmp_path, bookies=1, layout=layout.value) as cluster:
        ledger = cluster.official.write(ALONE, 3, Contents(4))
        uri = MetadataUri((cluster.zookeeper_address,))
        for asked in (None, layout):
            with closing(connect(replace(uri, layout=asked))) as metadata:
                assert metadata.read(ledger).metadata.last_entry == 2
        with (
            closing(connect(replace(uri, layout=Layout.HIERARCHICAL))) as wrong,
            pytest.raises(FatalError, match="another layout"),
        ):
            wrong.read(ledger)


def test_bookies_are_found_where_they_listen(cluster: BookKeeperCluster, metadata: MetadataTree) -> None:
    for bookie in cluster.bookies:
        assert metadata.address(bookie.id) == ("127.0.0.1", bookie.port)
        cookie = metadata.cookie(bookie.id)
        assert cookie is not None
        assert b"bookieHost" in cookie.data
        assert 0 < time.time() * 1000 - cookie.created_ms < 3_600_000
    assert metadata.cookie("nobody") is None


def test_bookies_come_and_go(cluster: BookKeeperCluster, metadata: MetadataTree) -> None:
    everybody = {bookie.id: True for bookie in cluster.bookies}
    soon(lambda: metadata.available() == everybody)
    gone = cluster.bookies[1]
    gone.stop()
    soon(lambda: metadata.available() == {name: True for name in everybody if name != gone.id})
    gone.start()
    soon(lambda: metadata.available() == everybody)
    assert metadata.address(gone.id) == ("127.0.0.1", gone.port)


def test_a_topics_ledgers_and_cursors(pulsar_with_zookeeper: PulsarStandalone) -> None:
    pulsar = pulsar_with_zookeeper
    topic = TopicName("public", "default", "näme of+a~topic")
    pulsar.admin("PUT", topic.rest_path)
    pulsar.admin("PUT", f"{topic.rest_path}/subscription/a%20s~ub%C3%A9", {"ledgerId": -1, "entryId": -1})
    stats = pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()
    with closing(connect(f"zk:{pulsar.zookeeper_address}")) as metadata:
        listed = metadata.managed_ledger(topic)
        assert [one.ledger for one in listed.ledgers] == [one["ledgerId"] for one in stats["ledgers"]]
        assert metadata.cursors(topic).keys() == {"a s~ubé"}
        assert {encoded(name) for name in metadata.cursors(topic)} == stats["cursors"].keys()
        ledger = metadata.read(listed.ledgers[-1].ledger).metadata
        assert managed_ledger_of(ledger.custom) == managed_ledger_name(topic)
        assert ledger.state is LedgerState.OPEN
        (bookie,) = ledger.fragments[0].ensemble
        assert metadata.available() == {bookie: True}
        assert metadata.address(bookie).host == "127.0.0.1"
        pulsar.admin("POST", f"{topic.rest_path}/terminate")
        assert metadata.managed_ledger(topic).terminated is not None
        assert metadata.read(listed.ledgers[-1].ledger).metadata.closed
