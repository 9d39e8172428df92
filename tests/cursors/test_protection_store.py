"""What is protected, in the bucket: its bytes, and which records stay."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.core.acknowledged import AcknowledgedSet
from offloader.cursors.core.protection import Incarnation, Protection, RecordId
from offloader.cursors.protection_codec import ProtectedTopic, decode_protected, encode_protected
from offloader.cursors.protection_store import KEPT, ProtectionStore
from offloader.cursors.timed import TimedRecords
from offloader.errors import AccessDeniedError, DamagedRecordError
from offloader.metadata.layout import protected_folder
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore

TOPIC = TopicName("public", "default", "t")
NUMBERS = st.integers(0, (1 << 63) - 1)
MEMORY = st.builds(
    AcknowledgedSet,
    st.tuples(st.integers(-1, 1 << 40), st.integers(-1, 1 << 40)),
    st.dictionaries(st.integers(0, 1 << 40), st.integers(1, 1 << 200), max_size=3),
)
RECORDS = st.builds(RecordId, NUMBERS, st.none() | NUMBERS, st.integers(-1, 1 << 40), st.integers(-1, 1 << 40))
PROTECTIONS = st.builds(Protection, st.builds(Incarnation, NUMBERS, NUMBERS), RECORDS, MEMORY)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
PROTECTED = st.builds(ProtectedTopic, st.just(TOPIC), NUMBERS, st.dictionaries(TEXT, PROTECTIONS, max_size=3))
ONE = Protection(Incarnation(1, 2), RecordId(3, 4, 5, 6), AcknowledgedSet((1, 2), {1: 0xFF0}))


@given(PROTECTED)
def test_a_record_says_what_was_written(protected):
    assert decode_protected("k", encode_protected("token", protected)) == protected


@given(PROTECTED, st.data())
def test_a_damaged_record_is_told_as_such(protected, data):
    encoded = bytearray(encode_protected("token", protected))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedRecordError):
        decode_protected("k", bytes(encoded))


@pytest.fixture
def store():
    return ProtectionStore(MemoryStore(), map(str, count()).__next__)


def times(store):
    return TimedRecords(store.store, protected_folder(TOPIC)).times()


def test_the_newest_record_counts_whatever_the_clock_says_and_few_stay(store):
    assert store.read(TOPIC) == {}
    for number in range(5):
        store.write(TOPIC, {f"s{number}": ONE}, 10 - number)
    assert store.read(TOPIC) == {"s4": ONE}
    assert times(store) == [13, 14]
    assert len(times(store)) == KEPT


def test_where_nothing_may_be_deleted_former_records_stay(store, monkeypatch):
    def refuse(_keys):
        raise AccessDeniedError("no")

    monkeypatch.setattr(store.store, "delete", refuse)
    for number in range(4):
        store.write(TOPIC, {f"s{number}": ONE}, number)
    assert store.read(TOPIC) == {"s3": ONE}
    assert len(times(store)) == 4


def test_two_that_write_at_the_same_time_take_a_record_each(store):
    store.write(TOPIC, {"a": ONE}, 5)
    ProtectionStore(store.store, lambda: "another").write(TOPIC, {"b": ONE}, 5)
    assert store.read(TOPIC) == {"b": ONE}


def test_a_damaged_record_protects_nothing(store):
    store.write(TOPIC, {"a": ONE}, 5)
    store.store.put(f"{protected_folder(TOPIC)}{6:020d}", b"junk", if_absent=True)
    assert store.read(TOPIC) == {}
    store.write(TOPIC, {"a": ONE}, 5)
    assert store.read(TOPIC) == {"a": ONE}
