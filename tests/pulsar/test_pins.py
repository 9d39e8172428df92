"""Durable pins against a scripted broker."""

import dataclasses
import threading
import time

import pytest

from offloader.errors import (
    BrokerUnavailableError,
    FatalError,
    OutcomeUnknownError,
    SubscriptionBusyError,
    TopicNotFoundError,
)
from offloader.model import Position, TopicName
from offloader.ports.pins import TopicEnd
from offloader.pulsar.commands import message_id, position
from offloader.pulsar.pin import BrokerPins
from tests.pulsar import fake_broker as fake

TOPICS = [TopicName.parse(f"public/ns/t{n}") for n in range(20)]
TOPIC = TOPICS[0]


@pytest.fixture
def pins(settings):
    pins = BrokerPins(settings)
    yield pins
    pins.close()


def close_consumer(broker, topic):
    for peer in broker.peers:
        for c in peer.received:
            if c.type == fake.SUBSCRIBE and c.subscribe.topic == str(topic):
                peer.send(close_consumer={"consumer_id": c.subscribe.consumer_id, "request_id": 1})


def test_a_pin_is_durable_from_the_earliest_entry_and_never_lets_the_broker_send(broker, pins):
    assert pins.open(TOPIC) == TopicEnd(None, (1, -1))
    asked = broker.wait_for(fake.SUBSCRIBE).subscribe
    assert (asked.durable, asked.initial_position, asked.force_topic_creation) == (True, 1, False)
    assert (asked.subscription, asked.type) == ("__offloader", 0)
    assert not asked.HasField("start_message_id")
    assert broker.received(fake.FLOW) == []


def test_a_broker_that_does_not_say_where_the_pin_stands_is_refused(broker, pins):
    def answer(peer, c):
        peer.send(
            get_last_message_id_response={
                "request_id": c.get_last_message_id.request_id,
                "last_message_id": message_id(1, 2),
            }
        )

    broker.on(fake.GET_LAST_MESSAGE_ID, answer)
    with pytest.raises(FatalError, match="too old"):
        pins.open(TOPIC)


def test_the_application_is_named(broker, settings):
    pins = BrokerPins(dataclasses.replace(settings, application="app"))
    pins.open(TOPIC)
    asked = broker.wait_for(fake.SUBSCRIBE).subscribe
    assert asked.consumer_name == "app"
    assert ("application", "app") in [(p.key, p.value) for p in asked.subscription_properties]
    pins.close()


def test_whoever_subscribes_brings_a_token_that_no_other_one_has(broker, settings):
    """What is made by subscribing again is not taken for what was there before."""
    tokens = map("token-{}".format, range(10))
    pins = BrokerPins(settings, lambda: next(tokens))
    pins.open(TOPIC)
    close_consumer(broker, TOPIC)
    wait_until_closed(pins, TOPIC)
    assert pins.ends([TOPIC]) == {TOPIC: TopicEnd(None, (1, -1))}
    asked = [{p.key: p.value for p in c.subscribe.subscription_properties} for c in broker.received(fake.SUBSCRIBE)]
    assert [properties["pin"] for properties in asked] == ["token-0", "token-1"]
    pins.close()


@pytest.mark.parametrize("last", [(-1, -1), (5, -1)])
def test_an_empty_topic_has_no_last_entry(broker, pins, last):
    broker.last = last
    assert pins.open(TOPIC).last is None


def test_ends_of_many_topics_are_asked_at_once_over_one_connection(broker, pins):
    broker.last, broker.mark_delete = (4, 9), (3, 7)
    for topic in TOPICS:
        pins.open(topic)
    waiting = []

    def hold_back(peer, c):
        waiting.append((peer, c))
        if len(waiting) == len(TOPICS):
            for held in waiting:
                fake.last_message(*held)

    broker.on(fake.GET_LAST_MESSAGE_ID, hold_back)
    assert pins.ends(TOPICS) == dict.fromkeys(TOPICS, TopicEnd((4, 9), (3, 7)))
    assert len(broker.peers) == 1


def test_one_topics_failure_is_its_own(broker, pins):
    for topic in TOPICS[:3]:
        pins.open(topic)
    close_consumer(broker, TOPICS[1])
    broker.on(
        fake.SUBSCRIBE,
        lambda peer, c: fake.fail("subscribe", 11 if c.subscribe.topic == str(TOPICS[1]) else 0)(peer, c),
    )
    wait_until_closed(pins, TOPICS[1])
    ends = pins.ends(TOPICS[:4])
    assert ends[TOPICS[0]] == ends[TOPICS[2]] == TopicEnd(None, (1, -1))
    assert isinstance(ends[TOPICS[1]], TopicNotFoundError)
    assert isinstance(ends[TOPICS[3]], FatalError)


