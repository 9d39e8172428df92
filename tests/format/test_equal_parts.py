"""Parts of equal length (cuts version 3): each but the last has exactly the part size, and is read as any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedObjectError, FatalError
from offloader.format.blocks import BlockHeader, entries, read_blocks
from offloader.format.cutter import Consecutive, CutPart, PartCutter
from offloader.format.entry import UNREADABLE
from offloader.format.index import IndexEntry, decode_index, decode_part_index, part_index_size
from offloader.format.ledger_account import account_ledger
from offloader.format.strict import account
from offloader.format.v1 import LedgerIndex
from offloader.model import GIB, V3, SegmentLayout

from .support import Stored, cut_all, cutter, sealed, streams

MOST_OVERHEAD = 128 + 12 + 4 + part_index_size(1)
LARGEST = 1500  # of `streams`


def equal_cuts() -> st.SearchStrategy[SegmentLayout]:
    """Parts that take any entry of `streams`."""
    return st.builds(
        SegmentLayout,
        part_size=st.integers(LARGEST + MOST_OVERHEAD, 6000),
        block_size=st.integers(140, 3000),
        index_step=st.integers(20, 600),
        version=st.just(V3),
    )


@given(streams(), equal_cuts())
def test_each_part_but_the_last_has_exactly_the_part_size_and_all_is_read_back(stream, cuts):
    parts = cut_all(stream, cuts)
    assert {p.size for p in parts[:-1]} <= {cuts.part_size}
    assert parts[-1].size <= cuts.part_size
    segment = sealed(parts)
    assert [Stored(b.header.ledger, e.entry, e.data) for b in read_blocks(segment.data) for e in entries(b)] == stream
    found = account(segment.data, decode_index(segment.index), own=True, equal_parts=True)
    assert found.entries == len(stream)
    assert found.length == 128 * found.blocks + 12 * found.entries + found.payload + found.padding
    for cut in parts:
        part = cut.to_part("etag", 0)
        assert tuple(decode_part_index(cut.data()[-part_index_size(part.indexed) :], part)) == cut.index


@given(streams(), equal_cuts())
def test_a_part_ends_only_where_the_next_entry_does_not_fit(stream, cuts):
    parts = cut_all(stream, cuts)
    for number in range(1, len(parts)):
        taken = sum(r.count for p in parts[:number] for r in p.ledgers)
        begun = sum(r.count for p in parts[: number - 1] for r in p.ledgers)
        with_next = cut_all(stream[begun : taken + 1], replace(cuts, version=2, part_size=GIB))
        assert with_next[0].size > cuts.part_size


@given(streams(), equal_cuts(), st.lists(st.integers(1, 12), max_size=20))
def test_the_cut_does_not_depend_on_where_slices_end(stream, cuts, slice_lengths):
    parts, done = list[CutPart](), 0
    for length in [*slice_lengths, len(stream)]:
        offset, blocks = sum(p.size for p in parts), sum(p.blocks for p in parts)
        working = PartCutter(cuts, first_part=len(parts) + 1, offset=offset, first_block=blocks + 1, room=GIB)
        offered = [working.offer(s.ledger, s.entry, s.data, UNREADABLE) for s in stream[done : done + length]]
        whole = [p for p in offered if p is not None]
        parts += whole
        done += sum(r.count for p in whole for r in p.ledgers)
    last = working.finish()
    parts += [last] if last else []
    assert [p.data() for p in parts] == [p.data() for p in cut_all(stream, cuts)]


@given(equal_cuts(), st.lists(st.integers(0, LARGEST), min_size=1, max_size=60))
def test_many_entries_at_once_are_cut_as_one_by_one(cuts, sizes):
    stream = [Stored(7, number, bytes([number % 251]) * size) for number, size in enumerate(sizes)]
    many = Consecutive.of(7, 0, [s.data for s in stream])
    working, parts, taken = cutter(cuts), [], 0
    while taken < len(stream):
        count, part = working.offer_all(many, taken)
        assert count
        taken += count
        parts.append(part)
    parts.append(working.finish())
    assert [p.data() for p in parts if p] == [p.data() for p in cut_all(stream, cuts)]


@given(streams(), equal_cuts(), st.integers(0, 9000))
def test_an_object_exceeds_its_room_only_by_a_first_entry_that_is_larger(stream, cuts, room):
    working = cutter(cuts, room)
    size = 0
    for taken, stored in enumerate(stream, 1):
        if working.would_exceed_room(len(stored.data), stored.ledger, stored.entry):
            break
        cut = working.offer(stored.ledger, stored.entry, stored.data, UNREADABLE)
        size += cut.size if cut else 0
        assert size + working.pending_bytes <= room or taken == 1


def test_an_entry_that_fits_no_part_ends_the_object_and_is_refused_where_that_begins_with_it():
    cuts = SegmentLayout(part_size=1000, block_size=500, index_step=100, version=V3)
    largest = 1000 - MOST_OVERHEAD
    working = cutter(cuts)
    working.offer(1, 0, b"a" * largest, UNREADABLE)
    assert not working.would_exceed_room(largest, 1, 1)
    assert working.would_exceed_room(largest + 1, 1, 1)
    with pytest.raises(FatalError, match=r"entry 1:0 of .* raise partSizeInBytes"):
        cutter(cuts).offer(1, 0, b"a" * (largest + 1), UNREADABLE)


def test_damaged_padding_is_found():
    stream = [Stored(3, entry, bytes(300)) for entry in range(7)]
    cuts = SegmentLayout(part_size=1000, block_size=500, index_step=100, version=V3)
    parts = cut_all(stream, cuts)
    segment = sealed(parts)
    index = decode_index(segment.index)
    end = 1000 - part_index_size(len(parts[0].index))
    block = list(read_blocks(segment.data[:1000]))[-1]
    last = list(entries(block))[-1]
    begin = last.offset + 12 + len(last.data)
    assert end - begin > 40
    for at in (begin, begin + 3, begin + 4, begin + 17, end - 1, end):
        broken = bytearray(segment.data)
        broken[at] ^= 1
        with pytest.raises(DamagedObjectError):
            account(bytes(broken), index, own=True, equal_parts=True)
    with pytest.raises(DamagedObjectError):
        account(segment.data, index, own=True)


@pytest.mark.parametrize("longest", [2**24, 64])
def test_brokers_objects_may_be_made_of_such_blocks(longest, monkeypatch):
    monkeypatch.setattr("offloader.format.ledger_account._LONGEST_PART_INDEX", longest)
    stream = [Stored(3, entry, bytes(100 + 37 * entry)) for entry in range(12)]
    cuts = SegmentLayout(part_size=1200, block_size=700, index_step=2000, version=V3)
    parts = cut_all(stream, cuts)
    first = next(read_blocks(parts[0].data())).header
    data = b"".join(p.data() for p in parts)
    data = BlockHeader(1, first.length, 0, None).encode() + data[128:]
    blocks = list(read_blocks(data))
    points = [IndexEntry(3, b.header.first_entry, n, b.offset) for n, b in enumerate(blocks, 1)]
    index = LedgerIndex(len(data), b"", tuple(points))
    assert account_ledger([data], 3, index).entries == len(stream)
    broken = bytearray(data)
    broken[1200 - part_index_size(len(parts[0].index)) - 1] ^= 1
    with pytest.raises(DamagedObjectError):
        account_ledger([bytes(broken)], 3, index)
