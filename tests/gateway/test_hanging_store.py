"""A store that never answers: whoever does not need it goes on, it is told, and a stop does not wait for it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import httpx
import pytest

from offloader._proto.pulsar_wire_pb2 import (
    Ack,
    Connect,
    Flow,
    GetLastMessageId,
    Lookup,
    MessageIdData,
    PartitionedMetadata,
    Seek,
    Subscribe,
)
from offloader.gateway import application as application_module
from offloader.gateway import telemetry as telemetry_module
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics import archive as archive_module
from offloader.gateway.topics import listings as listings_module
from offloader.gateway.topics import workers as workers_module
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import ErrorCode
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive, message
from tests.format.support import Stored
from tests.gateway.gateway import DEFAULT_LIMITS, durable_gateway, free_port
from tests.gateway.raw import PATIENCE, RawClient
from tests.gateway.topics.served import Served, archive_of, until, whole

T = TypeVar("T")
GOOD, BAD = TopicName("public", "default", "good"), TopicName("public", "default", "bad")
ENTRIES = 20
MANY = 20  # more than there are threads of a kind


class HangingStore(ForwardingStore):
    """`hangs`: which keys are not answered, until it is told to go on."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.hangs: Callable[[str], bool] = lambda _: False
        self.hanging = 0
        self._answers = threading.Event()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if self.hangs(key):
            self.hanging += 1
            self._answers.wait(4 * PATIENCE)
        return work()

    def go_on(self) -> None:
        self.hangs = lambda _: False
        self._answers.set()


@pytest.fixture
def store() -> Iterator[HangingStore]:
    found = HangingStore(MemoryStore())
    for topic in (GOOD, BAD):
        made = Archive(found, topic)
        made.claim(10, 0)
        made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    yield found
    found.go_on()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "Workers", partial(Workers, hangs=0.2))
    monkeypatch.setattr(application_module, "WRITES_WITHIN", 0.5)
    monkeypatch.setattr(application_module, "ENDS_WITHIN", 0.5)
    monkeypatch.setattr(telemetry_module, "TICK", 0.02)
    monkeypatch.setattr(telemetry_module, "HANGS", 0.5)
    monkeypatch.setattr(archive_module, "LIST_KEPT", 0.1)
    monkeypatch.setattr(listings_module, "LIST_KEPT", 0.1)
    monkeypatch.setattr(archive_module, "ROUND", 0.2)


def subscribe(topic: TopicName, number: int, *, durable: bool) -> Subscribe:
    return Subscribe(
        topic=str(topic), subscription=f"s{number}", type=Subscribe.SHARED, consumer_id=number, request_id=number,
        durable=durable, initial_position=1,
    )  # fmt: skip


@contextmanager
def client(url: str) -> Iterator[RawClient]:
    with RawClient(url) as found:
        found.socket.settimeout(20)
        found.send(command(connect=Connect(client_version="x", protocol_version=21)))
        assert found.command().HasField("connected")
        yield found


