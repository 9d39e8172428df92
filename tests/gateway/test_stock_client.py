"""Pulsar's own Python client reads an archive through the gateway, as from a broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pulsar
import pytest

from offloader.storage.memory import MemoryStore
from tests.archive.messages.encoder import Producer, Sent, batch
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway

NAME = str(TOPIC)
ENTRIES = 300
EARLIEST = pulsar.InitialPosition.Earliest
PATIENCE = 60_000  # ms, for hanging


@pytest.fixture
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    return made


@pytest.fixture
def client(archive: Archive) -> Iterator[pulsar.Client]:
    with durable_gateway(archive.store) as url:
        found = connected(url)
        yield found
        found.close()


def connected(url: str) -> pulsar.Client:
    return pulsar.Client(url, operation_timeout_seconds=20, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def received(consumer: pulsar.Consumer, count: int) -> list[bytes]:
    return [consumer.receive(PATIENCE).data() for _ in range(count)]


def nothing_more(consumer: pulsar.Consumer) -> bool:
    try:
        consumer.receive(300)
    except pulsar.Timeout:
        return True
    return False


def test_a_reader_reads_all_of_it_in_order(client: pulsar.Client) -> None:
    reader = client.create_reader(NAME, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(PATIENCE))
    assert [one.data() for one in found] == [b"m%d" % n for n in range(ENTRIES)]
    assert [(one.message_id().ledger_id(), one.message_id().entry_id()) for one in found[:2]] == [(10, 0), (10, 1)]


def test_a_reader_begins_behind_an_id(client: pulsar.Client) -> None:
    at = client.create_reader(NAME, pulsar.MessageId(-1, 10, 99, -1))
    assert at.read_next(PATIENCE).data() == b"m100"


def test_a_reader_at_the_end_gets_what_is_sealed_later(client: pulsar.Client, archive: Archive) -> None:
    reader = client.create_reader(NAME, pulsar.MessageId.latest)
    assert not reader.has_message_available()
    archive.add([Stored(10, ENTRIES, message("late"))])
    assert reader.read_next(PATIENCE).data() == b"late"


def test_a_durable_subscription_with_holes_goes_on_in_another_gateway(archive: Archive) -> None:
    shared = pulsar.ConsumerType.Shared
    with durable_gateway(archive.store, durableAcks=True) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "mine", consumer_type=shared, initial_position=EARLIEST)
        for number in range(100):
            got = consumer.receive(PATIENCE)
            if number % 3:
                consumer.acknowledge(got)
        client.close()
    with durable_gateway(archive.store) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "mine", consumer_type=shared)
        wanted = [number for number in range(ENTRIES) if number >= 100 or not number % 3]
        assert sorted(received(consumer, len(wanted))) == sorted(b"m%d" % number for number in wanted)
        assert nothing_more(consumer)
        client.close()


def test_what_one_consumer_leaves_the_other_gets(client: pulsar.Client) -> None:
    shared = pulsar.ConsumerType.Shared
    one = client.subscribe(NAME, "s", consumer_type=shared, initial_position=EARLIEST, receiver_queue_size=10)
    first = received(one, 5)
    other = client.subscribe(NAME, "s", consumer_type=shared, receiver_queue_size=10)
    one.close()
    rest = []
    for _ in range(ENTRIES):
        got = other.receive(PATIENCE)
        other.acknowledge(got)
        rest.append(got.data())
    assert sorted(rest) == sorted(b"m%d" % n for n in range(ENTRIES))
    assert set(first) <= set(rest)


def test_a_second_exclusive_consumer_is_refused(client: pulsar.Client) -> None:
    client.subscribe(NAME, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(NAME, "s")


def test_negative_acknowledgements_come_again_and_say_so(client: pulsar.Client) -> None:
    consumer = client.subscribe(
        NAME, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=EARLIEST,
        negative_ack_redelivery_delay_ms=100, receiver_queue_size=1,
    )  # fmt: skip
    first = consumer.receive(PATIENCE)
    consumer.negative_acknowledge(first)
    while (got := consumer.receive(PATIENCE)).data() != b"m0":
        consumer.acknowledge(got)
    assert got.redelivery_count() == 1


def test_seeking_to_a_message_and_to_a_time(client: pulsar.Client) -> None:
    consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
    received(consumer, 250)
    consumer.seek(pulsar.MessageId(-1, 10, 17, -1))
    assert received(consumer, 1) in ([b"m17"], [b"m18"])  # inclusive or not: the client decides that
    consumer.seek(1)
    assert received(consumer, 2) == [b"m0", b"m1"]


def test_messages_of_a_batch_are_acknowledged_one_by_one(archive: Archive) -> None:
    messages = batch(Producer(), [Sent(b"b%d" % number) for number in range(10)])
    archive.add([Stored(10, ENTRIES, messages.data)])
    arguments = {
        "consumer_type": pulsar.ConsumerType.Shared,
        "initial_position": EARLIEST,
        "batch_index_ack_enabled": True,
    }
    with durable_gateway(archive.store) as url:
        client = connected(url)
        consumer = client.subscribe(NAME, "s", **arguments)
        for got in (consumer.receive(PATIENCE) for _ in range(ENTRIES + 10)):
            if got.data() not in (b"b3", b"b7"):
                consumer.acknowledge(got)
        consumer.close()
        again = client.subscribe(NAME, "s", **arguments)
        assert received(again, 2) == [b"b3", b"b7"]
        assert nothing_more(again)
        client.close()


def test_a_pattern_of_topics(client: pulsar.Client) -> None:
    consumer = client.subscribe(re.compile("persistent://public/default/.*"), "s", initial_position=EARLIEST)
    assert received(consumer, 2) == [b"m0", b"m1"]


def test_nobody_can_produce_and_what_is_not_archived_is_not_found(client: pulsar.Client) -> None:
    with pytest.raises(pulsar.NotAllowedError):
        client.create_producer(NAME)
    with pytest.raises(pulsar.TopicNotFound):
        client.subscribe("nothing", "s")


def test_a_subscription_that_was_deleted_begins_anew(client: pulsar.Client) -> None:
    consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
    consumer.acknowledge_cumulative(consumer.receive(PATIENCE))
    consumer.unsubscribe()
    again = client.subscribe(NAME, "s", initial_position=EARLIEST)
    assert received(again, 1) == [b"m0"]
