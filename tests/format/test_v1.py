"""The ledger-based format: Pulsar's objects are read exactly, and written byte for byte."""

from __future__ import annotations

import pytest

from offloader.errors import DamagedObjectError, FatalError
from offloader.format.part_index import IndexEntry
from offloader.format.reader import entries, read_blocks, read_entries
from offloader.format.v1 import decode_ledger_index
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
