"""Finding a topic's broker: redirects, proxies, several hosts, remembered answers."""

import dataclasses
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from offloader.errors import BrokerUnavailableError, ProtocolError, TopicMovedError, TopicNotFoundError
from offloader.model import TopicName
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from tests.pulsar import fake_broker as fake
from tests.pulsar.fake_broker import FakeBroker

MAX_REDIRECTS = 20

TOPIC = TopicName.parse("public/ns/t")


@pytest.fixture
def other():
    broker = FakeBroker()
    yield broker
    broker.close()


@pytest.fixture
def lookup(settings):
    pool = ConnectionPool(settings)
    yield TopicLookup(pool)
    pool.close()


def redirect(url, *, kind=0, **fields):
    def react(peer, c):
        peer.send(
            lookup_response={"request_id": c.lookup.request_id, "response": kind, "broker_service_url": url, **fields}
        )

    return react


def test_a_redirect_is_followed_with_its_authority(broker, other, lookup):
    broker.on(fake.LOOKUP, redirect(other.url, authoritative=True))
    assert lookup.connection(TOPIC).name == str(other.address)
    assert other.wait_for(fake.LOOKUP).lookup.authoritative
    assert not broker.wait_for(fake.LOOKUP).lookup.authoritative


def test_redirects_without_end_are_given_up(broker, lookup):
    broker.on(fake.LOOKUP, redirect(broker.url))
    with pytest.raises(BrokerUnavailableError, match="in a row"):
        lookup.connection(TOPIC)
    assert len(broker.received(fake.LOOKUP)) == MAX_REDIRECTS


def test_behind_a_proxy_the_connection_goes_through_it(broker, lookup):
    broker.on(fake.LOOKUP, redirect("pulsar://inner:6650", kind=1, proxy_through_service_url=True))
    lookup.connection(TOPIC)
    assert broker.wait_for(fake.CONNECT, 2).connect.proxy_to_broker_url == "inner:6650"


def test_an_answer_is_remembered_until_it_is_forgotten(broker, lookup):
    assert lookup.connection(TOPIC) is lookup.connection(TOPIC)
    assert len(broker.received(fake.LOOKUP)) == 1
    lookup.forget(TOPIC)
    lookup.connection(TOPIC)
    assert len(broker.received(fake.LOOKUP)) == 2


def test_a_broker_that_is_gone_is_looked_up_again_by_the_next_call(broker, other, lookup):
    broker.on(fake.LOOKUP, redirect(other.url, kind=1))
    connection = lookup.connection(TOPIC)
    other.close()
    connection.close()
    with pytest.raises(BrokerUnavailableError):
        lookup.connection(TOPIC)
    broker.on(fake.LOOKUP, fake.found)
    assert lookup.connection(TOPIC).name == str(broker.address)


def test_a_failed_lookup_is_typed(broker, lookup):
    broker.on(fake.LOOKUP, redirect("", kind=2, error=11, message="not here"))
    with pytest.raises(TopicNotFoundError, match=r"looking up persistent://public/ns/t: .*not here"):
        lookup.connection(TOPIC)


def test_an_answer_without_a_broker_is_none(broker, lookup):
    broker.on(fake.LOOKUP, redirect("", kind=1))
    with pytest.raises(ProtocolError, match="named none"):
        lookup.connection(TOPIC)


def test_partitions(broker, lookup):
    assert lookup.partitions(TOPIC) == 4
    broker.on(fake.PARTITIONED_METADATA, fake.fail("partitioned_metadata", 4))
    with pytest.raises(Exception, match="AuthorizationError"):
        lookup.partitions(TOPIC)