def test_after_an_unload_it_subscribes_again(broker, pins):
    pins.open(TOPIC)
    close_consumer(broker, TOPIC)
    wait_until_closed(pins, TOPIC)
    assert pins.ends([TOPIC]) == {TOPIC: TopicEnd(None, (1, -1))}
    assert len(broker.received(fake.SUBSCRIBE)) == 2
    assert len(broker.received(fake.LOOKUP)) == 2


def test_after_a_lost_connection_all_pins_come_back(broker, pins):
    for topic in TOPICS:
        pins.open(topic)
    broker.peers[0].close()
    for topic in TOPICS:
        wait_until_closed(pins, topic)
    assert pins.ends(TOPICS) == dict.fromkeys(TOPICS, TopicEnd(None, (1, -1)))
    assert len(broker.peers) == 2


def test_an_acknowledgement_is_cumulative_and_returns_with_its_receipt(broker, pins):
    pins.open(TOPIC)
    receipt = threading.Event()

    def acknowledge(peer, c):
        receipt.set()
        fake.DEFAULTS[fake.ACK](peer, c)

    broker.on(fake.ACK, acknowledge)
    pins.acknowledge(TOPIC, Position(3, 5, 6))
    assert receipt.is_set()
    asked = broker.wait_for(fake.ACK).ack
    assert (asked.type, [position(m) for m in asked.message_id]) == (1, [(5, 6)])


def test_an_acknowledgement_before_a_ledgers_first_entry(broker, pins):
    pins.open(TOPIC)
    pins.acknowledge(TOPIC, Position(0, 5, -1))
    assert position(broker.wait_for(fake.ACK).ack.message_id[0]) == (5, -1)


def test_an_acknowledgement_without_receipt_has_an_unknown_outcome(broker, impatient):
    pins = BrokerPins(impatient)
    pins.open(TOPIC)
    broker.ignore(fake.ACK)
    with pytest.raises(OutcomeUnknownError, match="acknowledging in"):
        pins.acknowledge(TOPIC, Position(0, 5, 6))
    assert pins.ends([TOPIC])[TOPIC] == TopicEnd(None, (1, -1)), "and the pin goes on"
    pins.close()


def test_an_acknowledgement_that_the_broker_refused_did_not_happen(broker, pins):
    pins.open(TOPIC)
    broker.on(
        fake.ACK, lambda peer, c: peer.send(ack_response={"consumer_id": 1, "request_id": c.ack.request_id, "error": 2})
    )
    with pytest.raises(BrokerUnavailableError, match="PersistenceError"):
        pins.acknowledge(TOPIC, Position(0, 5, 6))


def test_a_busy_subscription_is_said_to_be_busy_and_not_held(broker, pins):
    broker.on(fake.SUBSCRIBE, fake.fail("subscribe", 5, "Exclusive consumer is already connected"))
    with pytest.raises(SubscriptionBusyError, match="pinning persistent://public/ns/t0"):
        pins.open(TOPIC)
    assert isinstance(pins.ends([TOPIC])[TOPIC], FatalError)


def test_release_deletes_the_subscription(broker, pins):
    pins.open(TOPIC)
    pins.release(TOPIC)
    consumer = broker.wait_for(fake.SUBSCRIBE).subscribe.consumer_id
    assert broker.wait_for(fake.UNSUBSCRIBE).unsubscribe.consumer_id == consumer
    with pytest.raises(FatalError, match="not held"):
        pins.acknowledge(TOPIC, Position(0, 1, 1))


@pytest.mark.parametrize("everything", [True, False])
def test_letting_go_keeps_the_subscription(broker, settings, everything):
    pins = BrokerPins(settings)
    pins.open(TOPIC)
    consumer = broker.wait_for(fake.SUBSCRIBE).subscribe.consumer_id
    if everything:
        pins.close()
    else:
        pins.drop(TOPIC)
    assert broker.received(fake.CLOSE_CONSUMER)[0].close_consumer.consumer_id == consumer
    assert broker.received(fake.UNSUBSCRIBE) == []
    pins.close()


