"""Who says nothing, takes nothing, or does it too slowly, ends; who is merely slow does not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple, cast

import httpx
import pytest

from offloader._proto.pulsar_wire_pb2 import Connect, Flow, Subscribe
from offloader.gateway.access.access import Anyone
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.limits import ClientBounds, ClientLimits, ConnectionLimits, LargeFrames, UnreadAnswers
from offloader.gateway.server.ports import ServedTopics
from offloader.gateway.traffic import ConnectionTraffic
from offloader.model import MIB
from offloader.pulsar.commands import command
from offloader.pulsar.frames import encode
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway, free_port
from tests.gateway.raw import RawClient

LIMITS = ConnectionLimits(handshake=0.4, ping=0.4, alive=0.4, idle=0.4)
HANGS = 120.0
LARGE, ENTRIES = 200_000, 150  # 30 MB: no socket's buffers take that
LOOKUP = f"/lookup/v2/topic/persistent/{TOPIC.namespace}/{TOPIC.name}"


class Site(NamedTuple):
    url: str
    http: int
    metrics: int

    def connections(self) -> int:
        return int(httpx.get(f"http://127.0.0.1:{self.metrics}/status", trust_env=False).json()["connections"])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("m" * LARGE)) for entry in range(ENTRIES)])
    http, metrics = free_port(), free_port()
    with durable_gateway(
        made.store, limits=LIMITS, httpListen=f"127.0.0.1:{http}", metricsListen=f"127.0.0.1:{metrics}"
    ) as url:
        yield Site(url, http, metrics)


def reading(client: RawClient) -> None:
    asked = Subscribe(
        topic=str(TOPIC), subscription="s", type=Subscribe.EXCLUSIVE, durable=False, consumer_id=0, request_id=1,
        initial_position=1,
    )  # fmt: skip
    client.send(command(connect=Connect(client_version="x", protocol_version=21)), command(subscribe=asked))
    client.until("success")
    client.send(command(flow=Flow(consumer_id=0, permits=1_000_000)))


def test_whoever_takes_nothing_ends(site: Site) -> None:
    with RawClient(site.url) as client:
        reading(client)
        client.until("message")
        until = time.monotonic() + 20
        while site.connections():
            assert time.monotonic() < until


def test_whoever_takes_slowly_and_says_nothing_stays(site: Site) -> None:
    """Its PONGs are read once it has taken what comes before: until then its taking is a sign of life."""
    until = time.monotonic() + HANGS
    while (pause := longest_pause_of_a_slow_client(site)) >= LIMITS.ping / 2:
        assert time.monotonic() < until, f"this machine let the client stand still for {pause:.1f} s each time"


def longest_pause_of_a_slow_client(site: Site) -> float:
    """It stays, unless the machine let it stand still for longer than it wanted: then nobody can say."""
    with RawClient(site.url) as client:
        reading(client)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        taken, longest = 0, 0.0
        began = last = time.monotonic()
        while last < began + 10 * LIMITS.ping and longest < LIMITS.ping / 2:
            try:
                found = client.socket.recv(300_000)
            except ConnectionResetError:
                found = b""
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            assert found or longest >= LIMITS.ping / 2
            taken += len(found)
            time.sleep(LIMITS.ping / 8)
        assert taken < LARGE * ENTRIES, "it was slow"
        connections = site.connections()
        longest = max(longest, time.monotonic() - last)
        assert connections == 1 or longest >= LIMITS.ping / 2
        return longest


def test_whoever_is_silent_ends_after_two_pings(site: Site) -> None:
    with RawClient(site.url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)))
        began = time.monotonic()
        assert client.ends()
        assert time.monotonic() - began > 2 * LIMITS.ping


def test_whoever_does_not_say_who_it_is_ends(site: Site) -> None:
    with RawClient(site.url) as client:
        assert client.ends()


def http_client(site: Site) -> socket.socket:
    return socket.create_connection(("127.0.0.1", site.http), timeout=20)


def ends(client: socket.socket) -> bool:
    try:
        while client.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "begin", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n", b"GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\n1"]
)
def test_whoever_does_not_end_its_request_of_http_ends(site: Site, begin: bytes) -> None:
    with closing(http_client(site)) as client:
        client.sendall(begin)
        assert ends(client)


def test_whoever_sends_its_request_byte_by_byte_does_not_win_time(site: Site) -> None:
    with closing(http_client(site)) as client:
        began = time.monotonic()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012 (until it does)
            for _ in range(1_000):
                client.sendall(b"G")
                time.sleep(0.02)
        assert time.monotonic() - began < 10


def test_whoever_asks_for_nothing_more_by_http_ends(site: Site) -> None:
    request = f"GET {LOOKUP} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    with closing(http_client(site)) as client:
        for _ in range(3):
            client.sendall(request)
            assert b"200" in client.recv(65_536)
        began = time.monotonic()
        assert ends(client)
        assert time.monotonic() - began > LIMITS.idle / 2


class Wire(asyncio.Transport):
    """Of which a test says how much waits for its socket."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.closed = 0, False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None: ...


@pytest.mark.parametrize("takes", [True, False])
def test_whoever_is_always_given_as_much_as_it_takes_is_not_idle(takes: bool) -> None:
    async def live() -> None:
        wire = Wire()
        large = LargeFrames(MIB)
        made = Connection(
            cast("ServedTopics", None), Anyone(), LIMITS._replace(ping=0.02), lambda _connection, _command: None,
            lambda _: None, ConnectionTraffic(), MIB, large, ClientLimits(ClientBounds(), list), UnreadAnswers(MIB),
        )  # fmt: skip
        made.connection_made(wire)
        data = encode(command(connect=Connect(client_version="x", protocol_version=21)))
        made.get_buffer(-1)[: len(data)] = data
        made.buffer_updated(len(data))
        wire.waiting = MIB
        made.write((bytes(MIB),), MIB)
        until = time.monotonic() + 0.5
        while time.monotonic() < until and not wire.closed:
            if takes:
                made.write((bytes(1000),), 1000)
            else:
                wire.waiting += 30  # what PINGs take
            await asyncio.sleep(0.005)
        assert wire.closed is not takes

    asyncio.run(live())
