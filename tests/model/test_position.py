"""Arithmetic of entry ids: what ranges of entries leave, and where they end, is what counting one by one gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.model import EntryRange, Gap, GapKind, LedgerRange, Position

entries = st.integers(0, 12)
ranges = st.builds(lambda first, span: EntryRange(7, first, first + span), entries, entries)
places = st.tuples(st.integers(6, 8), entries)


def test_the_entries_beside_a_position() -> None:
    assert Position(1, 7, 0).next_entry == Position(1, 7, 1)
    assert Position(1, 7, 0).previous_entry == Position(1, 7, -1)
    assert Position(1, 7, 3).at(9).place == (7, 9)


def test_bounds_that_are_both_included() -> None:
    assert EntryRange.closed(7, 2, 4) == EntryRange(7, 2, 5)
    assert (EntryRange(7, 2, 5).last, EntryRange(7, 2, 5).span, EntryRange(7, 2, 2).span) == (4, 3, 0)


@given(ranges, st.lists(ranges))
def test_what_is_left_has_all_that_nobody_took(whole: EntryRange, taken: list[EntryRange]) -> None:
    left = list(whole.without(taken))
    assert [entry for one in left for entry in one.ids] == sorted(
        {*whole.ids} - {entry for one in taken for entry in one.ids}
    )
    assert all(one.span > 0 for one in left)


@given(ranges, st.none() | places, st.none() | places)
def test_what_lies_between_two_places(
    whole: EntryRange, begin: tuple[int, int] | None, after: tuple[int, int] | None
) -> None:
    inside = whole.between(begin, after)
    wanted = [e for e in whole.ids if (begin is None or (7, e) >= begin) and (after is None or (7, e) < after)]
    assert ([] if inside is None else list(inside.ids)) == wanted


def test_what_is_left_stays_what_it_was() -> None:
    gap = Gap(7, 2, 9, kind=GapKind.MARKER)
    assert list(gap.without([EntryRange(7, 4, 5)])) == [Gap(7, 2, 4, kind=gap.kind), Gap(7, 5, 9, kind=gap.kind)]
    held = LedgerRange(7, 0, 9, count=8, size=80)
    assert held.between((7, 3)) == LedgerRange(7, 3, 9, count=8, size=80)
