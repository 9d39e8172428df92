"""Whoever reads a topic in pieces gets what consumers get, each entry once, from any place on."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.errors import DataLostError
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.entries.reader import KeptReaders
from offloader.gateway.values import ServedEntry
from offloader.model import Place
from tests.archive.support import Archive
from tests.examples import worlds
from tests.format.support import Stored, checksummed

from .topics import Expected, Topic, opened, topics

BEFORE_ALL = (-1, -1)

LARGEST = (2**63 - 1, 2**63 - 1)


def read_all(
    entries: ArchivedTopicEntries, after: Place = BEFORE_ALL, random: Random | None = None
) -> list[ServedEntry]:
    """In pieces of any size."""
    random = random or Random(0)
    found: list[ServedEntry] = []
    while True:
        most, most_bytes = random.choice([1, 3, 100, 1000]), random.choice([1, 500, 10**6])
        read = entries.read(after, most, most_bytes)
        if read.covered is None:
            assert not read.entries
            return found
        assert read.covered > after
        assert len(read.entries) <= most
        assert len(read.entries) <= 1 or sum(len(each.data) for each in read.entries) <= most_bytes
        assert all(after < each.place <= read.covered for each in read.entries)
        found += read.entries
        after = random.choice([read.covered, read.entries[-1].place]) if read.entries else read.covered


def read_on(entries: ArchivedTopicEntries, after: Place, found: list[ServedEntry]) -> None:
    """Up to the end, or to what is raised."""
    while (read := entries.read(after, 50, 10**6)).covered is not None:
        found += read.entries
        after = read.covered


def as_expected(found: list[ServedEntry]) -> list[tuple[Place, Expected]]:
    times = {each.place: 0 for each in found}
    return [(e.place, Expected(bytes(e.data), e.skip, e.messages, e.deliver_at, times[e.place])) for e in found]


def without_times(topic: Topic, after: Place = BEFORE_ALL) -> list[tuple[Place, Expected]]:
    return [(place, each._replace(time=0)) for place, each in topic.delivered if place > after]


@worlds
@given(topics(), st.integers(0, 2**32))
def test_pieces_from_any_place_are_what_consumers_get(topic: Topic, seed: int) -> None:
    random = Random(seed)
    kept = KeptReaders(most_readers=random.randint(1, 3), most_bytes=random.choice([0, 10**6]))
    entries = opened(topic.archive.store, OnMissing.SKIP, kept, read_size=random.choice([1024, 4096, 10**6]))
    starts = [BEFORE_ALL, random.choice(topic.places), (random.choice(topic.places)[0], -1), (0, 5), LARGEST]
    starts.append((random.choice(topic.places)[0], 10**9))
    for after in starts:
        assert as_expected(read_all(entries, after, random)) == without_times(topic, after)


@worlds
@given(topics(), st.integers(0, 2**32))
def test_each_entry_is_found_again_whether_it_was_read_or_not(topic: Topic, seed: int) -> None:
    random = Random(seed)
    entries = opened(topic.archive.store, OnMissing.SKIP)
    if random.random() < 0.5:
        read_all(entries)
    wanted = random.sample(topic.places, min(10, len(topic.places)))
    neighbours = [(ledger, entry + 1) for ledger, entry in wanted]
    asked = [*wanted, *neighbours, *wanted[:1], (10**6, 0), (0, 0)]
    expected = [each for each in without_times(topic) if each[0] in asked]
    assert as_expected(entries.again(asked)) == expected
    assert [each.sticky > 0 for each in entries.again(asked, sticky=True)] == [True] * len(expected)


@worlds
@given(topics())
def test_losses_end_reading_where_they_are_and_are_known_before(topic: Topic) -> None:
    entries = opened(topic.archive.store)
    after, found = BEFORE_ALL, list[ServedEntry]()
    for first, last in sorted(topic.lost):
        assert f"{first[0]}:{first[1]}.." in (entries.missing_behind(after) or "")
        with pytest.raises(DataLostError, match=f"{first[0]}:{first[1]}.*is missing: lost: trimmed"):
            read_on(entries, after, found)
        assert all(each.place < first for each in found)
        after = last
    assert entries.missing_behind(after) is None
    read_on(entries, after, found)
    assert as_expected(found) == without_times(topic)


@worlds
@given(topics())
def test_losses_that_are_passed_over_are_counted(topic: Topic) -> None:
    entries = opened(topic.archive.store, OnMissing.SKIP)
    read_all(entries)
    assert (entries.passed_over > 0) == bool(topic.lost)


@worlds
@given(topics())
def test_the_end_and_the_ledgers(topic: Topic) -> None:
    entries = opened(topic.archive.store, OnMissing.SKIP)
    place, last = topic.delivered[-1] if topic.delivered else (None, None)
    assert entries.end() == (place, last.messages if last else 0, False)
    kept = {place[0] for place in topic.places if not any(a <= place <= b for a, b in topic.lost)}
    assert list(entries.ledgers()) == [each for each in topic.ledgers if each[1] in kept]


@worlds
@given(topics(losses=False), st.integers(0, 2**32))
def test_from_before_a_place_it_is_what_comes_next(topic: Topic, seed: int) -> None:
    random = Random(seed)
    entries = opened(topic.archive.store)
    for place in [*random.sample(topic.places, min(5, len(topic.places))), (0, 0), (3, 7), (5, 0), (5, 10**6)]:
        after = entries.previous(place)
        following = [each for each, _ in topic.delivered if each >= place]
        read = entries.read(after, 1, 1)
        while read.covered is not None and not read.entries:
            read = entries.read(read.covered, 1, 1)
        assert [each.place for each in read.entries] == following[:1]
        assert after < place
    assert entries.previous((-1, -1)) == BEFORE_ALL
    assert entries.previous(LARGEST) == topic.ledgers[-1][1:]


@worlds
@given(topics(losses=False), st.integers(0, 2**32))
def test_a_time_is_found_as_by_looking_at_every_entry(topic: Topic, seed: int) -> None:
    random = Random(seed)
    entries = opened(topic.archive.store)
    times = [each.time for _, each in topic.delivered]
    for time in [0, 2**60, *(random.choice(times) + random.choice([-1, 0, 1]) for _ in range(5) if times)]:
        older = [place for place, each in topic.delivered if each.time < time]
        assert entries.before_time(time) == (older[-1] if older else BEFORE_ALL)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=200), min_size=1, max_size=4), st.integers(-1, 11))
def test_where_times_do_not_grow_it_is_older_and_what_follows_is_not(ledgers: list[list[int]], time: int) -> None:
    archive, times = Archive(), dict[Place, int]()
    archive.claim(0)
    for ledger, published in enumerate(ledgers):
        times |= {(ledger, number): each for number, each in enumerate(published)}
        archive.add(
            [Stored(ledger, number, published_at(each)) for number, each in enumerate(published)],
            closed={ledger: len(published) - 1},
        )
    found = opened(archive.store).before_time(time)
    behind = [place for place in sorted(times) if place > found]
    assert found == BEFORE_ALL or times[found] < time
    assert not behind or times[behind[0]] >= time


def published_at(time: int) -> bytes:
    return checksummed(MessageMetadata(producer_name="p", sequence_id=0, publish_time=time), b"")
