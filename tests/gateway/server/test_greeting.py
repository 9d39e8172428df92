"""What a client hears at first, and where its readers begin."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connect, Flow, MessageIdData, Subscribe
from offloader.pulsar.commands import command
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway

CONNECT = command(connect=Connect(client_version="x", protocol_version=21))
SOON = 0.3  # s within which what should not come would come


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(5)])
    with durable_gateway(made.store) as url:
        where = urlsplit(url)
        with socket.create_connection((where.hostname, where.port), timeout=20) as found:
            yield found


def heard(connection: socket.socket, count: int) -> list[BaseCommand]:
    """So many commands, and what comes soon behind them."""
    buffer, found = FrameBuffer(), list[BaseCommand]()
    while True:
        connection.settimeout(20 if len(found) < count else SOON)
        try:
            size = connection.recv_into(buffer.space())
        except TimeoutError:
            return found
        assert size, "the gateway closed the connection"
        buffer.received(size)
        found += [frame.command for frame in buffer.frames()]


def test_nothing_follows_connected_before_the_client_speaks(connection: socket.socket) -> None:
    """A Java client reads what is in the same packet in the midst of CONNECTED, and loses what that says."""
    connection.sendall(encode(CONNECT))
    (said,) = heard(connection, 1)
    assert said.connected.protocol_version == 21


@pytest.mark.parametrize("batch_index", [-1, 0, 3])
def test_a_reader_is_given_the_entry_that_it_names(connection: socket.socket, batch_index: int) -> None:
    """Whether it wants it, and which messages of it, is the client's own affair."""
    start = MessageIdData(ledger_id=10, entry_id=2, batch_index=batch_index)
    asked = Subscribe(
        topic=str(TOPIC), subscription="r", type=Subscribe.EXCLUSIVE, consumer_id=0, request_id=1, durable=False,
        start_message_id=start,
    )  # fmt: skip
    sent = [CONNECT, command(subscribe=asked), command(flow=Flow(consumer_id=0, permits=10))]
    connection.sendall(b"".join(map(encode, sent)))
    _, _, *messages = heard(connection, 5)
    assert [each.message.message_id.entry_id for each in messages] == [2, 3, 4]
