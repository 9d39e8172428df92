"""How many requests to the store a client's first message waits for, one after the other: those of one round are all
made before any of them is answered."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import pytest

from offloader._proto.pulsar_wire_pb2 import Connect, Flow, Lookup, MessageIdData, PartitionedMetadata, Subscribe
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway, gateway
from tests.gateway.raw import PATIENCE, RawClient

T = TypeVar("T")
NAME = str(TOPIC)
BEFORE_ALL = MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1)
unasked = partial(durable_gateway, refreshInterval="1h", flushInterval="1h", claimInterval="1h")

OWNER, CLAIM = "list _gateways/", "read _gateways/1"
CATALOG = ["read _manifests/0/newest", "stat _catalog/0/63", "list _catalog/", "read _catalog/0/1", "read _catalog/0/0"]
CURSOR = "_subscriptions/s/"
HEALTH = "stat _root"  # whether the store answers
DATA = ["read 1-index", "read 1"]


class RoundStore(ForwardingStore):
    """Requests wait for their round, but where none is played."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.is_played = False
        self.asked: list[str] = []
        self._waiting: list[str] = []
        self._round = 0
        self._changed = threading.Condition()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        name = f"{verb} {_short(key)}"
        with self._changed:
            if self.is_played and name != HEALTH:
                mine = self._round
                self._waiting.append(name)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._round > mine or not self.is_played, PATIENCE)
            self.asked.append(name)
        return work()

    def play(self, *requests: str) -> None:
        """A round: these are asked for, and then all of them are answered."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) >= len(requests), PATIENCE)
            assert sorted(self._waiting) == sorted(requests)
            self._waiting.clear()
            self._round += 1
            self._changed.notify_all()

    @contextmanager
    def played(self) -> Iterator[None]:
        self.is_played = True
        try:
            yield
        finally:
            with self._changed:
                self.is_played = False
                self._waiting.clear()
                self._changed.notify_all()


def _short(key: str) -> str:
    key = key.removeprefix("public/default/orders/").replace("public/default/orders/", "")
    return re.sub(r"0{8}-0000-4000-8000-0*|\d{20}", lambda found: str(int(found[0])) if found[0].isdigit() else "", key)


def read_first(url: str, subscription: str, *, durable: bool) -> int:
    """The first message's entry."""
    asked = Subscribe(
        topic=NAME, subscription=subscription, type=Subscribe.EXCLUSIVE, consumer_id=1, request_id=3,
        durable=durable, initial_position=Subscribe.EARLIEST, start_message_id=None if durable else BEFORE_ALL,
    )  # fmt: skip
    with RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        client.until("connected")
        client.send(command(partitioned_metadata=PartitionedMetadata(topic=NAME, request_id=1)))
        assert client.until("partitioned_metadata_response").partitioned_metadata_response.partitions == 0
        client.send(command(lookup=Lookup(topic=NAME, request_id=2)))
        assert client.until("lookup_response").lookup_response.broker_service_url == url
        client.send(command(subscribe=asked))
        assert client.answer().HasField("success")
        client.send(command(flow=Flow(consumer_id=1, permits=1)))
        return client.until("message").message.message_id.entry_id


def played(url: str, store: RoundStore, rounds: Sequence[Sequence[str]], name: str, *, durable: bool = True) -> None:
    with ThreadPoolExecutor(1) as client, store.played():
        first = client.submit(read_first, url, name, durable=durable)
        for requests in rounds:
            store.play(*requests)
        assert first.result(PATIENCE) == 0


@pytest.fixture
def store() -> RoundStore:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
    return RoundStore(made.store)


def test_a_new_subscription_waits_for_twelve_requests_and_for_six_where_its_topic_is_open(store: RoundStore) -> None:
    """The topic is opened while its owner is looked up and decided."""
    opened = [["list _catalog/"], [CATALOG[0], OWNER], [CATALOG[1], "put _gateways/0"], [CATALOG[2], OWNER]]
    with unasked(store) as url:
        rounds = [*opened, *([each] for each in CATALOG[3:]), *new("s", counted=True), *([each] for each in DATA)]
        played(url, store, rounds, "s")
        assert len(rounds) == 12
        rounds = [[OWNER], [OWNER], *new("t"), [DATA[1]]]
        played(url, store, rounds, "t")
        assert len(rounds) == 6


def new(subscription: str, *, counted: bool = False) -> list[list[str]]:
    """`counted`: the topic's subscriptions are counted, for the first time."""
    folder = f"_subscriptions/{subscription}/"
    count = [["list _subscriptions/"]] if counted else []
    return [[f"list {folder}"], *count, [f"put {folder}{10**20 - 2}/0"], [f"list {folder}"]]


def test_a_reader_waits_for_eight_requests_and_for_two_where_its_topic_is_open(store: RoundStore) -> None:
    with unasked(store) as url:
        read_first(url, "s", durable=True)
    with unasked(store) as url:
        store.asked.clear()
        opened = [["list _catalog/"], [CATALOG[0], OWNER], [CATALOG[1], CLAIM]]
        rounds = [*opened, *([each] for each in CATALOG[2:]), *([each] for each in DATA)]
        played(url, store, rounds, "r", durable=False)
        assert len(rounds) == 8
        played(url, store, [[OWNER], [DATA[1]]], "q", durable=False)


def test_a_reader_of_a_gateway_without_durable_subscriptions_asks_for_no_owner(store: RoundStore) -> None:
    with gateway(store, refreshInterval="1h") as url:
        rounds = [["list _catalog/"], *([each] for each in CATALOG), *([each] for each in DATA)]
        played(url, store, rounds, "r", durable=False)
        assert len(rounds) == 8
        played(url, store, [[DATA[1]]], "q", durable=False)


def test_a_subscription_that_is_known_reads_its_state_once_and_waits_for_three_requests_where_it_is_open(
    store: RoundStore,
) -> None:
    with unasked(store) as url:
        read_first(url, "s", durable=True)
    with unasked(store) as url:
        store.asked.clear()
        read_first(url, "s", durable=True)
        former, own = f"{CURSOR}{10**20 - 2}", f"{CURSOR}{10**20 - 3}"
        asked = [each for each in store.asked if CURSOR in each]
        listed = f"list {CURSOR}"
        assert asked == [listed, f"read {former}/0", f"put {former}/1", listed, f"put {own}/0", listed]
        played(url, store, [[OWNER], [OWNER], [DATA[1]]], "s")
