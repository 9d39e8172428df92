"""What clients get while the store does not answer: they wait, and go on once it does; nobody else is troubled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx
import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import Connect, Ping, Subscribe
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.format.support import Stored
from tests.gateway.gateway import DEFAULT_LIMITS, durable_gateway, free_port
from tests.gateway.raw import PATIENCE, RawClient
from tests.gateway.test_stock_client import EARLIEST, connected, received

T = TypeVar("T")
NAME = str(TOPIC)
ENTRIES = 20


@pytest.fixture
def faults() -> StoreFaults:
    return StoreFaults()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(faults: StoreFaults, port: int) -> Iterator[pulsar.Client]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    with durable_gateway(FaultyStore(made.store, faults), metricsListen=f"127.0.0.1:{port}") as url:
        found = connected(url)
        yield found
        found.close()


def fails(faults: StoreFaults, folder: str, times: int) -> None:
    faults.add(StoreFault("*", key=lambda key: folder in key, times=times))


def accepted(port: int) -> int:
    """How many connections there have been."""
    return int(httpx.get(f"http://127.0.0.1:{port}/status", trust_env=False).json()["accepted"])


def test_a_consumer_is_subscribed_once_the_store_answers(client: pulsar.Client, faults: StoreFaults) -> None:
    fails(faults, "_subscriptions", 3)
    consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
    assert received(consumer, ENTRIES) == [b"m%d" % n for n in range(ENTRIES)]


def test_a_topic_that_cannot_be_looked_up_cuts_off_no_other_consumer(
    client: pulsar.Client, faults: StoreFaults, port: int
) -> None:
    reader = client.create_reader(NAME, pulsar.MessageId.earliest)
    connections = accepted(port)
    fails(faults, "_gateways", 3)
    consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
    assert received(consumer, ENTRIES) == [b"m%d" % n for n in range(ENTRIES)]
    assert accepted(port) == connections
    assert [reader.read_next(20_000).data() for _ in range(ENTRIES)] == [b"m%d" % n for n in range(ENTRIES)]


class SlowStore(ForwardingStore):
    """Calls for subscriptions wait until it is told to answer."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.answers = threading.Event()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if "_subscriptions" in key:
            self.answers.wait(PATIENCE)
        return work()


def test_who_waits_for_many_subscriptions_is_heard_meanwhile() -> None:
    """A client whose PING is not answered closes the connection, with its consumers of all topics."""
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    store, count = SlowStore(made.store), 2 * DEFAULT_LIMITS.requests
    with durable_gateway(store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        assert client.command().HasField("connected")
        for number in range(count):
            asked = Subscribe(
                topic=NAME, subscription=f"s{number}", type=Subscribe.SHARED, consumer_id=number, request_id=number
            )
            client.send(command(subscribe=asked))
        try:
            client.send(command(ping=Ping()))
            client.socket.settimeout(10)
            client.until("pong")
        finally:
            store.answers.set()
        assert {client.until("success").success.request_id for _ in range(count)} == set(range(count))
