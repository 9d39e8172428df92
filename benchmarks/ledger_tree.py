"""A synthetic cluster in a real ZooKeeper: so many ledgers, of a tenth as many topics, and a hundredth of them orphans.

Each topic has eight ledgers in its list and a cursor with a ledger; every tenth one has a schema; the others' tenth
ledger is an orphan that was trimmed, in every tenth topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import SystemRandom
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from dev.embedded.process import JavaProcess
from dev.embedded.settings import free_ports, properties
from dev.embedded.zookeeper import zookeeper_configuration, zookeeper_is_ready
from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo, SchemaLocator
from offloader.bookkeeper.layout import Layout, encode_layout, ledger_path
from offloader.bookkeeper.metadata_codec import encode_metadata
from offloader.bookkeeper.model import Fragment, LedgerMetadata, LedgerState
from offloader.java import find_java

EACH = 10  # ledgers of a topic
NAMESPACES = 100
BROKER = "127.0.0.1:8080"
_BATCH = 400  # nodes of one transaction
_AHEAD = 8  # transactions under way
_START_SECONDS = 60

Tree = Iterator[tuple[str, bytes]]


class RoomyZooKeeper:
    """A real one, with memory for a million nodes. It ends with its context."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        (port,) = free_ports(1, SystemRandom())
        self.address = f"127.0.0.1:{port}"
        self._folder, self._port = folder, port
        configuration = {**zookeeper_configuration(port), "forceSync": "no", "snapCount": "10000000"}
        (folder / "zookeeper.conf").write_text(properties(configuration))
        program = ("org.apache.zookeeper.server.ZooKeeperServerMain", "zookeeper.conf")
        commands = JavaCommands(find_java(), fetch_lock(PULSAR), folder)
        self._command = commands.program("zookeeper", ("-Xmx4g", "-Dzookeeper.forceSync=no"), program)

    def __enter__(self) -> Self:
        self._process = JavaProcess(self._command, self._folder, self._folder / "zookeeper.log")
        self._process.await_ready(lambda: zookeeper_is_ready(self._port), _START_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()

    def fill(self, ledgers: int, say: Callable[[str], None]) -> None:
        """Write the tree."""
        client = KazooClient(self.address, timeout=30.0)
        client.start(_START_SECONDS)
        try:
            _write(client, _tree(ledgers), say)
        finally:
            client.stop()
            client.close()


def _write(client: KazooClient, tree: Tree, say: Callable[[str], None]) -> None:
    """Every node once, those above it first."""
    made, begun, count = {""}, [], 0
    transaction, size = client.transaction(), 0
    said = time.monotonic()
    for path, value in tree:
        for above in _missing(path, made):
            transaction.create(above, value if above == path else b"")
            size += 1
        if size >= _BATCH:
            begun.append(transaction.commit_async())
            transaction, count, size = client.transaction(), count + size, 0
            if len(begun) >= _AHEAD:
                _check(begun.pop(0).get())
        if time.monotonic() - said > 10:
            said = time.monotonic()
            say(f"scan: {count} nodes are written")
    begun.append(transaction.commit_async())
    for one in begun:
        _check(one.get())


def _check(results: list[object]) -> None:
    failed = [one for one in results if isinstance(one, Exception)]
    if failed:
        raise failed[0]


def _missing(path: str, made: set[str]) -> list[str]:
    """The path and those above it that are not there yet, the topmost first. What has nothing below it is forgotten."""
    missing = [path]
    if path.startswith("/managed-ledgers/"):
        made.add(path)  # cursors are below it
    above = path.rpartition("/")[0]
    while above not in made:
        made.add(above)
        missing.append(above)
        above = above.rpartition("/")[0]
    return missing[::-1]


def _tree(ledgers: int) -> Tree:
    yield "/ledgers/LAYOUT", encode_layout(Layout.HIERARCHICAL)
    yield "/ledgers/available/readonly", b""
    yield "/admin/clusters/bench", b"{}"
    yield f"/loadbalance/brokers/{BROKER}", b"{}"
    for number in range(NAMESPACES):
        yield f"/admin/policies/bench/ns-{number}", b"{}"
    for topic in range(ledgers // EACH):
        yield from _topic(topic)


def _topic(topic: int) -> Tree:
    """The ids of topics are mixed: their ledgers were created in turn."""
    name = f"bench/ns-{topic % NAMESPACES}/persistent/topic-{topic}"
    ids = [topic * EACH + one + 1 for one in range(EACH)]
    info = ManagedLedgerInfo()
    for ledger in ids[1:9]:
        info.ledgerInfo.add(ledgerId=ledger, entries=1000, size=10**6, timestamp=1_700_000_000_000)
    yield f"/managed-ledgers/{name}", info.SerializeToString()
    yield f"/managed-ledgers/{name}/subscription", ManagedCursorInfo(cursorsLedgerId=ids[9]).SerializeToString()
    data = {"application": b"pulsar", "component": b"managed-ledger", "pulsar/managed-ledger": name.encode()}
    for ledger in ids[1:9]:
        yield _ledger(ledger, data)
    yield _ledger(ids[9], {**data, "pulsar/cursor": b"subscription"})
    if topic % EACH:
        schema = f"bench/ns-{topic % NAMESPACES}/topic-{topic}"
        version = SchemaLocator.Version(version=0, hash=b"h")
        version.position.ledgerId, version.position.entryId = ids[0], 0
        yield f"/schemas/{schema}", SchemaLocator(info=version, index=[version]).SerializeToString()
        yield _ledger(ids[0], {"application": b"pulsar", "component": b"schema", "pulsar/schemaId": schema.encode()})
    else:
        yield _ledger(ids[0], data)  # it was trimmed


def _ledger(ledger: int, custom: dict[str, bytes]) -> tuple[str, bytes]:
    bookies = (Fragment(0, ("127.0.0.1:3181", "127.0.0.1:3182")),)
    closed = LedgerMetadata(2, 2, 2, LedgerState.CLOSED, bookies, last_entry=999, length=10**6, custom=custom)
    return "/ledgers" + ledger_path(Layout.HIERARCHICAL, ledger), encode_metadata(closed)
