"""What a hostile client sends ends its own connection at most."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pulsar
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    BaseCommand,
    CloseConsumer,
    Connect,
    ConsumerStats,
    Flow,
    GetLastMessageId,
    GetSchema,
    GetTopicsOfNamespace,
    Lookup,
    MessageIdData,
    PartitionedMetadata,
    Producer,
    RedeliverUnacknowledged,
    Seek,
    Subscribe,
    Unsubscribe,
    WatchTopicList,
)
from offloader.pulsar.commands import command
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway

NAME = str(TOPIC)
CONNECT = encode(command(connect=Connect(client_version="x", protocol_version=21)))
SUBSCRIBE = command(
    subscribe=Subscribe(
        topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=0, request_id=1, initial_position=1
    )
)
ANYWHERE = MessageIdData(ledger_id=2**64 - 1, entry_id=2**64 - 1, ack_set=[-1, 7], batch_size=-3)
STRANGE = [
    SUBSCRIBE,
    command(flow=Flow(consumer_id=0, permits=2**32 - 1)),
    command(flow=Flow(consumer_id=77, permits=1)),
    command(ack=Ack(consumer_id=0, type=0, request_id=1, message_id=[ANYWHERE] * 3)),
    command(ack=Ack(consumer_id=0, type=1, request_id=1, message_id=[ANYWHERE])),
    command(ack=Ack(consumer_id=0, type=0, request_id=1, txnid_least_bits=1)),
    command(redeliver_unacknowledged=RedeliverUnacknowledged(consumer_id=0, message_ids=[ANYWHERE])),
    command(seek=Seek(consumer_id=0, request_id=2)),
    command(seek=Seek(consumer_id=0, request_id=2, message_id=ANYWHERE)),
    command(seek=Seek(consumer_id=0, request_id=2, message_publish_time=2**64 - 1)),
    command(get_last_message_id=GetLastMessageId(consumer_id=9, request_id=3)),
    command(unsubscribe=Unsubscribe(consumer_id=9, request_id=3)),
    command(close_consumer=CloseConsumer(consumer_id=9, request_id=3)),
    command(consumer_stats=ConsumerStats(consumer_id=0, request_id=3)),
    command(producer=Producer(topic=NAME, producer_id=1, request_id=4)),
    command(lookup=Lookup(topic="a/b/c/d://", request_id=5)),
    command(lookup=Lookup(topic="persistent://a", request_id=5)),
    command(partitioned_metadata=PartitionedMetadata(topic="non-persistent://a/b/c", request_id=5)),
    command(get_schema=GetSchema(topic="", request_id=6, schema_version=b"\xff" * 100)),
    command(get_topics_of_namespace=GetTopicsOfNamespace(namespace="/", request_id=7, topics_pattern="(")),
    command(watch_topic_list=WatchTopicList(namespace="a/b", watcher_id=1, request_id=7, topics_pattern="[")),
    BaseCommand(type=9999),
    BaseCommand(type=4),
]


class Told(logging.Handler):
    """Errors of the gateway."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(f"{record.getMessage()} {record.exc_info}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(20)])
    told = Told()
    logging.getLogger("offloader.gateway").addHandler(told)
    with durable_gateway(made.store) as found:
        yield found
    logging.getLogger("offloader.gateway").removeHandler(told)
    assert told.errors == [], "nothing that a client sends is a defect of ours"


@pytest.fixture(scope="module")
def neighbour(url: str) -> Iterator[pulsar.Client]:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def send(url: str, data: bytes) -> socket.socket:
    where = urlsplit(url)
    connection = socket.create_connection((where.hostname, where.port), timeout=20)
    connection.sendall(data)
    return connection


def serves(neighbour: pulsar.Client) -> bool:
    reader = neighbour.create_reader(NAME, pulsar.MessageId.earliest)
    found = reader.read_next(20_000).data() == b"m0"
    reader.close()
    return found


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.booleans())
@example(b"\xff\xff\xff\xff\x00\x00\x00\x04", True)
@example(b"\x00\x00\x00\x04\x00\x00\x00\x09", False)
def test_bytes_that_are_no_frames(url: str, neighbour: pulsar.Client, data: bytes, connects: bool) -> None:
    with send(url, (CONNECT if connects else b"") + data):
        assert serves(neighbour)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(STRANGE), max_size=12))
@example(STRANGE)
@example([SUBSCRIBE, *STRANGE])
def test_commands_that_make_no_sense(url: str, neighbour: pulsar.Client, sent: list[BaseCommand]) -> None:
    ping = command(ping={})
    with send(url, CONNECT + b"".join(map(encode, [*sent, ping]))) as connection:
        heard = FrameBuffer()
        pongs = 0
        while not pongs:  # all of them were taken, and nobody fell over
            count = connection.recv_into(heard.space())
            assert count, "the gateway closed the connection"
            heard.received(count)
            pongs += sum(frame.command.HasField("pong") for frame in heard.frames())
        assert serves(neighbour)


def test_whoever_does_not_begin_with_connect_is_sent_away(url: str) -> None:
    with send(url, encode(SUBSCRIBE)) as connection:
        assert connection.recv(100) == b""
