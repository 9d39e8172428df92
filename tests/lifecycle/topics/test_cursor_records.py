"""Records of removals and saved states: what is written is read back, and what is damaged is told."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError, OffloadError
from offloader.lifecycle.deletion.records import (
    DELETION,
    DeletionEvidence,
    DeletionProof,
    DeletionState,
    LedgerComponent,
    LedgerNode,
    LedgerType,
    PendingDeleteLedgerInfo,
)
from offloader.lifecycle.topics.cursors.former import forget_former, former_removals, pending_former
from offloader.lifecycle.topics.cursors.saved import SavedCursor
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.layout import cursor_folder, cursors_folder, parse_cursor_record_key, slot_name
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName, joined
from offloader.ports.subscriptions import SubscriptionLook
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_entry, encode_cursor_node
from offloader.storage.memory import MemoryStore

from .removing import write_former

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=8)
TOPICS = st.builds(TopicName, NAMES, NAMES, NAMES)
NUMBERS = st.integers(0, 2**63 - 1)
PLACES = st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**62))
RANGES = st.lists(st.tuples(PLACES, PLACES), max_size=5).map(
    lambda pairs: joined(AcknowledgedRange(*sorted(pair)) for pair in pairs)
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
LOOK = SubscriptionLook(1, (2, 2), (), 0, 0, 0)
SAVED = st.builds(SavedCursor, LOOKS, st.binary(max_size=40), st.none() | st.binary(max_size=40), st.integers(0, 2**62))


def record_of(saved):
    return PendingDeleteLedgerInfo(
        ledger_id=-1,
        ledger_type=LedgerType.SUBSCRIPTION,
        ledger_component=LedgerComponent.SUBSCRIPTION,
        topic_name="persistent://a/b/c",
        cursor_name="s",
        node=LedgerNode(b"", 0, 1),
        evidence=DeletionEvidence(DeletionProof.UNUSED, "persistent://a/b/c"),
        state=DeletionState.UNDOING,
        marked_at=1,
        subscription=saved,
    )


@given(SAVED)
def test_a_saved_state_is_read_back_with_its_record(saved):
    record = record_of(saved)
    assert record.is_valid
    assert DELETION.decode("k", DELETION.encode("t", record)) == record


def test_a_record_without_a_saved_state_deletes_nothing():
    assert not record_of(None).is_valid


@given(SAVED, st.data())
def test_what_is_cut_off_or_changed_is_damage(saved, data):
    sound = DELETION.encode("t", record_of(saved))
    at = data.draw(st.integers(0, len(sound) - 1))
    with pytest.raises((DamagedRecordError, FormatVersionError)):
        DELETION.decode("k", sound[:at])
    with pytest.raises((DamagedRecordError, FormatVersionError)):
        DELETION.decode("k", sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])


@given(SAVED)
def test_fields_of_a_newer_version_stay(saved):
    body = unwrap("k", DELETION.encode("t", record_of(saved))).body
    body.deletion.subscription.MergeFromString(b"\x9a\x06\x03new")
    again = DELETION.decode("k", DELETION.encode("t", DELETION.decode("k", wrap("t", body))))
    assert again.subscription.unknown_fields == b"\x9a\x06\x03new"


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9))
def test_ranges_that_no_cursor_has_are_damage_at_worst(numbers):
    body = unwrap("k", DELETION.encode("t", record_of(SavedCursor(LOOK, b"", None, 1)))).body
    body.deletion.subscription.CopyFrom(pb.SavedCursor(ranges=numbers))
    with suppress(OffloadError):
        for after, last in DELETION.decode("k", wrap("t", body)).subscription.look.ranges:
            assert after <= last


def former(store, name, state, ended=0, slot=0):
    write_former(store, TopicName("a", "b", "c"), name, state, ended, slot)


def test_what_an_earlier_version_left_pending_is_named_and_what_ended_is_forgotten_in_its_time():
    store = MemoryStore()
    for number, state in enumerate(("marked", "removing", "undoing", "given up")):
        former(store, f"pending/{number}", state)
    former(store, "again", "marked")
    former(store, "again", "undone", 5, slot=1)
    former(store, "late", "removed", 9)
    store.put(f"{cursor_folder('main', TopicName('a', 'b', 'c'), 'damaged')}records/{slot_name(0)}", b"?")
    pending = {one.subscription: one for one in pending_former(store, "main")}
    assert set(pending) == {"pending/0", "pending/1", "pending/2", "pending/3", "damaged"}
    assert pending["pending/1"].says == (
        "persistent://a/b/c: the removal of subscription pending/1 is removing, as an earlier version of the offloader "
        "recorded it: take it back with that version (`offloader topics cursors undo persistent://a/b/c pending/1 "
        "--yes`), then mark it anew with this one"
    )
    forget_former(store, "main", 6)
    assert {one.subscription for one in former_removals(store, "main")} == {*pending, "late"}
    assert not any("again" in key for key, _ in store.list(""))
    assert sum("/saved/" in key for key, _ in store.list("")) == 5


@given(TOPICS, NAMES | TEXT.filter(bool), st.integers(0, 10**9), NAMES)
def test_keys_of_earlier_versions_say_whose_they_are(topic, subscription, slot, cluster):
    key = f"{cursor_folder(cluster, topic, subscription)}records/{slot_name(slot)}"
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