def test_hosts_are_tried_in_turn_and_the_one_that_answers_is_kept(broker, settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    pool = ConnectionPool(dataclasses.replace(settings, service_url=f"pulsar://{dead},{broker.address}"))
    try:
        address, connection = pool.service()
        assert address.host == broker.address
        assert pool.service() == (address, connection)
    finally:
        pool.close()


def two_hosts(impatient, broker, other):
    return dataclasses.replace(impatient, service_url=f"pulsar://{broker.address},{other.address}")


@pytest.mark.parametrize("kind", [fake.LOOKUP, fake.PARTITIONED_METADATA])
def test_a_host_that_takes_connections_and_answers_no_question_is_left_for_the_next(broker, other, impatient, kind):
    broker.ignore(kind)
    pool = ConnectionPool(two_hosts(impatient, broker, other))
    lookup = TopicLookup(pool)
    ask = lookup.partitions if kind == fake.PARTITIONED_METADATA else lookup.connection
    try:
        for topic in (TOPIC, TopicName.parse("public/ns/u")):
            ask(topic)
        assert len(broker.received(kind)) == 1
        assert len(other.received(kind)) == 2
    finally:
        pool.close()


def test_where_no_host_answers_a_question_each_is_asked_once(broker, other, impatient):
    broker.ignore(fake.LOOKUP)
    other.ignore(fake.LOOKUP)
    pool = ConnectionPool(two_hosts(impatient, broker, other))
    try:
        with pytest.raises(
            BrokerUnavailableError, match=f"{broker.address}.*; .*{other.address} did not answer within"
        ):
            TopicLookup(pool).connection(TOPIC)
        assert len(broker.received(fake.LOOKUP)) == len(other.received(fake.LOOKUP)) == 1
    finally:
        pool.close()


def test_what_a_host_says_of_a_topic_no_other_is_asked(broker, other, impatient):
    broker.on(fake.LOOKUP, redirect("", kind=2, error=11, message="not here"))
    pool = ConnectionPool(two_hosts(impatient, broker, other))
    try:
        with pytest.raises(TopicNotFoundError):
            TopicLookup(pool).connection(TOPIC)
        assert not other.received(fake.LOOKUP)
    finally:
        pool.close()


def test_a_host_that_is_not_ready_to_tell_is_left_for_the_next(broker, other, impatient):
    broker.on(fake.LOOKUP, redirect("", kind=2, error=6, message="no metadata"))
    other.on(fake.LOOKUP, redirect("", kind=2, error=6, message="none here either"))
    pool = ConnectionPool(two_hosts(impatient, broker, other))
    try:
        with pytest.raises(TopicMovedError, match=r"no metadata.*; .*none here either"):
            TopicLookup(pool).connection(TOPIC)
    finally:
        pool.close()


def test_without_a_living_host_each_one_is_named(settings):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
    pool = ConnectionPool(dataclasses.replace(settings, service_url=f"pulsar://{dead},{dead}"))
    with pytest.raises(BrokerUnavailableError, match=f"{dead}.*; .*{dead}"):
        pool.service()


def test_who_waits_for_a_broker_that_cannot_be_reached_waits_for_one_attempt_together(settings, monkeypatch):
    callers, asked, opened = 8, threading.Semaphore(0), list[int]()

    def clock():
        asked.release()
        return time.monotonic()

    def unreachable(*_):
        if not opened:
            assert all(asked.acquire(timeout=60) for _ in range(callers))
        opened.append(1)
        raise BrokerUnavailableError("its packets are dropped")

    monkeypatch.setattr(BrokerConnection, "open", unreachable)
    pool = ConnectionPool(settings, clock)
    with ThreadPoolExecutor(callers) as threads:
        errors = [threads.submit(pool.service).exception for _ in range(callers)]
        assert {str(error()) for error in errors} == {"its packets are dropped"}
    assert len(opened) == 1
    with pytest.raises(BrokerUnavailableError):  # who comes later tries again
        pool.service()
    assert len(opened) == 2


def test_a_closed_pool_connects_no_more(settings):
    pool = ConnectionPool(settings)
    pool.close()
    with pytest.raises(BrokerUnavailableError, match="were closed"):
        pool.service()


def test_a_dead_connection_is_replaced(broker, settings):
    pool = ConnectionPool(settings)
    try:
        address, first = pool.service()
        first.close()
        assert pool.get(address) is not first
        assert pool.get(address).alive
    finally:
        pool.close()
