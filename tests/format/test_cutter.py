"""Cuts: the same start, entries and cuts give the same bytes, wherever slices end; blocks, parts and index keep their
rules."""

from __future__ import annotations

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import DamagedObjectError, IntegrityError
from offloader.format.blocks import Block, entries, read_blocks
from offloader.format.cutter import CutPart, PartCutter
from offloader.format.entry import UNREADABLE, EntryFacts
from offloader.format.index import IndexEntry, decode_part_index, encode_part_index, part_index_size
from offloader.model import GIB, KIB, EntryStats, Gap, GapKind, LedgerRange, SegmentLayout

from .support import Stored, cut_all, cutter, small_cuts, streams


@given(streams(), small_cuts())
def test_what_is_cut_is_read_back(stream, cuts):
    data = b"".join(p.data() for p in cut_all(stream, cuts))
    found = [Stored(b.header.ledger, e.entry, e.data) for b in read_blocks(data) for e in entries(b)]
    assert found == stream


@given(streams(), small_cuts(), st.lists(st.integers(1, 12), max_size=20))
def test_the_cut_does_not_depend_on_where_slices_end(stream, cuts, slice_lengths):
    in_one_go = [_essence(p) for p in cut_all(stream, cuts)]
    assert [_essence(p) for p in _cut_in_slices(stream, cuts, slice_lengths)] == in_one_go


def _cut_in_slices(stream: list[Stored], cuts: SegmentLayout, slice_lengths: list[int]) -> list[CutPart]:
    """Each slice uploads whole parts only; the next one begins after the last of them. A final slice seals."""
    parts: list[CutPart] = []
    done = 0
    for length in slice_lengths:
        working = _continued(cuts, parts)
        offered = [working.offer(s.ledger, s.entry, s.data, UNREADABLE) for s in stream[done : done + length]]
        whole = [p for p in offered if p is not None]
        parts += whole
        done += sum(r.count for p in whole for r in p.ledgers)
        assert (working.offset, working.next_part) == (sum(p.size for p in parts), len(parts) + 1)
        assert working.next_block == sum(p.blocks for p in parts) + 1
    working = _continued(cuts, parts)
    offered = [working.offer(s.ledger, s.entry, s.data, UNREADABLE) for s in stream[done:]]
    return [p for p in (*parts, *offered, working.finish()) if p is not None]


def _continued(cuts: SegmentLayout, parts: list[CutPart]) -> PartCutter:
    offset, blocks = sum(p.size for p in parts), sum(p.blocks for p in parts)
    return PartCutter(cuts, first_part=len(parts) + 1, offset=offset, first_block=blocks + 1, room=GIB)


def _essence(part: CutPart) -> tuple[object, ...]:
    return (part.number, part.offset, part.size, part.data(), part.blocks, part.ledgers, part.index, part.stats)


@given(streams(), small_cuts())
def test_a_block_ends_only_where_the_next_entry_does_not_fit_or_does_not_follow(stream, cuts):
    blocks, lengths = list[Block](), list[int]()
    for part in cut_all(stream, cuts):
        blocks += read_blocks(part.data())
        lengths += [b.header.length for b in read_blocks(part.data())]
        lengths[-1] -= part_index_size(len(part.index))  # which is no reason to end a block
    contents = [list(entries(b)) for b in blocks]
    for length, held in zip(lengths, contents, strict=True):
        assert held
        assert length == 128 + sum(12 + len(e.data) for e in held) + 4
        assert length <= cuts.block_size or len(held) == 1
    for before, after, length, held, following in zip(
        blocks, blocks[1:], lengths, contents, contents[1:], strict=False
    ):
        follows = after.header.ledger == before.header.ledger and following[0].entry == held[-1].entry + 1
        assert not follows or length + 12 + len(following[0].data) > cuts.block_size


@given(streams(), small_cuts())
def test_a_part_ends_with_its_index(stream, cuts):
    for cut in cut_all(stream, cuts):
        part = cut.to_part("etag", 0)
        assert part.indexed == len(cut.index)
        assert tuple(decode_part_index(cut.data()[-part_index_size(part.indexed) :], part)) == cut.index


