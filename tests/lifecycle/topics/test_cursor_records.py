"""Records of removals and saved states: what is written is read back, and what is damaged is told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader.bookkeeper.cursor_codec import encode_cursor_entry, encode_cursor_node
from offloader.bookkeeper.cursor_state import CursorState
from offloader.errors import DamagedRecordError, FormatVersionError, OffloadError
from offloader.lifecycle.topics.cursors.record_codec import (
    decode_removal,
    decode_saved,
    encode_removal,
    encode_saved,
)
from offloader.lifecycle.topics.cursors.records import CursorRemoval, RemovalState, SavedCursor
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import cursor_records_folder, cursors_folder, parse_cursor_record_key, slot_name
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName, joined
from offloader.ports.subscriptions import SubscriptionLook

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)
TOPICS = st.builds(TopicName, NAMES, NAMES, NAMES)
NUMBERS = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 2**31 - 1)
PLACES = st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62))
RANGES = st.lists(st.tuples(PLACES, PLACES), max_size=5).map(
    lambda pairs: joined(AcknowledgedRange(*sorted(pair)) for pair in pairs)
)
RECORDS = st.builds(
    CursorRemoval,
    topic=TOPICS,
    subscription=TEXT,
    state=st.sampled_from(RemovalState),
    marked_at=NUMBERS,
    marked_by=TEXT,
    saved=NUMBERS,
    held=NUMBERS,
    tries=SMALL,
    next_at=NUMBERS,
    reason=TEXT,
    ended_at=NUMBERS,
)
LOOKS = st.builds(
    SubscriptionLook,
    created=NUMBERS,
    mark_delete=PLACES,
    ranges=RANGES,
    consumers=st.just(0),
    backlog=NUMBERS,
    last_active_ms=NUMBERS,
    replicated=st.booleans(),
    properties=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)
SAVED = st.builds(SavedCursor, LOOKS, st.binary(max_size=40), st.none() | st.binary(max_size=40), st.integers(0, 2**62))


@given(RECORDS)
def test_a_record_is_read_back(record):
    assert decode_removal("k", encode_removal("t", record)) == record


@given(SAVED)
def test_a_saved_state_is_read_back(saved):
    assert decode_saved("k", encode_saved("t", saved)) == saved


@given(SAVED, st.data())
def test_what_is_cut_off_or_changed_is_damage(saved, data):
    sound = encode_saved("t", saved)
    at = data.draw(st.integers(0, len(sound) - 1))
    with pytest.raises((DamagedRecordError, FormatVersionError)):
        decode_saved("k", sound[:at])
    with pytest.raises((DamagedRecordError, FormatVersionError)):
        decode_saved("k", sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])


@given(RECORDS, SAVED)
def test_fields_of_a_newer_version_stay(record, saved):
    for kind, encode, decode, value in (
        ("cursor_removal", encode_removal, decode_removal, record),
        ("saved_cursor", encode_saved, decode_saved, saved),
    ):
        body = unwrap("k", encode("t", value)).body
        getattr(body, kind).MergeFromString(b"\x9a\x06\x03new")
        again = decode("k", encode("t", decode("k", wrap("t", body))))
        assert again.unknown_fields == b"\x9a\x06\x03new"


def test_a_record_of_another_kind_or_word_is_refused():
    record = CursorRemoval(TopicName("a", "b", "c"), "s", RemovalState.MARKED, 1, "x", 0)
    with pytest.raises(DamagedRecordError, match="does not belong here"):
        decode_saved("k", encode_removal("t", record))
    body = unwrap("k", encode_removal("t", record)).body
    body.cursor_removal.state = "frozen"
    with pytest.raises(FormatVersionError, match="newer"):
        decode_removal("k", wrap("t", body))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9))
def test_ranges_that_no_cursor_has_are_damage_at_worst(numbers):
    body = pb.Body(saved_cursor=pb.SavedCursor(ranges=numbers))
    with suppress(OffloadError):
        for after, last in decode_saved("k", wrap("t", body)).look.ranges:
            assert after <= last


@given(TOPICS, NAMES | TEXT.filter(bool), st.integers(0, 10**9), NAMES)
def test_keys_say_whose_they_are(topic, subscription, slot, cluster):
    key = cursor_records_folder(cluster, topic, subscription) + slot_name(slot)
    assert parse_cursor_record_key(cluster, key) == ((topic, subscription), slot)
    assert key.startswith(cursors_folder(cluster))
    assert parse_cursor_record_key(cluster, key.replace("/records/", "/saved/")) is None


def test_the_brokers_memory_counts_and_what_is_stored_for_the_rest():
    """Acknowledgements reach the store a minute later; batches are told by nobody else."""
    node = CursorState((1, 0), cursor_ledger=7, subscription_properties=(("owner", "joe"),))
    entry = CursorState(
        (2, 0), (AcknowledgedRange((2, 3), (2, 4)),), tuple(PartlyAcknowledged(2, n, (1,)) for n in (1, 5, 8))
    )
    look = SubscriptionLook(1, (2, 2), (AcknowledgedRange((2, 3), (2, 6)),), 0, 0, 0)
    saved = SavedCursor(look, encode_cursor_node(node), encode_cursor_entry(entry), 9)
    assert saved.state == CursorState(
        (2, 2),
        (AcknowledgedRange((2, 3), (2, 6)),),
        (PartlyAcknowledged(2, 8, (1,)),),
        (),
        (("owner", "joe"),),
        7,
    )
