"""The exclusive producer against a scripted broker: order, receipts, refusals, ends."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError, FatalError, ProtocolError, TopicMovedError
from offloader.model import TopicName
from offloader.pulsar.commands import message_id, send
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.producer import EntryProducer
from tests.pulsar import fake_broker as fake
from tests.pulsar.entries import entry

TOPIC = TopicName.parse("public/ns/t")
PRODUCER, SEND, CLOSE_PRODUCER = 5, 6, 15


def attached(peer, c):
    epoch = 7 if not c.producer.HasField("topic_epoch") else c.producer.topic_epoch + 1
    peer.send(producer_success={"request_id": c.producer.request_id, "producer_name": "p", "topic_epoch": epoch})


def receipt(peer, c):
    ids = {"producer_id": c.send.producer_id, "sequence_id": c.send.sequence_id}
    peer.send(send_receipt={**ids, "message_id": message_id(3, c.send.sequence_id)})


@pytest.fixture
def lookup(broker, settings):
    broker.on(PRODUCER, attached)
    broker.on(SEND, receipt)
    pool = ConnectionPool(settings)
    yield TopicLookup(pool)
    pool.close()


def taken(producer, count):
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        more = producer.receipts(5)
        assert more, f"only {len(found)} of {count} receipts came"
        found += more
    return found


def test_it_asks_to_be_the_only_one_and_brings_its_epoch(broker, lookup):
    first = EntryProducer.open(lookup, TOPIC, "one", None)
    second = EntryProducer.open(lookup, TOPIC, "two", first.epoch)
    asked = [broker.wait_for(PRODUCER, n).producer for n in (1, 2)]
    assert [c.access_mode for c in asked] == [3, 3]
    assert [c.producer_name for c in asked] == ["one", "two"]
    assert not asked[0].HasField("topic_epoch")
    assert (asked[1].topic_epoch, second.epoch) == (7, 8)


def test_receipts_come_in_the_order_of_sending(broker, lookup):
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    for number in range(50):
        producer.send(number, entry(number), messages=number + 1, chunk=number == 3)
    assert taken(producer, 50) == [(number, 3, number) for number in range(50)]
    sent = [c.send for c in broker.received(SEND)]
    assert [c.num_messages for c in sent] == list(range(1, 51))
    assert [c.is_chunk for c in sent] == [number == 3 for number in range(50)]
    assert producer.receipts(0.01) == []


def test_the_entry_stands_behind_the_command_as_it_is():
    data = entry(100)
    frame = encode(send(1, 2, 3, chunk=False), data)
    assert frame.endswith(data)
    total, size = int.from_bytes(frame[:4]), int.from_bytes(frame[4:8])
    assert (len(frame), len(data)) == (4 + total, total - 4 - size)
    buffer = FrameBuffer()
    buffer.space()[: len(frame)] = frame
    buffer.received(len(frame))
    (found,) = buffer.frames()
    assert (found.command.send.producer_id, found.command.send.sequence_id, found.command.send.num_messages) == (
        1,
        2,
        3,
    )


def test_receipts_before_a_refusal_are_told_first(broker, lookup):
    def refuse(peer, c):
        if c.send.sequence_id < 3:
            receipt(peer, c)
        else:
            ids = {"producer_id": c.send.producer_id, "sequence_id": c.send.sequence_id}
            peer.send(send_error={**ids, "error": 9, "message": "corrupt"})

    broker.on(SEND, refuse)
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    for number in range(4):
        producer.send(number, entry(1), messages=1, chunk=False)
    assert [r.sequence for r in taken(producer, 3)] == [0, 1, 2]
    with pytest.raises(ProtocolError, match="entry 3: the broker answered ChecksumError: corrupt"):
        producer.receipts(5)


def test_the_broker_ends_it(broker, lookup):
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    broker.peers[-1].send(
        close_producer={"producer_id": broker.wait_for(PRODUCER).producer.producer_id, "request_id": 1}
    )
    with pytest.raises(TopicMovedError):
        producer.receipts(5)


def test_the_connection_ends_it(broker, lookup):
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    broker.on(SEND, lambda peer, c: peer.close())
    producer.send(1, entry(1), messages=1, chunk=False)
    with pytest.raises(BrokerUnavailableError):
        producer.receipts(5)
    producer.send(2, entry(1), messages=1, chunk=False)  # dropped
    with pytest.raises(BrokerUnavailableError):
        producer.receipts(5)


def test_a_connection_that_ends_at_once_finds_it_ready(lookup):
    connection = lookup.connection(TOPIC)
    register = connection.session.add_producer

    def ended(producer):
        connection.session.fail(BrokerUnavailableError("gone"))
        producer.on_closed(BrokerUnavailableError("gone"))
        return register(producer)

    connection.session.add_producer = ended
    producer = EntryProducer(connection, TOPIC)
    with pytest.raises(BrokerUnavailableError, match="gone"):
        producer.receipts(5)


def test_an_entry_that_no_broker_takes_is_not_sent(broker, lookup):
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    producer.send(1, bytes(5 * 1024 * 1024 + 9 * 1024), messages=1, chunk=False)
    with pytest.raises(FatalError, match="raise maxMessageSize"):
        producer.send(2, bytes(5 * 1024 * 1024 + 9 * 1024 + 1), messages=1, chunk=False)
    assert [r.sequence for r in taken(producer, 1)] == [1]


@pytest.mark.parametrize(
    ("code", "error"),
    [(25, FatalError), (15, FatalError), (18, FatalError), (16, BrokerUnavailableError), (7, BrokerUnavailableError)],
)
def test_a_refused_producer_leaves_nothing_behind(broker, lookup, code, error):
    broker.on(PRODUCER, fake.fail("producer", code))
    with pytest.raises(error, match=r"producing to persistent://public/ns/t: .*because"):
        EntryProducer.open(lookup, TOPIC, "one", None)
    asked = broker.wait_for(PRODUCER).producer
    assert broker.wait_for(CLOSE_PRODUCER).close_producer.producer_id == asked.producer_id


def test_a_stale_address_is_looked_up_again_at_once(broker, lookup):
    refusals = iter([fake.fail("producer", 6, "not served by this instance")])
    broker.on(PRODUCER, lambda peer, c: next(refusals, attached)(peer, c))
    EntryProducer.open(lookup, TOPIC, "one", None)
    assert len(broker.received(fake.LOOKUP)) == 2


def test_what_it_gave_up_is_not_heard_of_any_more(broker, lookup):
    producer = EntryProducer.open(lookup, TOPIC, "one", None)
    broker.ignore(SEND)
    producer.send(1, entry(1), messages=1, chunk=False)
    producer.let_go()
    peer, asked = broker.peers[-1], broker.wait_for(PRODUCER).producer
    broker.wait_for(CLOSE_PRODUCER)
    ids = {"producer_id": asked.producer_id, "sequence_id": 1}
    peer.send(send_receipt={**ids, "message_id": message_id(3, 1)})
    peer.send(send_error={**ids, "error": 2, "message": "late"})
    assert producer.receipts(0.05) == []
