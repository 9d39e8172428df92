"""CONSUMER_STATS: what a consumer asks of itself, as brokers answer it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from offloader._proto.pulsar_wire_pb2 import ConsumerStats, ConsumerStatsResponse, Subscribe
from offloader.gateway.values import ErrorCode
from offloader.pulsar.commands import acknowledge_each, command, connect, flow
from offloader.storage.memory import MemoryStore
from tests.archive.messages.encoder import Producer, Sent, batch
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    archive = Archive(MemoryStore())
    archive.claim(10, 0)
    five = batch(Producer(), [Sent(b"%d" % number) for number in range(5)]).data
    archive.add([Stored(10, 0, five), *(Stored(10, entry, message(f"m{entry}")) for entry in range(1, 8))])
    with durable_gateway(archive.store) as url:
        yield url


def stats(client: RawClient, consumer: int = 1) -> ConsumerStatsResponse:
    client.send(command(consumer_stats=ConsumerStats(consumer_id=consumer, request_id=8)))
    return client.until("consumer_stats_response").consumer_stats_response


def subscribe(client: RawClient, kind: Subscribe.Type) -> None:
    asked = Subscribe(
        topic=str(TOPIC), subscription=f"s{kind}", type=kind, consumer_id=1, request_id=1, consumer_name="told",
        initial_position=Subscribe.EARLIEST,
    )  # fmt: skip
    client.send(connect("", b""), command(subscribe=asked))
    client.until("success")


def test_permits_what_is_unacknowledged_and_the_backlog(url: str) -> None:
    with RawClient(url) as client:
        subscribe(client, Subscribe.SHARED)
        client.send(flow(1, 3))
        place = client.until("message").message.message_id
        found = stats(client)
        assert found.available_permits == 2**64 - 2  # -2: an entry is not split
        assert (found.unacked_messages, found.message_backlog, found.blocked_on_unacked_messages) == (5, 8, False)
        client.send(acknowledge_each(1, 3, [place]))
        client.until("ack_response")
        found = stats(client)
        assert (found.unacked_messages, found.message_backlog) == (0, 7)


def test_who_it_is_and_since_when(url: str) -> None:
    with RawClient(url) as client:
        subscribe(client, Subscribe.EXCLUSIVE)
        found = stats(client)
        host, port = client.socket.getsockname()
        assert (found.consumer_name, found.type, found.address) == ("told", "Exclusive", f"/{host}:{port}")
        assert timedelta() <= datetime.now(UTC) - datetime.fromisoformat(found.connected_since) < timedelta(minutes=5)


def test_nobody_has_none(url: str) -> None:
    with RawClient(url) as client:
        client.send(connect("", b""))
        assert stats(client, 7).error_code == ErrorCode.CONSUMER_NOT_FOUND
