"""Whoever floods the gateway waits for itself: another client goes on meanwhile."""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    BaseCommand,
    CloseConsumer,
    Connect,
    Flow,
    GetTopicsOfNamespace,
    Lookup,
    MessageIdData,
    PartitionedMetadata,
    RedeliverUnacknowledged,
    Subscribe,
    WatchTopicList,
)
from offloader.gateway.values import ErrorCode
from offloader.model import MIB
from offloader.pulsar.commands import command
from offloader.pulsar.frames import encode
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.examples import few
from tests.format.support import Stored
from tests.gateway.gateway import DEFAULT_LIMITS, durable_gateway, free_port
from tests.gateway.raw import RawClient

NAME = str(TOPIC)
CONNECT = command(connect=Connect(client_version="x", protocol_version=21))
PING = command(ping={})
LAST = command(close_consumer=CloseConsumer(consumer_id=10**6, request_id=10**6))
LARGE = 200_000  # bytes of a message
ENTRIES = 100


class Site(NamedTuple):
    url: str
    status_url: str

    def buffered(self) -> int:
        with urllib.request.urlopen(self.status_url, timeout=20) as found:
            return json.load(found)["buffered"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("m" * LARGE)) for entry in range(ENTRIES)])
    port = free_port()
    with durable_gateway(made.store, metricsListen=f"127.0.0.1:{port}", memory="16M") as url:
        yield Site(url, f"http://127.0.0.1:{port}/status")


class Flood:
    """Sends all of it, and takes every answer, in threads of its own."""

    def __init__(self, url: str, commands: Sequence[BaseCommand]) -> None:
        self.client = RawClient(url)
        self.client.send(CONNECT)
        self.answered = threading.Event()
        self._data = b"".join(map(encode, [*commands, LAST]))
        self._asked = {one.subscribe.request_id for one in commands if one.HasField("subscribe")}
        self._asked.add(LAST.close_consumer.request_id)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._send, self._take)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        with suppress(OSError):
            self.client.socket.sendall(self._data)

    def _take(self) -> None:
        try:
            while self._asked:
                self._asked.discard(self.client.until("success").success.request_id)
            self.answered.set()
        except (OSError, EOFError):
            pass

    def end(self) -> None:
        self.client.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self.client.socket.close()


@contextmanager
def flood(site: Site, commands: Sequence[BaseCommand]) -> Iterator[Flood]:
    found = Flood(site.url, commands)
    try:
        yield found
    finally:
        found.end()


def subscribe(number: int, subscription: str = "", **more: object) -> BaseCommand:
    return command(
        subscribe=Subscribe(
            topic=NAME, subscription=subscription or f"flood-{number}", type=Subscribe.SHARED, durable=False,
            consumer_id=number, request_id=number, initial_position=1, **more,
        )
    )  # fmt: skip


def everywhere(count: int) -> list[MessageIdData]:
    return [MessageIdData(ledger_id=10, entry_id=entry) for entry in range(count)]


def watchers(count: int) -> list[BaseCommand]:
    return [
        command(
            watch_topic_list=WatchTopicList(namespace=TOPIC.namespace, watcher_id=n, request_id=n, topics_pattern=".*")
        )
        for n in range(count)
    ]


FLOODS: dict[str, Callable[[], list[BaseCommand]]] = {
    "pings": lambda: [PING] * 200_000,
    "lookups": lambda: [command(lookup=Lookup(topic=NAME, request_id=n)) for n in range(50_000)],
    "unknown topics": lambda: [
        command(partitioned_metadata=PartitionedMetadata(topic=f"a/b/t{n}", request_id=n)) for n in range(50_000)
    ],
    "patterns": lambda: [
        command(
            get_topics_of_namespace=GetTopicsOfNamespace(
                namespace=TOPIC.namespace, request_id=n, topics_pattern="((.?){10}){100}(.?){1000}y|(a+)+x"
            )
        )
        for n in range(20_000)
    ],
    "watchers": lambda: watchers(20_000),
    "acknowledgements": lambda: [
        subscribe(0),
        *[command(ack=Ack(consumer_id=0, type=0, message_id=everywhere(100_000)))] * 20,
    ],
    "redeliveries": lambda: [
        subscribe(0),
        *[command(redeliver_unacknowledged=RedeliverUnacknowledged(consumer_id=0, message_ids=everywhere(100_000)))]
        * 20,
    ],
    "consumers": lambda: [subscribe(number) for number in range(2_000)],
    "the same consumer": lambda: [subscribe(0)] * 50_000,
}


@pytest.mark.parametrize("name", few([*FLOODS], 4))
def test_another_client_goes_on(site: Site, name: str) -> None:
    with flood(site, FLOODS[name]()) as hostile, RawClient(site.url) as good:
        good.send(CONNECT)
        for number in range(3):
            good.send(command(lookup=Lookup(topic=NAME, request_id=number)))
            assert good.answer().lookup_response.broker_service_url == site.url
        assert not hostile.answered.is_set(), "it did not have to wait for the flood"
        good.send(subscribe(0, "good"))
        assert good.until("success")
        good.send(command(flow=Flow(consumer_id=0, permits=1)))
        good.until("message")


def test_whoever_takes_nothing_holds_little_and_hurts_nobody(site: Site) -> None:
    with RawClient(site.url) as slow:
        slow.send(CONNECT, subscribe(0, "slow"), command(flow=Flow(consumer_id=0, permits=1_000_000)))
        slow.until("message")
        quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        client = pulsar.Client(site.url, logger=quiet)
        reader = client.create_reader(NAME, pulsar.MessageId.earliest, receiver_queue_size=5)
        for _ in range(ENTRIES):
            assert len(reader.read_next(20_000).data()) == LARGE
            assert site.buffered() < 4 * MIB
        client.close()


def test_whoever_asks_and_does_not_take_the_answers_is_not_read_any_more(site: Site) -> None:
    asked = command(get_topics_of_namespace=GetTopicsOfNamespace(namespace=TOPIC.namespace, request_id=1))
    with RawClient(site.url) as greedy:
        greedy.send(CONNECT)
        greedy.socket.settimeout(1)
        with pytest.raises(TimeoutError):  # its own socket is full
            greedy.send(*[asked] * 1_000_000)
        assert site.buffered() < 4 * MIB


def test_a_connection_has_so_many_watchers_and_no_more(site: Site) -> None:
    with RawClient(site.url) as client:
        client.send(CONNECT, *watchers(DEFAULT_LIMITS.watchers + 1))
        answers = [client.answer() for _ in range(DEFAULT_LIMITS.watchers + 1)]
    assert [one.error.error for one in answers if one.HasField("error")] == [ErrorCode.TOO_MANY_REQUESTS]


def test_nothing_large_is_taken_of_whoever_is_unknown(site: Site) -> None:
    with RawClient(site.url) as client:
        client.socket.sendall((MIB).to_bytes(4, "big") + b"\0" * 100)
        assert client.ends()


def test_strangers_make_room() -> None:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message("m")) for entry in range(3)])
    with durable_gateway(made.store, connections=5) as url:
        where = urlsplit(url)
        with RawClient(url) as known:
            known.send(CONNECT)
            assert known.until("connected")
            strangers = [socket.create_connection((where.hostname, where.port), timeout=20) for _ in range(50)]
            client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
            assert client.create_reader(NAME, pulsar.MessageId.earliest).read_next(20_000).data() == b"m"
            known.send(PING)
            assert known.until("pong"), "whoever has said who it is stays"
            client.close()
        for stranger in strangers:
            stranger.close()