@pytest.mark.parametrize("durable", [True, False])
def test_a_topic_whose_objects_hang_hurts_no_other(
    store: HangingStore, quick: None, durable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    with durable_gateway(store, metricsListen=f"127.0.0.1:{port}") as url, client(url) as bad, client(url) as good:
        bad.send(command(partitioned_metadata=PartitionedMetadata(topic=str(BAD), request_id=1)))
        assert bad.until("partitioned_metadata_response")
        bad.send(command(subscribe=subscribe(BAD, 0, durable=durable)))
        assert bad.until("success")
        store.hangs = lambda key: "/bad/" in key
        for number in range(1, MANY):
            bad.send(command(subscribe=subscribe(BAD, number, durable=durable)))
            bad.send(command(flow=Flow(consumer_id=0, permits=10)))
            bad.send(command(lookup=Lookup(topic=str(BAD), request_id=1000 + number)))
        bad.send(command(ping={}))
        assert bad.until("pong")
        good.send(command(partitioned_metadata=PartitionedMetadata(topic=str(GOOD), request_id=1)))
        assert good.until("partitioned_metadata_response").partitioned_metadata_response.request_id == 1
        good.send(command(lookup=Lookup(topic=str(GOOD), request_id=2)))
        assert good.until("lookup_response").lookup_response.broker_service_url == url
        good.send(command(subscribe=subscribe(GOOD, 7, durable=durable)))
        assert good.until("success").success.request_id == 7
        good.send(command(flow=Flow(consumer_id=7, permits=ENTRIES)))
        for entry in range(ENTRIES):
            assert good.until("message").message.message_id.entry_id == entry
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as status:
            assert status.get("/healthz").is_success
            assert status.get("/readyz").is_success, "the rest of the store answers"
            assert status.get("/status").json()["topics"] == 2
        assert store.hanging >= 8
        until_time = time.monotonic() + 20
        while "in a thread" not in caplog.text:
            assert time.monotonic() < until_time
            time.sleep(0.02)
    assert {record.__dict__["see"] for record in caplog.records if "in a thread" in record.message} == {"gateway-hangs"}


def test_a_subscription_that_hangs_holds_up_no_other_of_its_topic(store: HangingStore, quick: None) -> None:
    with durable_gateway(store) as url, client(url) as bad, client(url) as good:
        store.hangs = lambda key: "/_subscriptions/s0/" in key
        bad.send(command(subscribe=subscribe(GOOD, 0, durable=True)))
        until_time = time.monotonic() + PATIENCE
        while not store.hanging:
            assert time.monotonic() < until_time
            time.sleep(0.02)
        good.send(command(subscribe=subscribe(GOOD, 7, durable=True)))
        assert good.until("success").success.request_id == 7
        store.go_on()
        assert bad.until("success").success.request_id == 0


def test_who_asks_often_for_what_hangs_is_told_and_heard(store: HangingStore, quick: None) -> None:
    with durable_gateway(store, limits=DEFAULT_LIMITS._replace(look=0.5)) as url, client(url) as one:
        store.hangs = lambda key: "/bad/" in key
        for number in range(2 * DEFAULT_LIMITS.requests):
            one.send(command(lookup=Lookup(topic=str(BAD), request_id=number)))
        one.send(command(ping={}))
        assert one.until("lookup_response").lookup_response.error == ErrorCode.METADATA
        assert one.until("pong")


@pytest.mark.parametrize(
    "path", ["/lookup/v2/topic/persistent/public/default/{}", "/admin/v2/schemas/public/default/{}/schema"]
)
def test_who_asks_by_http_for_what_hangs_is_told(store: HangingStore, quick: None, path: str) -> None:
    port, limits = free_port(), DEFAULT_LIMITS._replace(look=0.5)
    with durable_gateway(store, limits=limits, httpListen=f"127.0.0.1:{port}"):
        store.hangs = lambda key: "/bad/" in key
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as client:
            for _ in range(2):  # the connection goes on
                answer = client.get(path.format("bad"))
                assert (answer.status_code, answer.json()["reason"]) == (503, "the store has not answered within 0.5 s")
            assert client.get(path.format("good")).status_code != 503


def test_who_asks_often_for_the_last_message_that_hangs_is_told_and_heard(store: HangingStore, quick: None) -> None:
    with durable_gateway(store, limits=DEFAULT_LIMITS._replace(look=0.5)) as url, client(url) as one:
        one.send(command(subscribe=subscribe(BAD, 0, durable=False)))
        assert one.until("success")
        store.hangs = lambda key: "/bad/" in key
        for number in range(2 * DEFAULT_LIMITS.requests):
            one.send(command(get_last_message_id=GetLastMessageId(consumer_id=0, request_id=number)))
        one.send(command(ping={}))
        assert one.until("error").error.error == ErrorCode.NOT_READY
        assert one.until("pong")


def test_who_seeks_where_it_hangs_is_heard(store: HangingStore, quick: None) -> None:
    with durable_gateway(store) as url, client(url) as one:
        one.send(command(subscribe=subscribe(BAD, 0, durable=False)))
        assert one.until("success")
        store.hangs = lambda key: "/bad/" in key
        for number in range(2 * DEFAULT_LIMITS.requests):
            one.send(command(seek=Seek(consumer_id=0, request_id=number, message_publish_time=1)))
        one.send(command(ping={}))
        assert one.until("pong")


def test_who_waits_for_acknowledgements_that_hang_is_heard(store: HangingStore, quick: None) -> None:
    with durable_gateway(store, durableAcks=True, flushInterval="10m") as url, client(url) as one:
        one.send(command(subscribe=subscribe(BAD, 0, durable=True)))
        assert one.until("success")
        store.hangs = lambda key: "_subscriptions" in key
        for number in range(2 * DEFAULT_LIMITS.requests):
            ids = [MessageIdData(ledger_id=10, entry_id=number % ENTRIES)]
            one.send(command(ack=Ack(consumer_id=0, type=0, request_id=number, message_id=ids)))
        one.send(command(ping={}))
        assert one.until("pong")
        store.go_on()
        answered = {one.until("ack_response").ack_response.request_id for _ in range(2 * DEFAULT_LIMITS.requests)}
        assert answered == set(range(2 * DEFAULT_LIMITS.requests))


def test_a_store_that_hangs_as_a_whole_is_told_and_does_not_keep_a_gateway_from_ending(
    store: HangingStore, quick: None
) -> None:
    port = free_port()
    with durable_gateway(store, metricsListen=f"127.0.0.1:{port}", claimInterval="100ms") as url, client(url) as one:
        one.send(command(subscribe=subscribe(GOOD, 1, durable=True)))
        assert one.until("success")
        store.hangs = lambda _: True
        one.send(command(ping={}))
        assert one.until("pong")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20) as status:
            until_time = time.monotonic() + 20
            while status.get("/readyz").is_success:
                assert time.monotonic() < until_time
            assert "store: it has not answered" in status.get("/readyz").text
            assert status.get("/healthz").is_success
            while 'offloader_gateway_work_age_seconds{kind="know"} 0.0' in status.get("/metrics").text:
                assert time.monotonic() < until_time
        began = time.monotonic()
    assert time.monotonic() - began < 10


