"""Copies of subscriptions: their bytes, their place in the bucket, and which of them stay."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.copies import (
    CopiedCursor,
    CursorCopy,
    CursorSource,
    digest_of,
    left_of,
    pieces_of,
    words_of,
)
from offloader.cursors.copy_store import copy_times, read_copy, removable, thin_copies, write_copy
from offloader.cursors.core.ledger_acks import BatchLeft, acks_of
from offloader.cursors.core.piece_codec import encode_piece
from offloader.errors import DamagedRecordError
from offloader.metadata.layout import cursor_copies_folder, slot_name
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName
from offloader.storage.memory import MemoryStore
from tests.times import DAY_MS, HOUR_MS

ALL_MS = DAY_MS
DAILY_MS = 3653 * DAY_MS
HOURLY_MS = 32 * DAY_MS

TOPIC = TopicName("public", "default", "t")
LENGTHS = [(2, 100), (3, 100), (5, None)]
NOW = 1_700_000_000_000

PLACES = st.tuples(st.sampled_from([2, 3, 5]), st.integers(0, 99))
WORDS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=3).map(tuple)
BATCHES = st.builds(lambda place, words: PartlyAcknowledged(place[0], place[1], words), PLACES, WORDS)
RANGES = st.tuples(PLACES, PLACES).map(lambda two: AcknowledgedRange(*sorted(two)))
PIECES = st.builds(pieces_of, PLACES, st.lists(RANGES, max_size=5), st.lists(BATCHES, max_size=5), st.just(LENGTHS))
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
CURSORS = st.builds(
    CopiedCursor,
    name=TEXT,
    mark_delete=PLACES | st.just((-1, -1)),
    pieces=PIECES,
    properties=st.lists(st.tuples(TEXT, st.integers(-(1 << 63), (1 << 63) - 1)), max_size=3).map(tuple),
    subscription_properties=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
    replicated=st.booleans(),
    sources=st.lists(st.sampled_from(CursorSource), max_size=3).map(tuple),
    missing=st.lists(TEXT, max_size=2).map(tuple),
)
COPIES = st.builds(
    CursorCopy,
    topic=st.just(TOPIC),
    incarnation=st.integers(0, 9),
    at=st.integers(0, 1 << 45),
    cursors=st.lists(CURSORS, max_size=4).map(tuple),
    broker_version=TEXT,
)


def copy(at: int, mark: int = 0) -> CursorCopy:
    return CursorCopy(TOPIC, 0, at, (CopiedCursor("job", (2, mark)),))


def tokens():
    return map(str, count()).__next__


@given(COPIES)
def test_a_copy_is_read_as_it_was_written(written: CursorCopy):
    store = MemoryStore()
    assert write_copy(store, written, tokens(), None) == written
    assert read_copy(store, TOPIC) == written


@given(COPIES, st.data())
def test_a_copy_with_one_byte_changed_is_damage(written: CursorCopy, data: st.DataObject):
    store = MemoryStore()
    write_copy(store, written, tokens(), None)
    ((key, _),) = store.list()
    encoded = bytearray(store.read(key)[0])
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    store.put(key, bytes(encoded))
    with pytest.raises(DamagedRecordError):
        read_copy(store, TOPIC)


@given(PLACES, st.lists(RANGES, max_size=5), st.lists(BATCHES, max_size=5))
def test_pieces_hold_exactly_what_is_acknowledged_behind_the_mark_delete(mark, ranges, batches):
    cursor = CopiedCursor("s", mark, pieces_of(mark, ranges, batches, LENGTHS))
    acks = cursor.acks()
    for ledger, length in ((2, 100), (3, 100), (5, 100)):
        for entry in range(length):
            place = ledger, entry
            inside = any(one.after < place <= one.last for one in ranges)
            left = -1
            for batch in batches:
                if (batch.ledger, batch.entry) == place:
                    left &= left_of(batch.words)
            known = acks.get(ledger)
            if place <= mark:
                assert known is None or (not known.is_acknowledged(entry) and entry not in known.batches)
            elif inside or left == 0:
                assert known is not None
                assert known.is_acknowledged(entry)
                assert entry not in known.batches
            else:
                found = known.batches.get(entry) if known else None
                assert (found.left if found else -1) == left
                assert known is None or not known.is_acknowledged(entry)


@given(WORDS)
def test_ack_sets_stay_as_brokers_send_them(words: tuple[int, ...]):
    left = left_of(words)
    found = words_of(BatchLeft(left.bit_length() + 1, left))
    assert left_of(found) == left
    assert not found or found[-1] != 0


def test_a_ledger_that_the_topic_lists_no_more_is_left_out_as_brokers_do():
    ranges = [AcknowledgedRange((1, 3), (1, 9)), AcknowledgedRange((2, 4), (2, 5))]
    assert set(pieces_of((2, 0), ranges, [PartlyAcknowledged(9, 1, (2,))], LENGTHS)) == {2}


def test_a_copy_says_the_same_wherever_it_was_read():
    first = CursorCopy(TOPIC, 0, 1, (CopiedCursor("a", (2, 1), sources=(CursorSource.NODE,)),))
    second = CursorCopy(TOPIC, 0, 2, (CopiedCursor("a", (2, 1), sources=(CursorSource.BROKER,)),), "4.0.7")
    assert digest_of(first) == digest_of(second)
    others = (
        CursorCopy(TOPIC, 1, 1, first.cursors),
        CursorCopy(TOPIC, 0, 1, (CopiedCursor("a", (2, 2)),)),
        CursorCopy(TOPIC, 0, 1, (CopiedCursor("a", (2, 1), replicated=True),)),
        CursorCopy(TOPIC, 0, 1, (CopiedCursor("a", (2, 1), missing=("batches",)),)),
        CursorCopy(TOPIC, 0, 1, (CopiedCursor("a", (2, 1), {2: encode_piece(acks_of([(4, 5)]))}),)),
        CursorCopy(TOPIC, 0, 1),
    )
    assert len({digest_of(first), *map(digest_of, others)}) == len(others) + 1


def test_the_newest_of_a_moment_is_found():
    store, token = MemoryStore(), tokens()
    for at in (100, 200, 300):
        write_copy(store, copy(at, at), token, None)
    assert copy_times(store, TOPIC) == [100, 200, 300]
    assert read_copy(store, TOPIC) == copy(300, 300)
    assert read_copy(store, TOPIC, 299) == copy(200, 200)
    assert read_copy(store, TOPIC, 200) == copy(200, 200)
    assert read_copy(store, TOPIC, 99) is None


def test_two_owners_at_the_same_moment_lose_nothing():
    store, token = MemoryStore(), tokens()
    assert write_copy(store, copy(100, 1), token, None).at == 100
    assert write_copy(store, copy(100, 2), token, None).at == 101
    assert read_copy(store, TOPIC, 100) == copy(100, 1)
    assert read_copy(store, TOPIC) == copy(101, 2)


def test_a_clock_that_goes_back_makes_no_copy_older_than_the_newest():
    store, token = MemoryStore(), tokens()
    write_copy(store, copy(100, 1), token, None)
    assert write_copy(store, copy(50, 2), token, 100).at == 101
    assert read_copy(store, TOPIC) == copy(101, 2)


def test_a_damaged_copy_is_told_as_such():
    store = MemoryStore()
    store.put(cursor_copies_folder(TOPIC) + slot_name(5), b"nothing of ours")
    with pytest.raises(DamagedRecordError):
        read_copy(store, TOPIC)


def test_thinning_removes_from_the_bucket_what_the_history_does_not_need():
    store, token = MemoryStore(), tokens()
    for at in (NOW - 2 * DAY_MS, NOW - 2 * DAY_MS + 1, NOW):
        write_copy(store, copy(at), token, None)
    assert thin_copies(store, TOPIC) == 1
    assert copy_times(store, TOPIC) == [NOW - 2 * DAY_MS + 1, NOW]


TIMES = st.lists(
    st.integers(0, ALL_MS) | st.integers(0, HOURLY_MS + 2 * DAY_MS) | st.integers(0, DAILY_MS + 40 * DAY_MS),
    max_size=60,
).map(lambda ages: sorted({NOW - age for age in ages}))


@given(TIMES)
def test_the_newest_and_the_last_day_always_stay(times: list[int]):
    gone = set(removable(times))
    assert not any(times[-1] - time < ALL_MS for time in gone)
    assert gone <= set(times)


@given(TIMES)
def test_each_hour_and_each_day_keeps_its_last_copy(times: list[int]):
    kept = set(times) - set(removable(times))
    for time in times:
        age = times[-1] - time
        span = HOUR_MS if age < HOURLY_MS - HOUR_MS else DAY_MS
        if age < DAILY_MS - DAY_MS:
            assert any(one // span == time // span and one >= time for one in kept)


@given(TIMES, st.integers(0, 60))
def test_thinning_in_between_changes_nothing(times: list[int], first: int):
    early = times[:first]
    between = sorted({*early} - {*removable(early)}) + times[first:]
    assert set(between) - set(removable(between)) == set(times) - set(removable(times))


@given(TIMES)
def test_what_is_kept_is_bounded(times: list[int]):
    kept = [time for time in times if time not in set(removable(times))]
    old = [time for time in kept if times[-1] - time >= HOURLY_MS]
    assert len({time // DAY_MS for time in old}) == len(old)
    assert not kept or kept[-1] - kept[0] < DAILY_MS
