"""What an entry says of itself is read exactly; one that is no message is told from others, whatever its bytes are."""

from __future__ import annotations

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.format.entry import ABORT_MARKER, COMMIT_MARKER, UNREADABLE, EntryFacts, crc_ok, fault, inspect

from .support import broker_metadata, checksummed, plain

SINGLE = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_000)
BATCH = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_001, num_messages_in_batch=100)
MARKER = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_002, marker_type=21)


def test_a_single_message_counts_as_one():
    assert inspect(checksummed(SINGLE)) == EntryFacts(1, 1_700_000_000_000, None, None)


def test_a_batch_counts_its_messages():
    assert inspect(checksummed(BATCH)) == EntryFacts(100, 1_700_000_000_001, None, None)


def test_a_marker_has_a_time_and_no_message():
    assert inspect(checksummed(MARKER)) == EntryFacts(0, 1_700_000_000_002, None, None)


def test_broker_metadata_in_front_gives_time_and_index():
    entry = broker_metadata(time=1_700_000_000_005, index=99) + checksummed(BATCH)
    assert inspect(entry) == EntryFacts(100, 1_700_000_000_001, 1_700_000_000_005, 99)


def test_broker_metadata_may_have_an_index_only():
    assert inspect(broker_metadata(index=0) + checksummed(SINGLE)) == EntryFacts(1, 1_700_000_000_000, None, 0)


def test_an_entry_without_checksum_is_legal():
    assert inspect(plain(BATCH)) == EntryFacts(100, 1_700_000_000_001, None, None)
    assert inspect(broker_metadata(time=5, index=7) + plain(SINGLE)) == EntryFacts(1, 1_700_000_000_000, 5, 7)


def test_an_entry_that_is_no_message_keeps_what_the_broker_says_of_it():
    assert inspect(broker_metadata(time=5, index=7) + b"?") == EntryFacts(0, None, 5, 7, unreadable=True)


def test_unknown_metadata_fields_do_no_harm():
    later = MessageMetadata.FromString(SINGLE.SerializeToString() + bytes([0xF8, 0x3F, 0x01]))  # field 1023
    assert inspect(checksummed(later)) == inspect(checksummed(SINGLE))


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\0\0\0\0", b"\0\0\0\x05abc", b"\xff" * 40, b"not an entry at all", plain(MessageMetadata())],
    ids=["empty", "one byte", "no metadata", "too short", "ones", "text", "no publish time"],
)
def test_what_promises_nothing_and_cannot_be_understood_is_unreadable(data):
    assert inspect(data) == UNREADABLE == EntryFacts(0, None, None, None, unreadable=True)
    assert crc_ok(data)
    assert fault(data) == ""


def test_unreadable_metadata_under_a_checksum_that_holds_are_not_damaged():
    body = b"\0\0\0\x02\xff\xff"
    assert inspect(b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body) == UNREADABLE


@given(st.data())
def test_any_flipped_bit_under_a_checksum_is_found(data):
    entry = checksummed(BATCH, b"some payload")
    bit = data.draw(st.integers(16, len(entry) * 8 - 1))
    damaged = bytearray(entry)
    damaged[bit // 8] ^= 1 << bit % 8
    assert inspect(bytes(damaged)) == UNREADABLE
    assert "CRC32C" in fault(bytes(damaged))
    assert not crc_ok(bytes(damaged))


@given(st.integers(2, 200))
def test_an_entry_that_ends_too_early_is_damaged(kept):
    front = broker_metadata(time=5, index=7)
    entry = (front + checksummed(BATCH))[:kept]
    cut_between_frames = len(front) <= kept <= len(front) + 1
    if kept >= len(front + checksummed(BATCH)) or cut_between_frames:
        assert crc_ok(entry)
        return
    assert inspect(entry) == UNREADABLE
    assert fault(entry)
    assert not crc_ok(entry)


def test_broker_metadata_that_cannot_be_parsed_is_damaged():
    entry = b"\x0e\x02\0\0\0\x02\xff\xff" + checksummed(SINGLE)
    assert inspect(entry) == UNREADABLE
    assert "broker metadata" in fault(entry)


@given(st.binary(max_size=60) | st.builds(lambda rest: b"\x0e\x02" + rest, st.binary(max_size=60)))
def test_no_bytes_are_too_odd_to_be_looked_at(entry):
    facts = inspect(entry)
    assert facts.messages >= 0
    assert facts.unreadable or not fault(entry)


@pytest.mark.parametrize("claimed", [-1, -(2**31)])
def test_a_batch_of_less_than_no_messages_counts_none(claimed):
    assert (
        inspect(checksummed(MessageMetadata(producer_name="p", publish_time=1, num_messages_in_batch=claimed))).messages
        == 0
    )


@pytest.mark.parametrize(("kind", "aborted"), [(COMMIT_MARKER, None), (ABORT_MARKER, (1, (1 << 64) - 1))])
def test_an_abort_marker_says_which_transaction_was_aborted(kind, aborted):
    marker = MessageMetadata(
        producer_name="",
        sequence_id=0,
        publish_time=1,
        marker_type=kind,
        txnid_most_bits=1,
        txnid_least_bits=(1 << 64) - 1,
    )
    assert inspect(checksummed(marker)) == EntryFacts(0, 1, aborted=aborted)


def test_a_message_of_a_transaction_marks_no_abort():
    message = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, txnid_most_bits=1, txnid_least_bits=2)
    assert inspect(checksummed(message)).aborted is None
