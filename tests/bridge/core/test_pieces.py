"""Parts of a bridged object: none but the last is under the least size, and as few bytes as may be go through us."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.bridge.core.pieces import PartSizes, PlannedPart, PlannedPiece, SourceRange, upload_parts
from offloader.model import GIB, MIB

MOST_COPIED = 5 * 1024**3

SIZES = st.one_of(st.integers(1, 4), st.integers(1, 12), st.integers(1, 300))


def laid_out(sources: Sequence[tuple[str, int] | bytes]) -> tuple[PlannedPiece, ...]:
    """Pieces behind each other; ranges of a key begin where its last one ended."""
    at, ends, pieces = 0, dict[str, int](), []
    for each in sources:
        if isinstance(each, bytes):
            pieces.append(PlannedPiece.of(each, at))
        else:
            key, size = each
            pieces.append(PlannedPiece.of(SourceRange(key, ends.get(key, 0), size, 7), at))
            ends[key] = ends.get(key, 0) + size
        at = pieces[-1].end
    return tuple(pieces)


pieces = st.lists(
    st.one_of(st.tuples(st.sampled_from("aaab"), SIZES), st.binary(min_size=1, max_size=30)), min_size=1, max_size=30
).map(laid_out)


def refusal(parts: Sequence[PlannedPart], sizes: PartSizes) -> str:
    """Why a store would not make an object of them; empty: it would."""
    for number, part in enumerate(parts, 1):
        if part.number != number or part.offset != sum(p.size for p in parts[: number - 1]):
            return "out of order"
        if part.size < sizes.least and number < len(parts):
            return "EntityTooSmall"
        if part.copies and not (len(part.pieces) == 1 and isinstance(part.pieces[0].source, SourceRange)):
            return "not one range"
        if sum(piece.size for piece in part.pieces) != part.size:
            return "IncompleteBody"
    return "" if len(parts) <= sizes.most else "too many parts"


def same_bytes(parts: Sequence[PlannedPart], whole: Sequence[PlannedPiece]) -> bool:
    return _bytes(piece for part in parts for piece in part.pieces) == _bytes(whole)


def _bytes(each: object) -> list[object]:
    found: list[object] = []
    for piece in each:  # type: ignore[attr-defined]
        source = piece.source
        found += source if isinstance(source, bytes) else ((source.key, source.offset + n) for n in range(source.size))
    return found


@given(pieces, st.integers(1, 12), st.integers(1, 80), st.integers(1, 40), st.booleans())
def test_a_store_takes_the_parts_and_makes_the_object_of_them(whole, least, copied, streamed, copies) -> None:
    sizes = PartSizes(copied, least, streamed, copies)
    parts = upload_parts(whole, sizes)
    assert refusal(parts, sizes) == ""
    assert same_bytes(parts, whole)
    for part in parts:
        assert part.size <= (max(copied, 2 * least) if part.copies else max(streamed, least) + least)
        assert copies or not part.copies


@given(pieces, st.integers(1, 12), st.integers(3, 20))
def test_parts_grow_until_they_are_few_enough(whole, least, most) -> None:
    sizes = PartSizes(2, least, 2, most=most)
    parts = upload_parts(whole, sizes)
    assert refusal(parts, sizes) == ""
    assert same_bytes(parts, whole)


@given(pieces, st.integers(1, 12), st.integers(1, 80))
def test_what_goes_through_us_is_what_cannot_be_copied_and_a_least_part_of_its_neighbour(whole, least, copied) -> None:
    parts = upload_parts(whole, PartSizes(copied, least, 40))
    stretches: list[tuple[str, int]] = []
    for piece in whole:
        key = "" if isinstance(piece.source, bytes) else piece.source.key
        size = stretches.pop()[1] if stretches and key and stretches[-1][0] == key else 0
        stretches.append((key, size + piece.size))
    small = sum(size for key, size in stretches if not key or size < least)
    streamed = sum(part.size for part in parts if not part.copies)
    assert streamed <= small + 2 * least * sum(1 for key, size in stretches if not key or size < least)


def test_a_part_of_each_piece_would_be_refused() -> None:
    whole = laid_out([("a", 1 * MIB), ("b", 20 * MIB), b"filled", ("c", 20 * MIB)])
    naive = [PlannedPart(n, p.offset, p.size, (p,), copies=True) for n, p in enumerate(whole, 1)]
    assert refusal(naive, PartSizes(256 * MIB)) == "EntityTooSmall"
    assert refusal(upload_parts(whole, PartSizes(256 * MIB)), PartSizes(256 * MIB)) == ""


def test_a_small_piece_goes_with_the_first_bytes_of_its_neighbour() -> None:
    parts = upload_parts(laid_out([("a", 2 * MIB), ("b", 100 * MIB)]), PartSizes(256 * MIB))
    assert [(part.size, part.copies, len(part.pieces)) for part in parts] == [
        (5 * MIB, False, 2),
        (97 * MIB, True, 1),
    ]


def test_many_small_pieces_in_a_row_go_in_parts_of_the_size_that_is_held_in_memory() -> None:
    parts = upload_parts(laid_out([("ab"[n % 2], MIB) for n in range(100)]), PartSizes(256 * MIB))
    assert [part.size for part in parts[:-1]] == [16 * MIB] * 6
    assert not any(part.copies for part in parts[:-1])


def test_a_small_object_is_one_part() -> None:
    (part,) = upload_parts(laid_out([("a", 3), ("b", 4), b"12345"]), PartSizes(256 * MIB))
    assert (part.size, part.copies) == (12, False)
    (part,) = upload_parts(laid_out([("a", 3)]), PartSizes(256 * MIB))
    assert (part.size, part.copies) == (3, True)


def test_copies_end_where_a_piece_does_so_that_their_sums_are_known() -> None:
    parts = upload_parts(laid_out([("a", 9 * MIB)] * 20), PartSizes(50 * MIB))
    assert [part.size for part in parts] == [45 * MIB] * 4
    assert all(part.crc32c is not None for part in parts)


def test_a_ledger_of_terabytes_has_no_more_than_10_000_parts() -> None:
    large = laid_out([("a", GIB)] * 3_000)
    parts = upload_parts(large, PartSizes(256 * MIB))
    assert refusal(parts[:100], PartSizes(256 * MIB)) == ""
    assert len(parts) <= 10_000
    assert all(part.copies and part.size <= MOST_COPIED for part in parts)
    through_us = upload_parts(large, PartSizes(256 * MIB, server_copies=False))
    assert len(through_us) <= 10_000
    assert through_us[-1].offset + through_us[-1].size == 3_000 * GIB


@pytest.mark.parametrize("size", [5 * MIB - 1, 5 * MIB, 5 * MIB + 1, 10 * MIB, 10 * MIB + 1, 12 * MIB])
def test_the_rest_of_a_copy_is_a_part_or_belongs_to_one(size) -> None:
    sizes = PartSizes(5 * MIB)
    parts = upload_parts(laid_out([("a", size), ("b", 6 * MIB)]), sizes)
    assert refusal(parts, sizes) == ""
