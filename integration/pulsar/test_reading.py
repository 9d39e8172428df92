"""Entries through a real broker: exact bytes, start positions, ends, bounded memory."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.produce import produce_mixed
from integration.pulsar.waiting import positions, read, until
from offloader.errors import TopicMovedError, TopicNotFoundError
from offloader.format.entry import inspect
from offloader.model import MIB
from offloader.ports.entry_source import RawEntry

pytestmark = pytest.mark.pulsar

QUIET = 0.5  # seconds in which an idle broker would have delivered


def test_every_kind_of_entry_arrives_whole_with_its_broker_metadata(pulsar, topic, pins, source):
    pins.open(topic)
    produced = produce_mixed(pulsar.service_url, str(topic), seed=1, messages=400)
    expected = produced.positions[str(topic)]
    reader = source.open(topic, expected[0][0], 0, max_bytes=4 * MIB)
    entries = read(reader, len(expected))
    assert positions(entries) == expected
    facts = [inspect(e.data) for e in entries]  # raises where a CRC32C does not hold
    assert sum(f.messages for f in facts) == produced.messages
    counted = 0
    for fact in facts:
        counted += fact.messages
        assert fact.broker_index == counted - 1
        assert fact.broker_time
    assert reader.read(QUIET) == []
    reader.close()


@pytest.mark.parametrize("size", [0, 1, 1000, MIB, 5 * MIB - 1000])
def test_the_bytes_are_those_that_were_sent(topic, pins, source, transactions, size):
    pins.open(topic)
    ledger, entry = transactions.send(str(topic), bytes(size))
    reader = source.open(topic, ledger, entry, max_bytes=1000)
    (found,) = read(reader, 1)
    assert found.data.startswith(b"\x0e\x02")
    assert found.data.endswith(transactions.sent)
    assert len(found.data) == len(transactions.sent) + 6 + int.from_bytes(found.data[2:6])
    reader.close()


def fill(pulsar, topic, transactions, *counts):
    """Ledgers with that many entries each; returns the positions."""
    found = []
    for number, count in enumerate(counts):
        if number:
            unload(pulsar, topic, transactions)
        found.append([transactions.send(str(topic), b"%d" % n) for n in range(count)])
    return found


def unload(pulsar, topic, transactions):
    pulsar.admin("PUT", f"{topic.rest_path}/unload")
    transactions.forget(str(topic))


def test_reading_begins_exactly_where_it_is_told_to(pulsar, topic, pins, source, transactions):
    pins.open(topic)
    first, second = fill(pulsar, topic, transactions, 5, 5)
    everything = first + second
    starts = {
        first[0]: everything,
        (first[0][0], -1): everything,
        (0, 0): everything,
        first[3]: everything[3:],
        (first[0][0], 5): second,  # behind the last entry of a closed ledger
        (second[0][0], -1): second,
        second[0]: second,
        second[4]: second[4:],
    }
    for start, expected in starts.items():
        reader = source.open(topic, *start, max_bytes=MIB)
        assert positions(read(reader, len(expected))) == expected, start
        assert reader.read(0.1) == []
        reader.close()


def test_behind_the_end_it_waits_for_what_comes(topic, pins, source, transactions):
    pins.open(topic)
    ledger, last = [transactions.send(str(topic), b"x") for _ in range(3)][-1]
    next_one = source.open(topic, ledger, last + 1, max_bytes=MIB)
    later = source.open(topic, ledger, last + 3, max_bytes=MIB)
    assert next_one.read(QUIET) == []
    produced = [transactions.send(str(topic), b"y") for _ in range(4)]
    assert positions(read(next_one, 4)) == produced
    assert positions(read(later, 2)) == produced[2:]
    next_one.close()
    later.close()


def test_a_trimmed_start_shows_as_a_later_first_entry(pulsar, topic, admin, source, transactions):
    """Without a pin, at retention 0. The caller sees the gap; the broker does not say anything."""
    first, second = fill(pulsar, topic, transactions, 3, 2)
    pulsar.admin("POST", f"{topic.rest_path}/trim")
    until(lambda: first[0][0] not in admin.topic_info(topic).ledgers)
    reader = source.open(topic, *first[0], max_bytes=MIB)
    assert positions(read(reader, 2)) == second
    reader.close()


def test_an_unload_breaks_off_and_reading_goes_on_from_there(pulsar, topic, pins, source, transactions):
    pins.open(topic)
    (first,) = fill(pulsar, topic, transactions, 5)
    reader = source.open(topic, *first[0], max_bytes=MIB)
    assert len(read(reader, 5)) == 5
    unload(pulsar, topic, transactions)
    with pytest.raises(TopicMovedError):
        read(reader, 1)
    reader.close()
    (second,) = fill(pulsar, topic, transactions, 2)
    reader = source.open(topic, first[-1][0], first[-1][1] + 1, max_bytes=MIB)
    assert positions(read(reader, 2)) == second
    reader.close()


def test_a_deleted_topic_is_not_found(pulsar, topic, source, transactions):
    (first,) = fill(pulsar, topic, transactions, 2)
    reader = source.open(topic, *first[0], max_bytes=MIB)
    read(reader, 2)
    pulsar.admin("DELETE", f"{topic.rest_path}?force=true")
    with pytest.raises(TopicMovedError):
        read(reader, 1)
    with pytest.raises(TopicNotFoundError):
        source.open(topic, *first[0], max_bytes=MIB)
    reader.close()


def test_an_empty_topic_gives_nothing(topic, source):
    reader = source.open(topic, 0, 0, max_bytes=MIB)
    assert reader.read(QUIET) == []
    reader.close()


def test_a_terminated_topic_can_be_read_to_its_end(pulsar, topic, pins, source, admin, transactions):
    pins.open(topic)
    (first,) = fill(pulsar, topic, transactions, 3)
    pulsar.admin("POST", f"{topic.rest_path}/terminate")
    reader = source.open(topic, *first[0], max_bytes=MIB)
    assert positions(read(reader, 3)) == first
    assert reader.read(QUIET) == []
    reader.close()
    info = admin.topic_info(topic)
    assert info.terminated
    assert info.ledgers.closed_with(first[0][0]) == 2
    assert info.sizes[first[0][0]][0] == 3
    assert pins.ends([topic])[topic].last == first[-1]


def test_memory_is_bounded_when_entries_turn_out_larger(topic, pins, source, transactions):
    pins.open(topic)
    sent = [transactions.send(str(topic), bytes(size)) for size in [100] * 300 + [MIB] * 8 + [100] * 50]
    reader = source.open(topic, *sent[0], max_bytes=2 * MIB)
    found: list[RawEntry] = []
    while len(found) < len(sent):
        batch = reader.read(10)
        assert sum(len(e.data) for e in batch) <= 2 * MIB
        found += batch
    assert positions(found) == sent
    reader.close()


def test_many_readers_share_connections(new_topic, pins, source, transactions):
    topics = [new_topic() for _ in range(12)]
    sent = {
        topic: [transactions.send(str(topic), b"%d" % n) for n in range(20)] for topic in topics if pins.open(topic)
    }

    def read_all(topic):
        reader = source.open(topic, *sent[topic][0], max_bytes=MIB)
        found = positions(read(reader, 20))
        reader.close()
        return found

    with ThreadPoolExecutor(6) as pool:
        assert dict(zip(topics, pool.map(read_all, topics), strict=True)) == sent
