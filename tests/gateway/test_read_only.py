"""Without `gateway.durableSubscriptions` nothing is written: proven by a store that refuses and records every write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import httpx
import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    BaseCommand,
    Connect,
    ConsumerStats,
    Flow,
    GetLastMessageId,
    Lookup,
    MessageIdData,
    RedeliverUnacknowledged,
    Seek,
    Subscribe,
    Unsubscribe,
)
from offloader.errors import AccessDeniedError
from offloader.gateway.values import ErrorCode
from offloader.metadata.layout import GATEWAYS, subscriptions_folder
from offloader.model import Position
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.cursors.marks import mark_delete_of
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway, free_port, gateway
from tests.gateway.raw import RawClient, questions
from tests.gateway.test_stock_client import EARLIEST, PATIENCE, connected

T = TypeVar("T")
NAME = str(TOPIC)
ENTRIES = 60
READS = {"read", "stat", "list"}
SHORT = {"flushInterval": "20ms", "refreshInterval": "20ms", "claimInterval": "20ms"}
TYPES = (Subscribe.EXCLUSIVE, Subscribe.SHARED, Subscribe.FAILOVER, Subscribe.KEY_SHARED)


class ReadOnlyStore(ForwardingStore):
    """Refuses what is not a read, as a role does that may only read. `calls`: all of them."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.calls: list[tuple[Verb, str]] = []

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self.calls.append((verb, key))
        if verb not in READS:
            raise AccessDeniedError(f"{verb} of {key} is refused (the test)")
        return work()

    def check(self) -> None:
        """Nothing was written, or tried; nor was anything asked that only durable subscriptions need."""
        assert self.calls
        assert {verb for verb, _ in self.calls} <= READS
        owned = (f"{GATEWAYS}/", subscriptions_folder(TOPIC))
        assert [call for call in self.calls if call[1].startswith(owned)] == []


@pytest.fixture
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    return made


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def greeted(client: RawClient) -> None:
    client.send(command(connect=Connect(client_version="test", protocol_version=19)))


def subscribe(kind: Subscribe.Type, number: int, *, durable: bool = False) -> BaseCommand:
    return command(
        subscribe=Subscribe(
            topic=NAME, subscription=f"s{number}", type=kind, consumer_id=number, request_id=number,
            durable=durable, initial_position=Subscribe.EARLIEST,
        )
    )  # fmt: skip


def test_readers_and_non_durable_subscriptions_write_nothing(archive: Archive) -> None:
    store, port = ReadOnlyStore(archive.store), free_port()
    before = dict(archive.store.backing.objects)
    with gateway(store, httpListen=f"127.0.0.1:{port}", **SHORT) as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest)
        assert [reader.read_next(PATIENCE).data() for _ in range(ENTRIES)] == [b"m%d" % n for n in range(ENTRIES)]
        assert not reader.has_message_available()
        reader.seek(pulsar.MessageId(-1, 10, 4, -1))
        assert reader.read_next(PATIENCE).data() == b"m5"
        with RawClient(url) as raw:
            greeted(raw)
            for question in questions(TOPIC):
                raw.send(question)
                raw.answer()
            for number, kind in enumerate(TYPES, 1):
                uses_a_consumer(raw, kind, number)
        assert httpx.get(f"http://127.0.0.1:{port}/lookup/v2/topic/{NAME.replace('://', '/')}").is_success
        client.close()
    store.check()
    assert archive.store.backing.objects == before


def uses_a_consumer(raw: RawClient, kind: Subscribe.Type, number: int) -> None:
    """All that a client does with one: takes, acknowledges in each way, asks for more, seeks and unsubscribes."""
    raw.send(subscribe(kind, number))
    assert raw.until("success").success.request_id == number
    raw.send(command(flow=Flow(consumer_id=number, permits=3)))
    taken = [raw.until("message").message.message_id for _ in range(3)]
    raw.send(command(ack=Ack(consumer_id=number, type=Ack.INDIVIDUAL, message_id=taken[:1], request_id=90)))
    assert not raw.until("ack_response").ack_response.HasField("error")
    raw.send(command(ack=Ack(consumer_id=number, type=Ack.CUMULATIVE, message_id=taken[1:2], request_id=91)))
    assert not raw.until("ack_response").ack_response.HasField("error")
    raw.send(command(redeliver_unacknowledged=RedeliverUnacknowledged(consumer_id=number)))
    raw.send(command(get_last_message_id=GetLastMessageId(consumer_id=number, request_id=92)))
    assert raw.until("get_last_message_id_response").get_last_message_id_response.last_message_id.entry_id == 59
    raw.send(command(consumer_stats=ConsumerStats(consumer_id=number, request_id=93)))
    raw.until("consumer_stats_response")
    raw.send(command(seek=Seek(consumer_id=number, request_id=94, message_id=MessageIdData(ledger_id=10, entry_id=0))))
    raw.until("success")
    raw.send(subscribe(kind, number))
    raw.until("success")
    raw.send(command(unsubscribe=Unsubscribe(consumer_id=number, request_id=95)))
    raw.until("success")


def test_a_durable_subscription_is_refused_in_one_line_that_names_the_option(archive: Archive) -> None:
    store = ReadOnlyStore(archive.store)
    with gateway(store, **SHORT) as url:
        with RawClient(url) as raw:
            greeted(raw)
            for number in (1, 2):
                raw.send(subscribe(Subscribe.SHARED, number, durable=True))
                refused = raw.answer().error
                assert refused.error == ErrorCode.NOT_ALLOWED
                assert refused.message == (
                    "this gateway has no durable subscriptions (gateway.durableSubscriptions is false): use a reader, "
                    "or a non-durable subscription"
                )
        client = connected(url)
        with pytest.raises(pulsar.NotAllowedError):
            client.subscribe(NAME, "s", initial_position=EARLIEST)
        client.close()
    assert {verb for verb, _ in store.calls} <= READS


def test_what_former_gateways_left_changes_nothing_and_is_not_changed(archive: Archive) -> None:
    """A topic that is another one's by its newest claim is served here; its subscription keeps its place."""
    with durable_gateway(archive.store, flushInterval="20ms") as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "mine", initial_position=EARLIEST)
        for _ in range(20):
            consumer.acknowledge(consumer.receive(PATIENCE))
        wait_until(lambda: mark_delete_of(archive.store, TOPIC, "mine") == Position(0, 10, 19))
        store = ReadOnlyStore(archive.store)
        with gateway(store, **SHORT) as here, RawClient(here) as raw:
            greeted(raw)
            raw.send(command(lookup=Lookup(topic=NAME, request_id=1)))
            assert raw.until("lookup_response").lookup_response.broker_service_url == here
            readers = connected(here)
            reader = readers.create_reader(NAME, pulsar.MessageId.earliest)
            assert len([reader.read_next(PATIENCE) for _ in range(ENTRIES)]) == ENTRIES
            readers.close()
        store.check()
        client.close()
    assert mark_delete_of(archive.store, TOPIC, "mine") == Position(0, 10, 19)


def test_new_segments_reach_readers_and_still_nothing_is_written(archive: Archive) -> None:
    store, entry = ReadOnlyStore(archive.store), ENTRIES
    with gateway(store, **SHORT) as url:
        client = connected(url)
        reader = client.create_reader(NAME, pulsar.MessageId.latest)
        assert not reader.has_message_available()
        for _ in range(3):
            archive.add([Stored(10, entry, message(f"m{entry}"))])
            assert reader.read_next(PATIENCE).data() == b"m%d" % entry
            entry += 1
        threading.Event().wait(0.3)  # rounds of every kind
        client.close()
    store.check()
