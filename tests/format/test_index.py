"""The index object: exact bytes, any order of ledgers on reading, every seek equals a scan, damage is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.errors import DamagedObjectError, IntegrityError
from offloader.format.blocks import read_entries
from offloader.format.index import (
    Index,
    IndexEntry,
    IndexGroup,
    decode_index,
    encode_index,
    index_of_segment,
    ledger_info,
)
from offloader.model import LedgerRange, SegmentLayout

from .support import TIMESTAMP, Stored, cut_all, sealed, small_cuts, streams, v2_one_ledger_one_block


def info(ledger: int) -> bytes:
    return ManagedLedgerInfo.LedgerInfo(ledgerId=ledger, entries=1, size=1, timestamp=1).SerializeToString()


def group(ledger: int, *places: tuple[int, int, int]) -> IndexGroup:
    return IndexGroup(ledger, info(ledger), tuple(IndexEntry(ledger, *place) for place in places))


def test_the_index_that_pulsar_wrote():
    index = decode_index(v2_one_ledger_one_block().index)
    (held,) = index.groups
    assert index.data_length == 5_242_880
    assert held.entries == (IndexEntry(20, 0, 1, 0),)
    assert (held.info.ledgerId, held.info.entries, held.info.size, held.info.timestamp) == (
        20,
        65,
        1_362_425,
        TIMESTAMP,
    )
    assert encode_index(index.data_length, index.groups) == v2_one_ledger_one_block().index


def test_the_exact_bytes_of_a_small_index():
    ledgers = (LedgerRange(20, 7, 9, count=2, size=3, closed_with=9), LedgerRange(21, 0, 1, count=1, size=1))
    parts = cut_all([Stored(20, 7, b"abc"), Stored(20, 8, b""), Stored(21, 0, b"z")], SegmentLayout())
    expected = (
        "3d1fb0bc 0000007a 0000000000000130 0000000000000080"
        "0000000000000014 00000001 0000000d  0814 100a 1803 2080d095ffbc31  0000000000000007 00000001 0000000000000000"
        "0000000000000015 00000001 0000000d  0815 1001 1801 2080d095ffbc31  0000000000000000 00000002 000000000000009f"
    )
    assert index_of_segment([e for p in parts for e in p.index], ledgers, 304, TIMESTAMP) == bytes.fromhex(expected)


@pytest.mark.parametrize("named", [[], [20, 20], [20, 21]])
def test_parts_and_record_must_speak_of_the_same_ledgers(named):
    parts = cut_all([Stored(20, 7, b"abc")], SegmentLayout())
    with pytest.raises(IntegrityError, match=r"hold ledgers \[20\]"):
        index_of_segment(
            parts[0].index, [LedgerRange(ledger, 7, 8, count=1, size=3) for ledger in named], 147, TIMESTAMP
        )


@given(streams(), small_cuts())
def test_what_is_encoded_is_decoded(stream, cuts):
    parts = cut_all(stream, cuts)
    segment = sealed(parts)
    index = decode_index(segment.index)
    assert index.data_length == len(segment.data)
    assert list(index.entries()) == [e for p in parts for e in p.index]
    assert [g.metadata for g in index.groups] == [ledger_info(r, TIMESTAMP) for r in segment.ledgers]
    assert encode_index(index.data_length, index.groups) == segment.index


def test_ledgers_are_read_in_any_order_and_written_in_one():
    groups = [group(2**53 + 1, (0, 2, 500)), group(2**53, (4, 1, 0)), group(2**53 + 2, (0, 3, 900))]
    encoded = encode_index(2000, groups)
    assert encode_index(2000, reversed(groups)) == encoded
    head, pieces = encoded[:24], [encode_index(2000, [g])[24:] for g in groups]
    assert (
        decode_index(head + b"".join(pieces))
        == decode_index(head + b"".join(reversed(pieces)))
        == decode_index(encoded)
    )
    assert [g.ledger for g in decode_index(encoded).groups] == [2**53, 2**53 + 1, 2**53 + 2]


def test_metadata_fields_of_a_newer_pulsar_are_kept():
    newer = info(3) + bytes([0xF8, 0x3F, 0x01])  # field 1023
    encoded = encode_index(500, [IndexGroup(3, newer, (IndexEntry(3, 0, 1, 0),))])
    assert decode_index(encoded).groups[0].metadata == newer


@given(streams(), small_cuts())
def test_seeking_finds_what_a_scan_finds(stream, cuts):
    segment = sealed(cut_all(stream, cuts))
    index = decode_index(segment.index)
    for stored in stream:
        place = index.seek(stored.ledger, stored.entry)
        assert place is not None
        begin = place.offset + 128
        found = read_entries(memoryview(segment.data)[begin:], begin, place.entry)
        assert next(e.data for e in found if e.entry == stored.entry) == stored.data


@given(streams(), small_cuts(), st.integers(0, 60))
def test_seeking_is_the_last_place_at_or_before(stream, cuts, entry):
    index = decode_index(sealed(cut_all(stream, cuts)).index)
    for ledger in {s.ledger for s in stream} | {5}:
        before = [e for e in index.entries() if e.ledger == ledger and e.entry <= entry]
        assert index.seek(ledger, entry) == (before[-1] if before else None)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "names no ledger"),
        ([group(3)], "with 0 entries"),
        ([group(3, (0, 1, 0)), group(3, (5, 2, 300))], "ledger 3 stands in it twice"),
        ([group(3, (4, 1, 0), (4, 1, 100))], "index offset 68"),
        ([group(3, (4, 1, 100), (5, 1, 100))], "index offset 68"),
        ([group(3, (4, 2, 0), (5, 1, 100))], "index offset 68"),
        ([group(3, (0, 0, 0))], "index offset 48.*out of range"),
        ([group(3, (-1, 1, 0))], "index offset 48.*out of range"),
        ([group(3, (0, 1, -1))], "index offset 48.*out of range"),
        ([group(3, (0, 1, 1000))], "index offset 48.*out of range"),
        ([IndexGroup(3, info(4), (IndexEntry(3, 0, 1, 0),))], "metadata of ledger 3 says ledger 4"),
        ([IndexGroup(3, b"\xff", (IndexEntry(3, 0, 1, 0),))], "cannot be parsed"),
        ([IndexGroup(0, b"", (IndexEntry(0, 0, 1, 0),))], "metadata of ledger 0 says ledger None"),
    ],
)
def test_an_index_that_makes_no_sense_is_refused(groups, message):
    with pytest.raises(DamagedObjectError, match=message):
        decode_index(encode_index(1000, groups))


def test_any_truncation_is_found():
    segment = sealed(cut_all([Stored(1, 0, b"a"), Stored(1, 5, b"b"), Stored(2, 0, b"c")], SegmentLayout()))
    for length in range(len(segment.index)):
        with pytest.raises(DamagedObjectError, match="index"):
            decode_index(segment.index[:length])
    with pytest.raises(DamagedObjectError, match="offset 4"):
        decode_index(segment.index + b"\0")


def test_an_index_without_a_ledger_has_no_place():
    assert Index(100, (group(3, (4, 1, 0)),)).seek(2, 0) is None