def test_letting_go_never_raises_even_without_a_broker(broker, impatient):
    pins = BrokerPins(impatient)
    pins.open(TOPIC)
    broker.ignore(fake.CLOSE_CONSUMER)
    pins.drop(TOPIC)
    pins.open(TOPIC)
    broker.close()
    pins.close()


def test_a_subscription_that_went_back_is_noticed(broker, pins, caplog):
    broker.mark_delete = (5, 3)
    pins.open(TOPIC)
    broker.mark_delete = (5, -1)
    assert pins.ends([TOPIC])[TOPIC] == TopicEnd(None, (5, -1))
    assert "went back from 5:3 to 5:-1" in caplog.text


def test_what_cannot_be_reconnected_in_time_is_left_for_the_next_round(broker, impatient):
    pins = BrokerPins(impatient)
    for topic in TOPICS:
        pins.open(topic)
    broker.ignore(fake.SUBSCRIBE)
    broker.peers[0].close()
    for topic in TOPICS:
        wait_until_closed(pins, topic)
    ends = pins.ends(TOPICS)
    assert all(isinstance(end, BrokerUnavailableError) for end in ends.values())
    assert any("no time left" in str(end) for end in ends.values())
    pins.close()


@pytest.mark.parametrize("let_go", [BrokerPins.release, BrokerPins.drop])
def test_a_pin_that_was_let_go_of_does_not_subscribe_again_for_whoever_is_late(broker, settings, let_go):
    pins = BrokerPins(settings)
    pins.open(TOPIC)
    late = pins._held[TOPIC]
    let_go(pins, TOPIC)
    with pytest.raises(FatalError, match="let go"):
        late.ask_end()
    with pytest.raises(FatalError, match="let go"):
        late.acknowledge(1, 0)
    assert len(broker.received(fake.SUBSCRIBE)) == 1
    assert pins.open(TOPIC) == TopicEnd(None, (1, -1))
    pins.close()


def wait_until_closed(pins, topic):
    deadline = threading.Event()
    for _ in range(500):
        if not pins._held[topic].connected:
            return
        deadline.wait(0.01)
    raise AssertionError("the consumer was not closed")


def hang_for(broker, hung):
    """The broker does not answer who subscribes to these topics."""
    answer = fake.succeed("subscribe")
    broker.on(fake.SUBSCRIBE, lambda peer, c: None if c.subscribe.topic in hung else answer(peer, c))
    broker.peers[0].close()


def test_topics_whose_subscribing_hangs_do_not_keep_others_from_subscribing_again(broker, impatient):
    pins = BrokerPins(impatient)
    for topic in TOPICS:
        pins.open(topic)
    *hung, healthy = TOPICS
    hang_for(broker, {str(topic) for topic in hung})
    for topic in TOPICS:
        wait_until_closed(pins, topic)
    rounds = [pins.ends(TOPICS)[healthy] for _ in range(3)]
    assert TopicEnd(None, (1, -1)) in rounds, "whoever was not tried in one round is tried first in the next"
    pins.close()


def test_who_must_subscribe_again_is_asked_with_those_of_the_same_broker(broker, settings):
    other = fake.FakeBroker()
    there = {str(topic) for topic in TOPICS[:3]}

    def found(peer, c):
        url = (other if c.lookup.topic in there else broker).url
        peer.send(lookup_response={"request_id": c.lookup.request_id, "response": 1, "broker_service_url": url})

    broker.on(fake.LOOKUP, found)
    pins = BrokerPins(settings)
    for topic in TOPICS[:6]:
        pins.open(topic)
    assert sorted(pins.groups(TOPICS[:6])) == [TOPICS[:3], TOPICS[3:6]]
    for peer in (*broker.peers, *other.peers):
        peer.close()
    for topic in TOPICS[:6]:
        wait_until_closed(pins, topic)
    assert sorted(pins.groups(TOPICS[:6])) == [TOPICS[:3], TOPICS[3:6]]
    pins.close()
    other.close()


def disconnected(pins):
    """The next topics that are."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := pins.take_disconnected():
            return found
    raise AssertionError("no consumer was closed")


def test_a_consumer_that_a_broker_or_its_connection_closed_is_listed_once(broker, pins):
    pins.open(TOPIC)
    assert pins.take_disconnected() == []
    close_consumer(broker, TOPIC)
    assert disconnected(pins) == [TOPIC]
    pins.open(TOPIC)
    for peer in broker.peers:
        peer.close()
    assert disconnected(pins) == [TOPIC]
    pins.open(TOPIC)
    pins.drop(TOPIC)
    assert pins.take_disconnected() == []
