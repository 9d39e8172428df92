"""Where a namespace does not allow exclusive subscriptions, others may attach: nothing is done while one has."""

from __future__ import annotations

import dataclasses
from contextlib import closing

import pytest

from offloader.errors import (
    BrokerUnavailableError,
    NotAllowedError,
    OffloadError,
    OvertakenError,
    SubscriptionBusyError,
)
from offloader.model import Position, TopicName
from offloader.ports.pins import TopicEnd
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from tests.pulsar import fake_broker as fake
from tests.pulsar.test_rest import FakeAdmin

TOPIC = TopicName.parse("public/ns/t0")
STATS = "/admin/v2/persistent/public/ns/t0/stats"
EXCLUSIVE, FAILOVER, NOT_ALLOWED = 0, 2, 22


@pytest.fixture
def admin():
    with closing(FakeAdmin()) as admin:
        yield admin


@pytest.fixture
def restricted(broker, admin, settings):
    """Settings of a broker that allows no exclusive subscription; `stats` show the token as the only consumer."""

    def subscribed(peer, c):
        react = fake.fail("subscribe", NOT_ALLOWED) if c.subscribe.type == EXCLUSIVE else fake.succeed("subscribe")
        react(peer, c)

    broker.on(fake.SUBSCRIBE, subscribed)
    report(admin, "token")
    return dataclasses.replace(settings, admin_url=f"http://{admin.host}", application="app")


def report(admin, *tokens: str) -> None:
    """Let `stats` show these consumers of the subscription; those that are not ours bring no token."""
    consumers = [
        {"consumerName": "app", "metadata": {"offloader": token}} if token else {"consumerName": "stranger"}
        for token in tokens
    ]
    admin.on(STATS, {"subscriptions": {"__offloader": {"type": "Failover", "consumers": consumers}}})


def pins_of(settings, check_journal=lambda: None) -> closing[BrokerPins]:
    return closing(BrokerPins(settings, lambda: "token", check_journal))


def types(broker) -> list[int]:
    return [c.subscribe.type for c in broker.received(fake.SUBSCRIBE)]


def test_exclusive_stays_the_default_and_needs_no_proof(broker, admin, settings) -> None:
    def unasked() -> None:
        raise AssertionError("asked for the journal")

    with pins_of(dataclasses.replace(settings, admin_url=f"http://{admin.host}"), unasked) as pins:
        pins.open(TOPIC)
        pins.acknowledge(TOPIC, Position(0, 1, 1))
        pins.release(TOPIC)
    assert types(broker) == [EXCLUSIVE]
    assert admin.asked == []


def test_the_only_consumer_of_a_failover_subscription_adopts_acknowledges_and_unsubscribes(
    broker, admin, restricted
) -> None:
    asked: list[int] = []
    with pins_of(restricted, lambda: asked.append(len(admin.asked))) as pins:
        assert pins.open(TOPIC) == TopicEnd(None, (1, -1))
        assert pins.open(TOPIC) == TopicEnd(None, (1, -1))
        pins.acknowledge(TOPIC, Position(0, 1, 1))
        pins.release(TOPIC)
    assert types(broker) == [EXCLUSIVE, FAILOVER]
    assert [c.ack.message_id[0].entry_id for c in broker.received(fake.ACK)] == [1]
    assert len(broker.received(fake.UNSUBSCRIBE)) == 1
    assert (len(admin.asked), asked) == (4, [0, 1, 2, 3])  # each time, and the journal first


@pytest.mark.parametrize(
    "consumers", [("token", ""), ("", "token"), ("",), ("another of ours",), (), ("token", "another of ours")]
)
def test_a_subscription_with_other_consumers_is_not_adopted(broker, admin, restricted, consumers) -> None:
    report(admin, *consumers)
    with pins_of(restricted) as pins:
        with pytest.raises(SubscriptionBusyError, match="not the only consumer"):
            pins.open(TOPIC)
        broker.wait_for(fake.CLOSE_CONSUMER)
        assert not pins.holds(TOPIC)
        assert broker.received(fake.GET_LAST_MESSAGE_ID) == []
        report(admin, "token")
        pins.open(TOPIC)


def unanswered(admin) -> None:
    admin.on(STATS, {"reason": "overloaded"}, 503)


def joined(admin) -> None:
    report(admin, "", "token")


@pytest.mark.parametrize(("happens", "error"), [(joined, SubscriptionBusyError), (unanswered, BrokerUnavailableError)])
def test_nothing_is_done_while_another_consumer_is_attached_or_may_be(
    broker, admin, restricted, happens, error
) -> None:
    with pins_of(restricted) as pins:
        pins.open(TOPIC)
        happens(admin)
        for use in (lambda: pins.acknowledge(TOPIC, Position(0, 1, 1)), lambda: pins.release(TOPIC)):
            with pytest.raises(error):
                use()
        with pytest.raises(error):
            pins.open(TOPIC)
        assert broker.received(fake.ACK) == broker.received(fake.UNSUBSCRIBE) == []
        report(admin, "token")
        pins.acknowledge(TOPIC, Position(0, 1, 1))


def test_nothing_is_done_once_another_process_has_the_journal(broker, admin, restricted) -> None:
    fenced: list[OffloadError] = []

    def check() -> None:
        if fenced:
            raise fenced[0]

    with pins_of(restricted, check) as pins:
        pins.open(TOPIC)
        fenced.append(OvertakenError("another process has the journal"))
        for use in (lambda: pins.acknowledge(TOPIC, Position(0, 1, 1)), lambda: pins.release(TOPIC)):
            with pytest.raises(OvertakenError):
                use()
    with pins_of(restricted, check) as pins, pytest.raises(OvertakenError):
        pins.open(TOPIC)
    assert broker.received(fake.ACK) == broker.received(fake.UNSUBSCRIBE) == []


def test_readers_use_failover_too(broker, restricted) -> None:
    with closing(BrokerSource(restricted)) as source:
        source.open(TOPIC, 1, 0, max_bytes=1000).close()
    exclusive, failover = (c.subscribe for c in broker.received(fake.SUBSCRIBE))
    assert (exclusive.type, failover.type) == (EXCLUSIVE, FAILOVER)
    assert (failover.durable, failover.start_message_id) == (False, exclusive.start_message_id)


def test_another_limit_refuses_both_types(broker, settings) -> None:
    broker.on(fake.SUBSCRIBE, fake.fail("subscribe", NOT_ALLOWED, "maximum number of subscriptions"))
    with pins_of(settings) as pins, pytest.raises(NotAllowedError, match="maximum number"):
        pins.open(TOPIC)
    with closing(BrokerSource(settings)) as source, pytest.raises(NotAllowedError, match="maximum number"):
        source.open(TOPIC, 1, 0, max_bytes=1000)
