"""Reading back: Pulsar's objects exactly, the middle of a block from where the index points, and errors that name the
offset."""

from __future__ import annotations

import pytest

from offloader.errors import DamagedObjectError
from offloader.format.blocks import (
    BlockHeader,
    decode_header,
    entries,
    padding,
    padding_fault,
    read_blocks,
    read_entries,
)
from offloader.model import SegmentLayout

from .support import Fixture, Stored, cut_all, sha256, v1_one_block, v1_tiny_blocks, v2_one_ledger_one_block


@pytest.mark.parametrize(
    "fixture", [v1_one_block(), v1_tiny_blocks(), v2_one_ledger_one_block()], ids=["v1", "v1 tiny", "v2"]
)
def test_objects_that_pulsar_wrote(fixture: Fixture):
    found = [(e.entry, sha256(e.data)) for b in read_blocks(fixture.data) for e in entries(b)]
    assert found == fixture.entries


def test_blocks_of_pulsars_tiny_object():
    fixture = v1_tiny_blocks()
    blocks = list(read_blocks(fixture.data))
    assert [b.header.length for b in blocks] == [1536] * 7 + [603]
    paddings = [len(b.contents) - sum(12 + len(e.data) for e in entries(b)) for b in blocks]
    assert paddings == [64, 512, 372, 372, 320, 96, 1, 0]
    assert {b.header.ledger for b in blocks} == {None}


def test_a_range_in_the_middle_of_an_object():
    data = v1_tiny_blocks().data
    begin = 3 * 1536
    (block,) = read_blocks(data[begin : begin + 1536], begin)
    assert block.offset == begin
    assert next(entries(block)).offset == begin + 128


def test_reading_from_the_middle_of_a_block_stops_at_its_padding():
    (part,) = cut_all([Stored(1, 0, b"a"), Stored(1, 1, b"b"), Stored(1, 2, b"c"), Stored(2, 0, b"d")], SegmentLayout())
    found = list(read_entries(part.data()[128 + 13 :], 141, 1))
    assert [(e.entry, e.data, e.offset) for e in found] == [(1, b"b", 141), (2, b"c", 154)]


def test_a_block_without_entries_is_read_as_nothing():
    (block,) = read_blocks(BlockHeader(1, 160, 0, None).encode() + padding(32))
    assert list(entries(block)) == []


def block_of(contents: bytes) -> bytes:
    return BlockHeader(2, 128 + len(contents), 5, 20).encode() + contents


ENTRY = bytes.fromhex("00000001 0000000000000005 61")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (ENTRY + ENTRY, "offset 1145: entry 5 stands where 6 belongs"),
        (bytes.fromhex("00000001 0000000000000004 61"), "offset 1132: entry 4 stands where 5 belongs"),
        (ENTRY + bytes.fromhex("00000002 0000000000000006 61"), "offset 1141: entry 6 of 2 bytes is cut off"),
        (ENTRY + b"\0", "offset 1141: neither an entry nor padding"),
        (ENTRY + b"\xfe\xdd" + bytes(20), "offset 1142: neither an entry nor padding"),
    ],
)
def test_damage_in_a_block_is_named(contents, message):
    (block,) = read_blocks(block_of(contents), 1000)
    with pytest.raises(DamagedObjectError, match=message):
        list(entries(block))


def test_a_cut_off_block_is_named():
    whole = block_of(ENTRY)
    with pytest.raises(DamagedObjectError, match="offset 1000: 1 bytes of this block of 141 are missing"):
        list(read_blocks(whole[:-1], 1000))
    with pytest.raises(DamagedObjectError, match="offset 1141: 3 bytes are too few for a block header"):
        list(read_blocks(whole + whole[:3], 1000))


@pytest.mark.parametrize("header", [BlockHeader(1, 500, 9, None), BlockHeader(2, 500, 2**60, 2**53 + 1)])
def test_headers_round_trip(header):
    assert decode_header(header.encode(), 0) == header


@pytest.mark.parametrize(
    ("at", "byte", "message"),
    [
        (0, 0x27, "offset 100: 27a66d32 is not the magic"),
        (11, 0x81, "offset 104: header length 129"),
        (19, 0x80, "offset 112: block length 128"),
        (12, 0x80, "offset 112: block length -"),
        (20, 0x80, "offset 120: first entry -"),
        (28, 0x80, "offset 128: -"),
        (36, 1, "offset 136: the header's fill"),
        (127, 1, "offset 227: the header's fill"),
    ],
)
def test_a_damaged_header_is_named(at, byte, message):
    encoded = bytearray(BlockHeader(2, 128, 0, 0).encode() if at == 19 else BlockHeader(2, 200, 0, 0).encode())
    encoded[at] = byte
    with pytest.raises(DamagedObjectError, match=message):
        decode_header(bytes(encoded), 100)


def test_a_ledger_id_in_a_ledger_based_header_is_damage():
    encoded = bytearray(BlockHeader(1, 200, 0, None).encode())
    encoded[35] = 1
    with pytest.raises(DamagedObjectError, match="offset 28"):
        decode_header(bytes(encoded), 0)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 65531, 65532, 65533, 200_001])
def test_padding_is_its_pattern_cut_off_anywhere(size):
    whole = padding(size)
    assert padding_fault(whole) is None
    assert padding_fault(whole[3:], 3) is None
    for at in {0, size // 2, size - 1} if size else ():
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert padding_fault(bytes(damaged)) == at