def test_what_hangs_counts_no_more_among_what_is_done_at_a_time() -> None:
    async def live() -> None:
        gate, workers = threading.Event(), Workers(2, hangs=0.1)
        try:
            hanging = [asyncio.create_task(workers.know(gate.wait)) for _ in range(6)]
            async with asyncio.timeout(20):
                assert await workers.read(lambda: "at once") == "at once"
                assert await workers.know(lambda: "later") == "later"
            assert workers.oldest()["know"] > 0.1
            assert await workers.ended(0.01) == 6
        finally:
            gate.set()
        await asyncio.gather(*hanging)
        assert await workers.ended(20) == 0
        workers.close()

    asyncio.run(live())


def test_so_many_hang_and_no_more_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MOST_HANGING", 3)

    async def live() -> None:
        gate, begun, workers = threading.Event(), list[int](), Workers(2, hangs=0.05)

        def hang() -> None:
            begun.append(1)
            gate.wait(PATIENCE)

        try:
            hanging = [asyncio.create_task(workers.know(hang)) for _ in range(20)]
            await until(lambda: len(begun) == 5)
            await asyncio.sleep(0.2)
            assert len(begun) == 5
        finally:
            gate.set()
        await asyncio.gather(*hanging)
        workers.close()

    asyncio.run(live())


def test_what_hangs_beyond_that_makes_room_once_less_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "MOST_HANGING", 3)

    async def live() -> None:
        short, long, begun, workers = threading.Event(), threading.Event(), list[int](), Workers(2, hangs=0.05)

        def hang() -> None:
            begun.append(1)
            (short if len(begun) <= 3 else long).wait(PATIENCE)

        try:
            hanging = [asyncio.create_task(workers.know(hang)) for _ in range(5)]
            await until(lambda: len(begun) == 5)
            await asyncio.sleep(0.2)
            short.set()
            async with asyncio.timeout(20):
                assert await workers.know(lambda: "later") == "later"
        finally:
            short.set()
            long.set()
        await asyncio.gather(*hanging)
        workers.close()

    asyncio.run(live())


def test_a_write_that_hangs_holds_up_no_other_subscription_of_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offloader.gateway.topics.archive.ROUND", 0.05)

    async def live() -> None:
        served, goes_on = Served(), threading.Event()
        archive = archive_of(served)
        for name in ("hangs", "other"):
            consumer = await served.subscribe(name)
            consumer.subscribed.acknowledge(whole((await consumer.has(3))[:1]))
        hanging, other = (served.topic.subscriptions[name] for name in ("hangs", "other"))
        monkeypatch.setattr(hanging._acks.cursor, "flush", lambda: goes_on.wait(4 * PATIENCE))
        try:
            for _ in range(3):
                other._acks.cursor.count_property("x", 1)
                async with asyncio.timeout(PATIENCE):
                    while other.changed:
                        assert await archive.flush() == []
            assert (hanging.changed, other.changed) == (True, False)
        finally:
            goes_on.set()
        monkeypatch.undo()
        assert await archive.flush(all_of_it=True) == []
        assert not hanging.changed
        served.close()

    asyncio.run(live())


def test_a_round_goes_on_with_the_other_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offloader.gateway.topics.archive.ROUND", 0.05)

    async def live() -> None:
        one, other = Served(), Served()
        archive = archive_of(one)
        archive.served[TopicName("public", "default", "other")] = other.topic
        for served in (one, other):
            consumer = await served.subscribe()
            consumer.subscribed.acknowledge([])
            served.topic.subscriptions["s"].acknowledge_up_to((10, 0), 0)
        one.store.gate.clear()
        try:
            for count in (1, 2, 3):
                before = other.store.writes
                other.topic.subscriptions["s"]._acks.cursor.count_property("x", 1)
                one.topic.subscriptions["s"]._acks.cursor.count_property("x", 1)
                async with asyncio.timeout(PATIENCE):
                    while other.topic.subscriptions["s"].changed:
                        assert await archive.flush() == []
                assert other.store.writes > before, count
        finally:
            one.store.gate.set()
        assert await archive.flush(all_of_it=True) == []
        assert not one.topic.subscriptions["s"].changed
        one.close()
        other.close()

    asyncio.run(live())


def test_names_that_nobody_resolves_keep_nobody_from_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_named: gate.wait(PATIENCE) and [])

    async def live() -> None:
        workers = Workers()
        gateways = LivingGateways(workers, answer_within=0.1)
        try:
            urls = [Address(f"pulsar://nobody{number}.example:1") for number in range(MANY)]
            assert not any(await asyncio.gather(*map(gateways.is_living, urls)))
            async with asyncio.timeout(20):
                assert await workers.match(lambda: True)
                assert await asyncio.to_thread(lambda: True), "asyncio's own threads are free"
        finally:
            gate.set()
        workers.close()

    asyncio.run(live())
