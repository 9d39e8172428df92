"""Strict accounting: every byte that is not payload is proven to be what it must be, in chunks of any sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedObjectError
from offloader.format.blocks import BlockHeader, entries, padding, read_blocks
from offloader.format.index import IndexEntry, IndexGroup, decode_index, encode_index, part_index_size
from offloader.format.strict import account, check_ledger_infos
from offloader.model import LedgerRange, SegmentLayout

from .support import TIMESTAMP, Sealed, Stored, cut_all, sealed, small_cuts, streams, v2_one_ledger_one_block

SMALL = SegmentLayout(part_size=300, block_size=200, index_step=30)


def small_segment() -> Sealed:
    stream = [Stored(20, e, bytes([17 * e % 251]) * (e % 5 * 9)) for e in range(9)]
    return sealed(
        cut_all([*stream, Stored(20, 11, b"gap"), Stored(2**53 + 1, 0, b""), Stored(2**53 + 1, 1, b"x" * 300)], SMALL)
    )


@given(streams(), small_cuts())
def test_every_byte_of_our_objects_is_accounted_for(stream, cuts):
    parts = cut_all(stream, cuts)
    segment = sealed(parts)
    found = account(segment.data, decode_index(segment.index), own=True)
    assert found.ledgers == segment.ledgers
    assert found.entries == len(stream)
    assert found.payload == sum(len(s.data) for s in stream)
    assert found.padding == 4 * found.blocks + sum(part_index_size(len(p.index)) for p in parts)
    assert found.length == 128 * found.blocks + 12 * found.entries + found.payload + found.padding == len(segment.data)
    check_ledger_infos(decode_index(segment.index), segment.ledgers, TIMESTAMP)


@given(streams(max_entries=15), small_cuts(), st.lists(st.integers(0, 400), max_size=30))
def test_chunks_may_end_anywhere(stream, cuts, lengths):
    segment = sealed(cut_all(stream, cuts))
    index = decode_index(segment.index)
    assert account(_chunks(segment.data, lengths), index, own=True) == account(segment.data, index, own=True)


def _chunks(data: bytes, lengths: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for length in lengths:
        chunks.append(data[at : at + length])
        at += length
    return [*chunks, data[at:]]


def test_single_bytes_are_chunks_too():
    segment = small_segment()
    index = decode_index(segment.index)
    one_by_one = (segment.data[i : i + 1] for i in range(len(segment.data)))
    assert account(one_by_one, index, own=True) == account(segment.data, index, own=True)


def test_the_object_that_pulsar_wrote_has_padding_of_its_own_length():
    fixture = v2_one_ledger_one_block()
    index = decode_index(fixture.index)
    whole = LedgerRange(20, 0, 65, count=65, size=1_362_425)
    found = account(fixture.data, index)
    assert (found.length, found.blocks, found.entries) == (5_242_880, 1, 65)
    assert (found.payload, found.padding, found.ledgers) == (1_362_425, 3_879_547, (whole,))
    with pytest.raises(DamagedObjectError, match="3879547 bytes of padding and part index, where 36 belong"):
        account(fixture.data, index, own=True)


def test_any_flipped_bit_outside_payloads_is_found():
    segment = small_segment()
    index = decode_index(segment.index)
    payload = {
        at
        for b in read_blocks(segment.data)
        for e in entries(b)
        for at in range(e.offset + 12, e.offset + 12 + len(e.data))
    }
    for bit in range(len(segment.data) * 8):
        if bit // 8 not in payload:
            with pytest.raises(DamagedObjectError):
                account(_flipped(segment.data, bit), index, own=True)


def test_any_flipped_bit_of_the_index_is_found():
    segment = small_segment()
    for bit in range(len(segment.index) * 8):
        with pytest.raises(DamagedObjectError):
            _check(segment, _flipped(segment.index, bit))


def _check(segment: Sealed, encoded: bytes) -> None:
    index = decode_index(encoded)
    check_ledger_infos(index, segment.ledgers, TIMESTAMP)
    account(segment.data, index, own=True)


def _flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_any_truncation_and_any_addition_is_found():
    segment = small_segment()
    index = decode_index(segment.index)
    for length in range(len(segment.data)):
        with pytest.raises(DamagedObjectError):
            account(segment.data[:length], index, own=True)
    with pytest.raises(DamagedObjectError):
        account(segment.data + b"\0", index, own=True)


def test_two_objects_with_swapped_blocks_are_not_each_other():
    segment = small_segment()
    first, second = list(read_blocks(segment.data))[:2]
    swapped = segment.data[second.offset : second.offset + second.header.length] + segment.data[: first.header.length]
    rest = segment.data[second.offset + second.header.length :]
    with pytest.raises(DamagedObjectError):
        account(swapped + rest, decode_index(segment.index), own=True)


def test_an_object_whose_last_part_has_no_index_is_not_whole():
    data = block(0, ENTRY_0, padding(4))
    index = decode_index(index_for(data, (0, 1, 0)))
    assert account(data, index).entries == 1
    with pytest.raises(
        DamagedObjectError, match="offset 145: the object ends here, and its last part's index is missing"
    ):
        account(data, index, own=True)


def block(first: int, contents: str, tail: bytes) -> bytes:
    held = bytes.fromhex(contents) + tail
    return BlockHeader(2, 128 + len(held), first, 3).encode() + held


def index_for(data: bytes, *places: tuple[int, int, int]) -> bytes:
    metadata = decode_index(sealed(cut_all([Stored(3, 0, b"a")], SegmentLayout())).index).groups[0].metadata
    return encode_index(len(data), [IndexGroup(3, metadata, tuple(IndexEntry(3, *p) for p in places))])


ENTRY_0 = "00000001 0000000000000000 61"
ENTRY_1 = "00000001 0000000000000001 62"


@pytest.mark.parametrize(
    ("data", "places", "message"),
    [
        (block(0, ENTRY_0, b""), [(0, 1, 0)], "offset 141: 0 bytes of padding"),
        (block(0, ENTRY_0[:-2], b""), [(0, 1, 0)], "offset 128: entry 0 is 1 bytes longer than its block"),
        (block(0, "", padding(20)), [(0, 1, 0)], "offset 128: the block holds no entry"),
        (block(0, ENTRY_0 + ENTRY_1, b"\xfe"), [(0, 1, 0), (1, 1, 12)], "offset 140: the index has"),
        (block(0, ENTRY_0 + ENTRY_1, b"\xfe"), [(0, 1, 0), (1, 1, 14)], "offset 142: no entry begins"),
        (block(0, ENTRY_0 + ENTRY_1, b"\xfe"), [(0, 1, 0), (1, 2, 13)], "offset 141: the index has"),
        (block(0, ENTRY_0 + ENTRY_1, b"\xfe"), [(0, 1, 0), (2, 1, 13)], "offset 141: the index has"),
        (block(0, ENTRY_0 + ENTRY_1, b"\xfe"), [(1, 1, 13)], "offset 0: the index does not name"),
        (block(0, ENTRY_0, b"\xfe") + block(1, ENTRY_1, b"\xfe"), [(0, 1, 0)], "offset 142: the index does not name"),
        (block(0, ENTRY_0, b"\xfe") * 2, [(0, 1, 0), (1, 2, 142)], "offset 142: 3:0 comes after 3:0"),
        (block(0, ENTRY_0, b"\xfe\xdc\xdf"), [(0, 1, 0)], "offset 143: neither an entry nor padding"),
    ],
)
def test_what_does_not_fit_is_named(data, places, message):
    with pytest.raises(DamagedObjectError, match=message):
        account(data, decode_index(index_for(data, *places)))


def test_foreign_padding_may_have_any_length_but_none():
    for length in range(1, 30):
        data = block(0, ENTRY_0 + ENTRY_1, padding(length))
        assert account(data, decode_index(index_for(data, (0, 1, 0)))).padding == length


def test_a_ledger_based_block_is_not_of_a_streaming_object():
    data = BlockHeader(1, 145, 0, None).encode() + bytes.fromhex(ENTRY_0) + padding(4)
    with pytest.raises(DamagedObjectError, match="ledger-based block"):
        account(data, decode_index(index_for(data, (0, 1, 0))))


def test_ledger_infos_must_be_those_of_the_record():
    segment = small_segment()
    index = decode_index(segment.index)
    with pytest.raises(DamagedObjectError, match="ledger 20 "):
        check_ledger_infos(index, segment.ledgers[1:], TIMESTAMP)
    with pytest.raises(DamagedObjectError, match="ledger 99 "):
        check_ledger_infos(index, [*segment.ledgers, LedgerRange(99, 0, 1, count=1, size=1)], TIMESTAMP)
    with pytest.raises(DamagedObjectError, match="ledger 20 "):
        check_ledger_infos(index, segment.ledgers, TIMESTAMP + 1)
