"""The entry reader against a scripted broker: starts, order, bounded memory, ends."""

import threading

import pytest

from offloader.errors import BrokerUnavailableError, TopicMovedError, TopicNotFoundError
from offloader.model import TopicName
from offloader.ports.entry_source import RawEntry
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.commands import position
from tests.pulsar import fake_broker as fake
from tests.pulsar.entries import entry

TOPIC = TopicName.parse("public/ns/t")


class Ledger:
    """Entries of ledger 7 that the fake broker delivers as permits allow, from the subscription's start."""

    def __init__(self, broker, entries):
        self.entries = entries
        self.permits = {}
        self.next = {}
        self.counts = {}
        self.lock = threading.Lock()
        broker.on(fake.SUBSCRIBE, self.subscribe)
        broker.on(fake.FLOW, self.flow)

    def subscribe(self, peer, c):
        start = position(c.subscribe.start_message_id)
        self.next[c.subscribe.consumer_id] = start[1] + 1
        self.permits[c.subscribe.consumer_id] = 0
        fake.succeed("subscribe")(peer, c)

    def flow(self, peer, c):
        consumer = c.flow.consumer_id
        with self.lock:
            self.permits[consumer] += c.flow.permits
            while self.permits[consumer] > 0 and self.next[consumer] < len(self.entries):
                number = self.next[consumer]
                data, messages = self.entries[number]
                self.next[consumer] += 1
                self.permits[consumer] -= messages
                peer.entry(consumer, 7, number, data)


@pytest.fixture
def source(settings):
    source = BrokerSource(settings)
    yield source
    source.close()


def drain(reader, count):
    found: list[RawEntry] = []
    while len(found) < count:
        batch = reader.read(5)
        assert batch, f"only {len(found)} of {count} entries came"
        found += batch
    return found


def test_it_subscribes_behind_its_start_and_pins_nothing(broker, source):
    Ledger(broker, [])
    source.open(TOPIC, 7, 5, max_bytes=100).close()
    source.open(TOPIC, 7, 0, max_bytes=100).close()
    first, second = (c.subscribe for c in (broker.wait_for(fake.SUBSCRIBE), broker.wait_for(fake.SUBSCRIBE, 2)))
    assert (first.durable, first.force_topic_creation) == (False, False)
    assert position(first.start_message_id) == (7, 4)
    assert not first.start_message_id.HasField("batch_index")
    assert position(second.start_message_id) == (7, -1)
    assert first.subscription != second.subscription
    broker.wait_for(fake.CLOSE_CONSUMER, 2)


def test_entries_arrive_in_order_byte_for_byte(broker, source):
    entries = [(entry(n, None if n % 3 else 1 + n, index=n), 1 if n % 3 else 1 + n) for n in range(300)]
    Ledger(broker, entries)
    reader = source.open(TOPIC, 7, 10, max_bytes=10_000)
    assert drain(reader, 290) == [RawEntry(7, n, entries[n][0]) for n in range(10, 300)]
    assert reader.read(0.01) == []


@pytest.mark.parametrize("sizes", [[10] * 50 + [3000] * 50, [3000] * 5 + [10] * 50 + [6000] + [10] * 50])
def test_entries_that_are_larger_than_those_before_are_read_again_not_held(broker, source, sizes):
    entries = [(entry(size), 1) for size in sizes]
    Ledger(broker, entries)
    reader = source.open(TOPIC, 7, 0, max_bytes=4000)
    found, largest = list[RawEntry](), max(len(e) for e, _ in entries)
    while len(found) < len(entries):
        batch = reader.read(5)
        assert sum(len(e.data) for e in batch) <= max(4000, largest)
        found += batch
    assert found == [RawEntry(7, n, data) for n, (data, _) in enumerate(entries)]
    assert len(broker.received(fake.SUBSCRIBE)) == 1 + reader.restarts


def test_what_lies_before_the_start_is_passed_over(broker, source):
    """A broker starts at the topic's end where the start lies behind it."""
    broker.on(fake.FLOW, lambda peer, c: [peer.entry(c.flow.consumer_id, 7, n, entry(1)) for n in (3, 4, 5)])
    reader = source.open(TOPIC, 7, 5, max_bytes=10_000)
    assert [e.entry for e in reader.read(5)] == [5]


def test_a_slow_reader_does_not_block_another_one_on_the_same_connection(broker, source):
    entries = [(entry(1000), 1)] * 100
    Ledger(broker, entries)
    slow, fast = (source.open(TOPIC, 7, 0, max_bytes=5000) for _ in range(2))
    assert len(drain(fast, 100)) == 100
    assert len(broker.peers) == 1
    assert sum(len(e.data) for e in slow.read(5)) <= 5000


def test_after_an_unload_what_had_arrived_is_given_first_and_the_topic_is_looked_up_again(broker, source):
    Ledger(broker, [(entry(1), 1)] * 3)
    reader = source.open(TOPIC, 7, 0, max_bytes=10_000)
    consumer = broker.wait_for(fake.SUBSCRIBE).subscribe.consumer_id
    assert drain(reader, 3)
    broker.peers[0].send(close_consumer={"consumer_id": consumer, "request_id": 1})
    with pytest.raises(TopicMovedError):
        reader.read(5)
    with pytest.raises(TopicMovedError):
        reader.read(5)
    reader.close()
    source.open(TOPIC, 7, 3, max_bytes=100)
    assert len(broker.received(fake.LOOKUP)) == 2


def test_a_lost_connection_is_retryable(broker, source):
    Ledger(broker, [])
    reader = source.open(TOPIC, 7, 0, max_bytes=100)
    broker.peers[0].close()
    with pytest.raises(BrokerUnavailableError):
        reader.read(5)
    reader.close()


def test_a_stale_address_is_looked_up_again_at_once(broker, source):
    refusals = iter([fake.fail("subscribe", 6, "not served by this instance")])
    broker.on(fake.SUBSCRIBE, lambda peer, c: next(refusals, fake.succeed("subscribe"))(peer, c))
    source.open(TOPIC, 7, 0, max_bytes=100)
    assert len(broker.received(fake.LOOKUP)) == 2


def test_a_missing_topic_is_said_to_be_missing(broker, source):
    broker.on(fake.SUBSCRIBE, fake.fail("subscribe", 11, "Topic does not exist"))
    with pytest.raises(TopicNotFoundError, match=r"reading persistent://public/ns/t from 7:0.*Topic does not exist"):
        source.open(TOPIC, 7, 0, max_bytes=100)


def test_a_subscribe_without_an_answer_leaves_no_consumer_behind(broker, impatient):
    broker.ignore(fake.SUBSCRIBE)
    source = BrokerSource(impatient)
    with pytest.raises(BrokerUnavailableError):
        source.open(TOPIC, 7, 0, max_bytes=100)
    asked = broker.wait_for(fake.SUBSCRIBE).subscribe
    assert broker.wait_for(fake.CLOSE_CONSUMER).close_consumer.consumer_id == asked.consumer_id
    source.close()
