"""Whatever a topic is made of, however it is selected, split and fetched: every position once, in order, byte for
byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange
from offloader.archive.reading.plan import plan, split
from offloader.archive.selection import Selection
from offloader.format.entry import inspect
from offloader.model import Position
from tests.archive.reading.support import Topic, items_told, positions, topics

from .support import Truth

sizes = st.integers(1_024, 6_000)


FIRST_PUBLISHED = 1_700_000_000_000  # see `message`: and later by the length of its text


@given(topics(), sizes, st.integers(0, 3))
def test_everything_is_read_back(built: Topic, read_size: int, prefetch: int) -> None:
    found = items_told(built, plan(built.view), read_size=read_size, prefetch=prefetch)
    assert found == built.truth


@given(topics(), positions(), positions(), sizes, st.integers(1, 5_000))
def test_any_selection_in_any_tasks_is_the_same_part_of_the_whole(
    built: Topic, start: Position | None, end: Position | None, read_size: int, max_bytes: int
) -> None:
    items = plan(built.view, Selection(start, end))
    expected = built.between(start, end)
    assert items_told(built, items, read_size=read_size) == expected
    tasks = split(items, max_bytes)
    by_tasks: dict[Position, Truth] = {}
    for task in tasks:
        by_tasks |= items_told(built, task, read_size=read_size, prefetch=0)
    assert by_tasks == expected


@given(topics(), st.integers(1, 20_000))
def test_tasks_are_bounded_and_keep_the_order(built: Topic, max_bytes: int) -> None:
    items = plan(built.view)
    tasks = split(items, max_bytes)
    for task in tasks:
        pieces = [item for item in task if isinstance(item, ObjectRange)]
        assert sum(p.size for p in pieces) <= max_bytes or sum(len(p.split_points) for p in pieces) == 1
    flat = [item for task in tasks for item in task]
    assert [i for i in flat if isinstance(i, Missing)] == [i for i in items if isinstance(i, Missing)]
    assert sum(i.size for i in flat if isinstance(i, ObjectRange)) == sum(
        i.size for i in items if isinstance(i, ObjectRange)
    )
    assert [c for i in flat if isinstance(i, ObjectRange) for c in i.split_points] == [
        c for i in items if isinstance(i, ObjectRange) for c in i.split_points
    ]


@given(topics(), st.integers(0, 480), st.integers(0, 480))
def test_times_never_leave_out_what_was_published_then(built: Topic, earliest: int, length: int) -> None:
    least, greatest = FIRST_PUBLISHED + earliest, FIRST_PUBLISHED + earliest + length
    found = items_told(built, plan(built.view, Selection(published_from=least, published_to=greatest)))
    for position, what in built.truth.items():
        if not isinstance(what, bytes) or least <= (inspect(what).publish_time or 0) <= greatest:
            assert found.pop(position) == what
    assert all(built.truth[position] == what for position, what in found.items())
