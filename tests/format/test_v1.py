"""The ledger-based format: Pulsar's objects are read exactly, and written byte for byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.errors import DamagedObjectError, FatalError, IntegrityError
from offloader.format import v1
from offloader.format.blocks import entries, read_blocks, read_entries
from offloader.format.index import IndexEntry
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from offloader.model import MIB

from .stock import encode_ledger_index, write_blocks
from .support import Fixture, sha256, v1_one_block, v1_tiny_blocks

BOTH = pytest.mark.parametrize(
    ("fixture", "ledger", "block_size"),
    [(v1_one_block(), 7, 64 * MIB), (v1_tiny_blocks(), 9, 1536)],
    ids=["one block", "tiny"],
)


@BOTH
def test_the_index_that_pulsar_wrote(fixture: Fixture, ledger, block_size):
    index = decode_ledger_index(fixture.index, ledger)
    sizes = [len(e.data) for b in read_blocks(fixture.data) for e in entries(b)]
    assert index.data_length == len(fixture.data)
    assert index.ledger_metadata.length == sum(sizes)
    assert index.ledger_metadata.lastEntryId == len(sizes) - 1
    blocks = enumerate(read_blocks(fixture.data), 1)
    assert index.entries == tuple(IndexEntry(ledger, b.header.first_entry, number, b.offset) for number, b in blocks)
    assert encode_ledger_index(index) == fixture.index


@BOTH
def test_reading_begins_where_the_index_points(fixture: Fixture, ledger, block_size):
    for place in decode_ledger_index(fixture.index, ledger).entries:
        begin = place.offset + 128
        first = next(read_entries(memoryview(fixture.data)[begin:], begin, place.entry))
        assert (first.entry, sha256(first.data)) == fixture.entries[place.entry]


@BOTH
def test_the_same_entries_give_pulsars_bytes(fixture: Fixture, ledger, block_size):
    held = [e.data for b in read_blocks(fixture.data) for e in entries(b)]
    assert b"".join(write_blocks(held, block_size)) == fixture.data


def test_an_entry_larger_than_a_block_is_refused_and_not_lost():
    with pytest.raises(FatalError, match="entry 1 of 117 bytes"):
        list(write_blocks([b"a", b"b" * 117, b"c"], 256))
    assert len(list(write_blocks([b"a", b"b" * 116, b"c"], 256))) == 3


def test_an_empty_ledger_has_no_block():
    assert list(write_blocks([], 256)) == []


def test_any_truncation_of_the_index_is_found():
    whole = v1_tiny_blocks().index
    for length in range(len(whole)):
        with pytest.raises(DamagedObjectError, match="index"):
            decode_ledger_index(whole[:length], 9)


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (0, 0xDF, "offset 0: df47de47"),
        (7, 0, "offset 4"),
        (23, 0x81, "offset 16: data header length 129"),
        (32, 0xFF, "offset 32: the ledger.s metadata cannot be parsed"),
        (-2, 0, "out of order"),
    ],
)
def test_a_damaged_index_is_named(at, byte, message):
    damaged = bytearray(v1_tiny_blocks().index)
    damaged[at] = byte
    with pytest.raises(DamagedObjectError, match=message):
        decode_ledger_index(bytes(damaged), 9)


def test_metadata_without_what_a_reader_needs_is_refused():
    index = decode_ledger_index(v1_tiny_blocks().index, 9)
    without_length = type(index)(index.data_length, b"\x08\x01\x10\x01\x28\x03", index.entries)
    with pytest.raises(DamagedObjectError, match="offset 32: the ledger's metadata"):
        decode_ledger_index(encode_ledger_index(without_length), 9)


def test_an_index_that_does_not_begin_with_entry_0_is_refused():
    index = decode_ledger_index(v1_tiny_blocks().index, 9)
    later = type(index)(index.data_length, index.metadata, index.entries[1:])
    with pytest.raises(DamagedObjectError, match="begins with entry 12"):
        decode_ledger_index(encode_ledger_index(later), 9)


# What we write.

METADATA = LedgerMetadataFormat(
    quorumSize=1, ensembleSize=1, length=5, lastEntryId=9, state=LedgerMetadataFormat.CLOSED
)


@st.composite
def ledger_indexes(draw: st.DrawFn) -> LedgerIndex:
    """Of ledgers of any size: entries, blocks and offsets ascend from the ledger's first entry on."""
    steps = st.tuples(st.integers(1, 2**40), st.integers(0, 3), st.integers(1, 2**40))
    found = [IndexEntry(5, 0, 1, draw(st.sampled_from([0, 0, 17])))]
    for entry, block, offset in draw(st.lists(steps, max_size=50)):
        last = found[-1]
        found.append(IndexEntry(5, last.entry + entry, last.block + block, last.offset + offset))
    length = found[-1].offset + 140 + draw(st.integers(0, 2**50))
    return LedgerIndex(length, METADATA.SerializeToString(), tuple(found))


@given(ledger_indexes())
def test_an_index_is_read_as_it_was_written(index: LedgerIndex):
    encoded = v1.encode_ledger_index(index.data_length, index.metadata, index.entries)
    assert decode_ledger_index(encoded, 5) == index
    assert encoded == encode_ledger_index(index)  # as Pulsar writes it


@given(ledger_indexes(), st.data())
def test_an_index_that_readers_would_misread_is_not_written(index: LedgerIndex, data):
    at = data.draw(st.integers(0, len(index.entries) - 1))
    place = index.entries[at]
    wrong = data.draw(
        st.sampled_from(
            [
                replace(place, offset=index.data_length),
                replace(place, offset=-1),
                replace(place, entry=-1),
                replace(place, block=0),
                *([replace(place, entry=1)] if at == 0 else [replace(place, entry=0), index.entries[at - 1]]),
            ]
        )
    )
    broken = (*index.entries[:at], wrong, *index.entries[at + 1 :])
    with pytest.raises(IntegrityError, match="no ledger's index"):
        v1.encode_ledger_index(index.data_length, index.metadata, broken)


@pytest.mark.parametrize("metadata", [b"", b"\xff", METADATA.SerializeToString()[:4]])
def test_an_index_without_whole_metadata_is_not_written(metadata):
    with pytest.raises(IntegrityError, match="metadata"):
        v1.encode_ledger_index(1_000, metadata, [IndexEntry(5, 0, 1, 0)])
