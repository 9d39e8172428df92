"""What the makings and their tests do to a cluster, and how they look at it: as clients, operators and nodes."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import httpx
import pulsar
from kazoo.exceptions import NoNodeError

from integration.lifecycle.broker import Broker
from integration.lifecycle.cluster import PulsarCluster
from integration.lifecycle.frames import NodeWrite, Write
from integration.processes import HANGS
from integration.pulsar.waiting import until
from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.listing import LedgerListing
from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.metadata_codec import decode_metadata
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.zookeeper import connect
from offloader.lifecycle.ledgers.references import cursor_path, list_path
from offloader.model import TopicName
from offloader.state.managed_ledger_codec import decode_record
from offloader.state.names import managed_ledger_name
from offloader.state.subscription_codec import decode_cursor_record

KEPT, TRIMMED = "public/kept", "public/trimmed"
"""Namespaces: all messages are kept; none is that every subscription has acknowledged."""

_NAMES = itertools.count()


class Ground:
    """A cluster with its two namespaces. `tree`: its metadata, read beside the proxy."""

    def __init__(self, cluster: PulsarCluster) -> None:
        self.cluster = cluster
        self.zookeeper = cluster.books.zookeeper
        self.tree: MetadataTree = connect(cluster.books.metadata_uri, timeout=HANGS)
        self._pool = ThreadPoolExecutor(8, "calls")
        for namespace in (KEPT, TRIMMED):
            self.new_namespace(namespace, kept=namespace == KEPT)

    def close(self) -> None:
        self._pool.shutdown()
        self.tree.close()

    # As an operator

    def new_namespace(self, name: str = "", *, kept: bool = True) -> str:
        name = name or f"public/n{next(_NAMES)}"
        self.cluster.admin("PUT", f"namespaces/{name}")
        if kept:
            everything = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
            self.cluster.admin("POST", f"namespaces/{name}/retention", everything)
        return name

    def new_topic(self, making: str, namespace: str = KEPT) -> TopicName:
        """Empty, and loaded by some broker."""
        topic = TopicName.parse(f"{namespace}/{making}-{next(_NAMES)}")
        self.cluster.admin("PUT", topic.rest_path)
        self.load(topic)
        return topic

    def load(self, topic: TopicName) -> Mapping[str, Any]:
        """Have some broker own it. What it says of the topic."""
        return dict(self.cluster.admin("GET", f"{topic.rest_path}/internalStats").json())

    def unload(self, topic: TopicName) -> None:
        self.cluster.admin("PUT", f"{topic.rest_path}/unload")

    def owner(self, topic: TopicName) -> Broker:
        """The broker that has it."""
        url = f"/lookup/v2/topic/persistent/{topic.tenant}/{topic.namespace_part}/{topic.rest_path.rpartition('/')[2]}"

        def found() -> Broker | None:
            broker = self.cluster.broker()
            answer = httpx.get(broker.admin_url + url, timeout=HANGS)
            named = answer.json()["brokerUrl"] if answer.is_success else ""
            return next((one for one in self.cluster.brokers if one.service_url == named and one.running), None)

        return until(found)

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        """A call that may end with the death of the broker that it is for."""
        return self._pool.submit(call)

    def asked(self, broker: Broker, method: str, path: str, json: Any = None) -> Future[Any]:
        """The same for a call to the admin port. Nothing where there was no answer."""

        def call() -> httpx.Response | None:
            with contextlib.suppress(httpx.TransportError):
                return broker.answer(method, path, json)
            return None

        return self.begin(call)

    # As a client

    @contextlib.contextmanager
    def client(self, broker: Broker | None = None) -> Iterator[Any]:
        logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        url = (broker or self.cluster.broker()).service_url
        with closing(pulsar.Client(url, logger=logger, operation_timeout_seconds=120)) as client:
            yield client

    def produce(self, topic: TopicName, count: int, *, first: int = 0, keys: int = 0, **options: Any) -> list[bytes]:
        """So many messages, an entry each, all acknowledged; what they say. `keys`: so many different keys."""
        said = [f"{topic.name} {number}".encode() for number in range(first, first + count)]
        with self.client() as client:
            producer = client.create_producer(str(topic), batching_enabled=False)
            for number, data in enumerate(said):
                key = {"partition_key": f"key {number % keys}"} if keys else {}
                producer.send(data, **key, **options)
        return said

    def read(self, topic: TopicName, **options: Any) -> list[tuple[str, str, bytes]]:
        """All that a reader gets: position, key, data.

        A broker (4.0.7) that unloads a topic while it recovers the topic's transaction buffer may answer no reader of
        it from then on: it is unloaded once more. One that has taken a namespace over from a broker that was killed may
        wait for ever for the snapshots of the namespace's transaction buffers: then another one takes it over."""
        for remedy in (self.unload, lambda one: self.owner(one).kill()):
            with contextlib.suppress(pulsar.Timeout):
                return self._read(topic, **options)
            remedy(topic)
        return self._read(topic, **options)

    def _read(self, topic: TopicName, **options: Any) -> list[tuple[str, str, bytes]]:
        found = []
        with self.client() as client:
            reader = client.create_reader(str(topic), pulsar.MessageId.earliest, **options)
            while reader.has_message_available():
                message = reader.read_next(int(HANGS * 1000))
                found.append((str(message.message_id()), message.partition_key(), message.data()))
        return found

    def subscribe(self, topic: TopicName, subscription: str) -> None:
        """At the beginning."""
        self.cluster.admin("PUT", f"{topic.rest_path}/subscription/{subscription}", {"ledgerId": -1, "entryId": -1})

    def acknowledge(self, topic: TopicName, subscription: str, count: int) -> None:
        with self.client() as client:
            consumer = client.subscribe(str(topic), subscription, consumer_type=pulsar.ConsumerType.Shared)
            for _ in range(count):
                consumer.acknowledge(consumer.receive(int(HANGS * 1000)))

    # As nodes

    def ledgers(self) -> set[int]:
        """Every ledger that BookKeeper has metadata of."""
        pages = LedgerListing(self.tree.nodes, self.tree.uri.root, self.tree.layout).pages()
        return {ledger for page in pages for ledger in page.ledgers}

    def metadata(self, ledger: int) -> LedgerMetadata:
        node = self.tree.nodes.get(self.tree.path_of(ledger), latest=True)
        assert node is not None, f"there is no ledger {ledger}"
        return decode_metadata(node.value)

    def naming(self, **custom: str) -> set[int]:
        """The ledgers whose custom metadata say all of this. Keys: without `pulsar/`."""
        wanted = {f"pulsar/{key.replace('_', '-')}": value.encode() for key, value in custom.items()}
        found = set()
        for ledger in self.ledgers():
            node = self.tree.nodes.get(self.tree.path_of(ledger), latest=True)
            if node is not None:
                said = decode_metadata(node.value).custom
                found |= {ledger} if all(said.get(key) == value for key, value in wanted.items()) else set()
        return found

    def of_topic(self, topic: TopicName) -> set[int]:
        """The data ledgers and the cursors' of a topic, whether anything refers to them or not."""
        return self.naming(managed_ledger=managed_ledger_name(topic))

    def listed(self, topic: TopicName) -> list[int]:
        """The ids of a topic's list; none where there is no list."""
        value = self._value(list_of(topic))
        return [] if value is None else ids(value)

    def named_by_cursor(self, topic: TopicName, subscription: str) -> int:
        """The ledger that a cursor's node names; -1: none."""
        value = self._value(cursor_of(topic, subscription))
        return -1 if value is None else int(decode_cursor_record(value).cursorsLedgerId)

    def _value(self, path: str) -> bytes | None:
        try:
            value: bytes = self.zookeeper.get(path)[0]
        except NoNodeError:
            return None
        return value


def list_of(topic: TopicName) -> str:
    """The node of a topic's ledger list."""
    return list_path(managed_ledger_name(topic))


def cursor_of(topic: TopicName, subscription: str) -> str:
    return cursor_path(managed_ledger_name(topic), subscription)


def ids(value: bytes) -> list[int]:
    """The ledgers of a list's value."""
    return [one.ledgerId for one in decode_record(value).ledgerInfo]


def path_of(ledger: int) -> str:
    return "/ledgers" + ledger_path(Layout.HIERARCHICAL, ledger)


def sets(asked: Sequence[NodeWrite], path: str) -> bytes | None:
    """The value that a request sets a node to, if it does."""
    return next((one.value for one in asked if one.write is Write.SET and one.path == path), None)


def at_once(calls: Sequence[Callable[[], Any]]) -> None:
    """All of them begin at the same moment; what they raise does not count."""
    gate = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        gate.wait(HANGS)
        with contextlib.suppress(Exception):
            call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
