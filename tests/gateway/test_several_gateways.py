"""Two gateways over one archive, and Pulsar's own Python client, which knows both addresses."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import pulsar
import pytest

from offloader._proto.pulsar_wire_pb2 import Subscribe
from offloader.gateway import application
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.pulsar.commands import command, connect
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.faulty import FaultyStore, StoreFault, StoreFaults
from tests.format.support import Stored
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient
from tests.gateway.test_stock_client import EARLIEST, NAME, PATIENCE, connected, nothing_more

ENTRIES = 200


@pytest.fixture
def archive() -> Archive:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, message(f"m{entry}")) for entry in range(ENTRIES)])
    return made


def both(*urls: str) -> str:
    return "pulsar://" + ",".join(url.removeprefix("pulsar://") for url in urls)


def claims(archive: Archive) -> int:
    """How often somebody has claimed the topic."""
    return ClaimLog(archive.store, lambda: "").newest_of_all().get(TOPIC, -1) + 1


def owner(archive: Archive) -> str:
    claim = ClaimLog(archive.store, lambda: "").newest(TOPIC)
    assert claim is not None
    return claim.address.url


@contextmanager
def taking(url: str, acknowledged: Counter[bytes], enough: threading.Event) -> Iterator[None]:
    """A consumer in a thread, which acknowledges what it gets."""
    client = connected(url)
    consumer = client.subscribe(
        NAME, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=EARLIEST, receiver_queue_size=5
    )

    def take() -> None:
        while not enough.is_set():
            try:
                got = consumer.receive(50)
                consumer.acknowledge(got)
            except pulsar.PulsarException:  # nothing came, or its gateway has gone meanwhile
                continue
            acknowledged[got.data()] += 1
            if len(acknowledged) == ENTRIES:
                enough.set()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
        client.close()


def test_clients_of_both_gateways_meet_at_one_and_nobody_takes_it_from_the_other(archive: Archive) -> None:
    acknowledged, enough = Counter[bytes](), threading.Event()
    with (
        durable_gateway(archive.store, claimInterval="50ms") as one,
        durable_gateway(archive.store, claimInterval="50ms") as two,
        taking(both(one, two), acknowledged, enough),
        taking(both(two, one), acknowledged, enough),
        taking(one, acknowledged, enough),
        taking(two, acknowledged, enough),
    ):
        assert enough.wait(60)
        assert claims(archive) == 1
    assert sum(acknowledged.values()) == ENTRIES  # one dispatcher has them all


def test_who_stops_hands_its_consumers_over_with_all_that_they_have_acknowledged(archive: Archive) -> None:
    with ExitStack() as one, ExitStack() as two:
        places = {place.enter_context(durable_gateway(archive.store)): place for place in (one, two)}
        client = connected(both(*places))
        consumer = client.subscribe(NAME, "s", initial_position=EARLIEST, receiver_queue_size=1)
        first = [consumer.receive(PATIENCE) for _ in range(50)]
        consumer.acknowledge_cumulative(first[-1])
        stopped = owner(archive)
        places.pop(stopped).close()
        rest = set[bytes]()
        while len(rest) < ENTRIES - 50:
            got = consumer.receive(PATIENCE)
            consumer.acknowledge(got)
            rest.add(got.data())
        assert rest == {b"m%d" % number for number in range(50, ENTRIES)}
        assert {owner(archive)} == set(places)
        client.close()


def test_consumers_go_on_at_the_gateway_that_reaches_the_store(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "AWAY", 0.5)
    monkeypatch.setattr(application, "WATCH_MS", 50)
    faults = StoreFaults()
    with (
        durable_gateway(FaultyStore(archive.store, faults), claimInterval="100ms", durableAcks=True) as one,
        durable_gateway(archive.store, claimInterval="100ms", durableAcks=True) as two,
    ):
        client = connected(one)
        client.subscribe(NAME, "other")  # so that the first one has the topic
        both_know = connected(both(one, two))
        consumer = both_know.subscribe(NAME, "s", initial_position=EARLIEST, receiver_queue_size=5)
        for number in range(20):
            got = consumer.receive(PATIENCE)
            assert got.data() == b"m%d" % number
            consumer.acknowledge(got)
        assert owner(archive) == one
        faults.add(StoreFault("*", times=10**9))
        until = time.monotonic() + 60
        while owner(archive) != two:
            assert time.monotonic() < until
            time.sleep(0.05)
        wanted = {b"m%d" % number for number in range(20, ENTRIES)}
        while wanted:
            got = consumer.receive(PATIENCE)
            with suppress(pulsar.PulsarException):  # of a message that the first one gave it, which comes again
                consumer.acknowledge(got)
                wanted.discard(got.data())
        faults.clear()
        client.close()
        both_know.close()


def test_readers_are_served_where_they_are_and_write_nothing(archive: Archive) -> None:
    with durable_gateway(archive.store) as one, durable_gateway(archive.store) as two:
        for url in (one, two):
            client = connected(url)
            reader = client.create_reader(NAME, pulsar.MessageId.earliest)
            assert reader.read_next(PATIENCE).data() == b"m0"
            client.close()
        assert claims(archive) == 0


def test_a_subscription_at_another_gateway_goes_on_where_it_was(archive: Archive) -> None:
    with (
        durable_gateway(archive.store, durableAcks=True) as one,
        durable_gateway(archive.store, durableAcks=True) as two,
    ):
        for url, part in ((one, range(10)), (two, range(10, 20))):
            client = connected(url)
            consumer = client.subscribe(NAME, "s", initial_position=EARLIEST)
            for number in part:
                got = consumer.receive(PATIENCE)
                assert got.data() == b"m%d" % number
                consumer.acknowledge(got)
            client.close()
        assert owner(archive) == one
        assert claims(archive) == 1
        client = connected(two)
        consumer = client.subscribe(NAME, "s")
        for number in range(20, ENTRIES):
            got = consumer.receive(PATIENCE)
            assert got.data() == b"m%d" % number
            consumer.acknowledge(got)
        assert nothing_more(consumer)
        client.close()


def test_whoever_subscribes_where_another_one_was_faster_is_subscribed_there(archive: Archive) -> None:
    with durable_gateway(archive.store) as one, durable_gateway(archive.store) as two:
        first = connected(one)
        first.subscribe(NAME, "s", consumer_type=pulsar.ConsumerType.Shared)
        asked = Subscribe(topic=NAME, subscription="s", type=Subscribe.SHARED, consumer_id=7, request_id=1)
        with RawClient(two) as client:
            client.send(connect("", b""), command(subscribe=asked))
            assert client.answer().success.request_id == 1
            assert client.answer().close_consumer.consumer_id == 7
        first.close()


def test_clients_that_subscribe_at_the_same_time_at_both_all_get_there(archive: Archive) -> None:
    with durable_gateway(archive.store) as one, durable_gateway(archive.store) as two, ThreadPoolExecutor(6) as pool:
        clients = [connected(both(*order)) for _ in range(3) for order in ((one, two), (two, one))]
        shared = pulsar.ConsumerType.Shared
        subscribing = [pool.submit(client.subscribe, NAME, "s", consumer_type=shared) for client in clients]
        consumers = [one.result(60) for one in subscribing]
        until = time.monotonic() + 60
        while not all(consumer.is_connected() for consumer in consumers):
            assert time.monotonic() < until
            time.sleep(0.02)
        assert claims(archive) == 1
        for client in clients:
            client.close()
