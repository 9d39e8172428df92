"""Acknowledging what was never received, as a consumer that asks for nothing."""

from __future__ import annotations

import pytest

from offloader.errors import OffloadError, SubscriptionBusyError
from offloader.model import EntryRange, PartlyAcknowledged, TopicName
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.subscriptions import Acknowledger
from tests.pulsar import fake_broker as fake

TOPIC = TopicName.parse("public/ns/t")
METADATA_ERROR = 1
BUSY = 5  # ConsumerBusy


@pytest.fixture
def acknowledger(settings):
    pool = ConnectionPool(settings)
    yield Acknowledger(TopicLookup(pool), sleep=lambda _: None)
    pool.close()


def test_entries_and_parts_of_batches_are_acknowledged_by_a_consumer(broker, acknowledger):
    acknowledger.acknowledge(TOPIC, "job", [EntryRange(3, 5, 7)], [PartlyAcknowledged(3, 9, (1,))])
    first, again = (one.ack.message_id for one in broker.received(fake.ACK))
    assert [(one.ledger_id, one.entry_id, list(one.ack_set)) for one in first] == [(3, 5, []), (3, 6, []), (3, 9, [1])]
    assert list(again) == [first[-1]], "the next acknowledgement stores what the first ones have changed"
    assert len(broker.received(fake.SUBSCRIBE)) == 1
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1
    assert not broker.received(fake.FLOW)


def test_where_there_is_nothing_to_acknowledge_it_only_lets_go(broker, acknowledger):
    acknowledger.acknowledge(TOPIC, "job", [], [])
    assert not broker.received(fake.ACK)
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1


def test_it_lets_go_where_an_acknowledgement_fails(broker, acknowledger):
    broker.on(fake.ACK, fake.fail("ack", METADATA_ERROR))
    with pytest.raises(OffloadError):
        acknowledger.acknowledge(TOPIC, "job", [EntryRange(3, 5, 7)], [])
    assert len(broker.received(fake.CLOSE_CONSUMER)) == 1


def test_where_consumers_of_another_type_are_connected_nothing_is_acknowledged(broker, acknowledger):
    broker.on(fake.SUBSCRIBE, fake.fail("subscribe", BUSY))
    with pytest.raises(SubscriptionBusyError):
        acknowledger.acknowledge(TOPIC, "job", [EntryRange(3, 5, 7)], [])
    assert not broker.received(fake.ACK)