@given(streams(max_entries=10), small_cuts(), st.data())
def test_any_flipped_bit_of_a_part_s_index_is_damage(stream, cuts, data):
    cut = cut_all(stream, cuts)[-1]
    part = cut.to_part("etag", 0)
    tail = bytearray(cut.data()[-part_index_size(part.indexed) :])
    bit = data.draw(st.integers(0, len(tail) * 8 - 1))
    tail[bit // 8] ^= 1 << bit % 8
    with pytest.raises(
        DamagedObjectError, match=f"offset {part.offset + part.size - len(tail)}: the index of part {part.number}"
    ):
        decode_part_index(bytes(tail), part)


def test_an_index_of_another_length_is_not_the_part_s():
    (cut,) = cut_all([Stored(1, 0, b"a"), Stored(2, 0, b"b")], SegmentLayout())
    part = cut.to_part("etag", 0)
    for tail in (b"", encode_part_index(cut.index[:1]), cut.data()[-part_index_size(2) : -1]):
        with pytest.raises(DamagedObjectError, match="the index of part 1 is damaged"):
            decode_part_index(tail, part)


@given(streams(), small_cuts())
def test_a_part_closes_at_the_first_block_end_at_or_past_the_part_size(stream, cuts):
    parts = cut_all(stream, cuts)
    offset = 0
    for number, part in enumerate(parts, 1):
        lengths = [b.header.length for b in read_blocks(part.data(), part.offset)]
        assert (part.number, part.offset, part.size, part.blocks) == (number, offset, sum(lengths), len(lengths))
        assert part.size - lengths[-1] < cuts.part_size
        assert part.size >= cuts.part_size or part is parts[-1]
        offset += part.size


@given(streams(), small_cuts())
def test_a_part_names_what_it_holds_of_each_ledger(stream, cuts):
    remaining = iter(stream)
    for part in cut_all(stream, cuts):
        held = [next(remaining) for _ in range(sum(r.count for r in part.ledgers))]
        expected = []
        for ledger in dict.fromkeys(s.ledger for s in held):
            of = [s for s in held if s.ledger == ledger]
            expected.append(
                LedgerRange(ledger, of[0].entry, of[-1].entry + 1, count=len(of), size=sum(len(s.data) for s in of))
            )
        assert part.ledgers == tuple(expected)


@given(streams(), small_cuts())
def test_every_block_is_indexed_and_no_step_is_longer_than_asked_for_but_by_one_entry(stream, cuts):
    parts = cut_all(stream, cuts)
    index = [e for p in parts for e in p.index]
    places: dict[int, IndexEntry] = {}
    blocks = (b for p in parts for b in read_blocks(p.data(), p.offset))
    for number, block in enumerate(blocks, 1):
        held = list(entries(block))
        places |= {e.offset - 128: IndexEntry(block.header.ledger, e.entry, number, e.offset - 128) for e in held}
        points = [e.offset + 128 for e in index if e.block == number]
        assert points[0] == block.offset + 128
        end = held[-1].offset + 12 + len(held[-1].data)
        for point, following in zip(points, [*points[1:], end], strict=True):
            skipped = [e for e in held if point <= e.offset < following]
            assert following - point <= cuts.index_step or len(skipped) == 1
    assert all(places[e.offset] == e for e in index)


def test_a_part_may_have_exactly_the_part_size_and_not_one_byte_less():
    stream = [Stored(ledger, 0, b"a") for ledger in range(1, 5)]
    assert [p.size for p in cut_all(stream, SegmentLayout(part_size=177))] == [145 + 32] * 4
    assert [p.size for p in cut_all(stream, SegmentLayout(part_size=178))] == [290 + 60] * 2


def test_one_entry_larger_than_a_block_gets_a_block_of_its_own():
    stream = [Stored(1, 0, b"a"), Stored(1, 1, b"b" * 5000), Stored(1, 2, b"c")]
    (part,) = cut_all(stream, SegmentLayout(part_size=KIB * 100, block_size=KIB, index_step=KIB))
    assert [b.header.length for b in read_blocks(part.data())] == [
        128 + 13 + 4,
        128 + 5012 + 4,
        128 + 13 + 4 + part_index_size(3),
    ]


@given(streams(), small_cuts(), st.integers(0, 6000))
def test_an_object_exceeds_its_room_only_by_a_first_entry_that_is_larger(stream, cuts, room):
    working = cutter(cuts, room)
    taken, size = 0, 0
    for stored in stream:
        if working.would_exceed_room(len(stored.data), stored.ledger, stored.entry):
            break
        cut = working.offer(stored.ledger, stored.entry, stored.data, UNREADABLE)
        size += cut.size if cut else 0
        taken += 1
        assert size + working.pending_bytes <= room or taken == 1
    last = working.finish()
    assert last is not None
    assert taken >= 1
    size += last.size
    if taken < len(stream):
        with_one_more = sum(p.size for p in cut_all(stream[: taken + 1], cuts))
        assert with_one_more > room


def test_an_object_that_holds_something_takes_nothing_past_its_room():
    working = PartCutter(SegmentLayout(), first_part=2, offset=1000, first_block=2, room=100)
    assert working.would_exceed_room(1, 1, 0)
    assert PartCutter(SegmentLayout(), first_part=2, offset=1000, first_block=2, room=176).would_exceed_room(1, 1, 0)
    assert not PartCutter(SegmentLayout(), first_part=2, offset=1000, first_block=2, room=177).would_exceed_room(
        1, 1, 0
    )


@given(streams(), small_cuts())
def test_pending_bytes_are_those_of_the_part_that_finish_gives(stream, cuts):
    working = cutter(cuts)
    for stored in stream:
        working.offer(stored.ledger, stored.entry, stored.data, UNREADABLE)
    pending = working.pending_bytes
    last = working.finish()
    assert last is not None
    assert pending == last.size == len(last.data())
    assert working.pending_bytes == 0
    assert working.finish() is None


def test_nothing_offered_gives_no_part():
    working = cutter(SegmentLayout())
    assert working.finish() is None
    assert working.pending_bytes == 0


def test_a_finished_cutter_goes_on_with_a_new_block():
    working = cutter(SegmentLayout())
    working.offer(1, 0, b"a", UNREADABLE)
    first = working.finish()
    working.offer(1, 1, b"b", UNREADABLE)
    second = working.finish()
    assert first is not None
    assert second is not None
    assert [b.header.first_entry for p in (first, second) for b in read_blocks(p.data())] == [0, 1]
    assert [e.block for e in second.index] == [2]


@pytest.mark.parametrize("late", [(3, 4), (3, 5), (2, 9)])
def test_an_entry_that_does_not_come_after_the_last_one_is_refused(late):
    working = cutter(SegmentLayout())
    working.offer(3, 5, b"a", UNREADABLE)
    with pytest.raises(IntegrityError, match="came after 3:5"):
        working.offer(late[0], late[1], b"b", UNREADABLE)


def test_a_part_carries_the_bounds_of_its_own_entries_only():
    working = cutter(SegmentLayout(part_size=228, block_size=228))
    working.offer(1, 0, b"a" * 20, EntryFacts(10, 1000, None, None))
    working.offer(1, 1, b"b" * 20, EntryFacts(5, 900, 2000, 14))
    working.offer(1, 2, b"c" * 20, EntryFacts(0, None, 2010, 13))
    first = working.offer(1, 3, b"d" * 20, EntryFacts(1, 3000, 3000, 15))
    working.offer(1, 4, b"e" * 20, EntryFacts(1, 3001, 2999, 16))
    last = working.finish()
    assert first is not None
    assert last is not None
    assert first.stats == EntryStats(15, 900, 1000, 2000, 2010, 13, 14)
    assert last.stats == EntryStats(2, 3000, 3001, 2999, 3000, 15, 16)


def test_entries_that_say_nothing_have_no_bounds():
    (part,) = cut_all([Stored(1, 0, b"a")], SegmentLayout())
    assert part.stats == EntryStats(unreadable=1)


def test_an_uploaded_part_keeps_everything_but_the_bytes():
    working = cutter(SegmentLayout())
    working.offer(1, 3, b"a", EntryFacts(1, 5, None, None))
    cut = working.finish()
    assert cut is not None
    part = cut.to_part("etag", 77, (Gap(1, 2, 3, kind=GapKind.MARKER),))
    assert (part.number, part.offset, part.size, part.etag, part.crc32c, part.blocks) == (1, 0, 177, "etag", 77, 1)
    assert (part.ledgers, part.indexed, part.stats) == (cut.ledgers, 1, cut.stats)
    assert part.gaps == (Gap(1, 2, 3, kind=GapKind.MARKER),)
    assert (part.first, part.last, part.entries) == ((1, 3), (1, 3), 1)


def test_the_exact_bytes_of_a_small_object():
    (part,) = cut_all([Stored(20, 7, b"abc"), Stored(20, 8, b""), Stored(21, 0, b"z")], SegmentLayout())
    first = (
        "26a66d32 0000000000000080 000000000000009f 0000000000000007 0000000000000014"
        + "00" * 92
        + "00000003 0000000000000007 616263"
        "00000000 0000000000000008 fedcdead"
    )
    second = (
        "26a66d32 0000000000000080 00000000000000cd 0000000000000000 0000000000000015"
        + "00" * 92
        + "00000001 0000000000000000 7a fedcdead"
    )
    index = bytes.fromhex(
        "0000000000000014 0000000000000007 00000001 00000000000000000000000000000015 0000000000000000 00000002 "
        "000000000000009f"
    )
    assert part.data() == bytes.fromhex(first + second) + index + crc32c(index).to_bytes(4, "big")
