"""Acknowledging what was never received: as a consumer that asks for nothing, and what it decides once it is one."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError, SubscriptionBusyError
from offloader.model import EntryRange, PartlyAcknowledged, TopicName
from offloader.ports.subscriptions import ToAcknowledge
from offloader.pulsar.acknowledger import Acknowledger
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from tests.pulsar import fake_broker as fake

TOPIC = TopicName.parse("public/ns/t")
BUSY = 5  # ConsumerBusy


@pytest.fixture
def acknowledger(settings):
    pool = ConnectionPool(settings)
    yield Acknowledger(TopicLookup(pool), sleep=lambda _: None)
    pool.close()


def test_what_is_decided_once_it_is_a_consumer_is_acknowledged(broker, acknowledger):
    def decide():
        assert len(broker.received(fake.SUBSCRIBE)) == 1
        assert not broker.received(fake.ACK)
        return ToAcknowledge([EntryRange(3, 5, 7)], [PartlyAcknowledged(3, 9, (1,))])

    assert acknowledger.acknowledge_as_seen(TOPIC, "job", decide)
    first, again = (one.ack.message_id for one in broker.received(fake.ACK))
    assert [(one.ledger_id, one.entry_id, list(one.ack_set)) for one in first] == [(3, 5, []), (3, 6, []), (3, 9, [1])]
    assert list(again) == [first[-1]], "the next acknowledgement stores what the first ones have changed"
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1
    assert not broker.received(fake.FLOW)


def test_where_nothing_is_decided_it_only_lets_go(broker, acknowledger):
    assert not acknowledger.acknowledge_as_seen(TOPIC, "job", lambda: None)
    assert not broker.received(fake.ACK)
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1


def test_it_lets_go_where_the_decision_fails(broker, acknowledger):
    def fail():
        raise BrokerUnavailableError("gone")

    with pytest.raises(BrokerUnavailableError):
        acknowledger.acknowledge_as_seen(TOPIC, "job", fail)
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1


def test_where_consumers_of_another_type_are_connected_nothing_is_decided(broker, acknowledger):
    broker.on(fake.SUBSCRIBE, fake.fail("subscribe", BUSY))
    with pytest.raises(SubscriptionBusyError):
        acknowledger.acknowledge_as_seen(TOPIC, "job", lambda: pytest.fail("it is no consumer"))
