"""Of what is planned the first entries are a range of their own; all of it is still planned, each entry once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.items import Missing
from offloader.archive.object_range import DataObject, ObjectRange, SplitPoint
from offloader.gateway.entries.archived import with_lead
from offloader.model import Position
from tests.archive.support import TOPIC, run

LOST = Missing(Position(0, 1, 0), Position(0, 1, 9), "lost")


def planned(first: int, per_part: int, parts: int, entry_size: int) -> ObjectRange:
    points = tuple(
        SplitPoint(5, first + (n + 1) * per_part - 1, per_part * entry_size, n * per_part * entry_size, 7)
        for n in range(parts)
    )
    return ObjectRange(
        TOPIC, 0, DataObject("d", "i"), (run(5, first, first + per_part * parts - 1),), points, ends_object=True
    )


@given(st.integers(0, 9), st.integers(1, 200), st.integers(1, 3), st.integers(1, 100), st.integers(1, 10_000))
def test_the_first_entries_come_by_themselves(
    first: int, per_part: int, parts: int, entry_size: int, size: int
) -> None:
    whole = planned(first, per_part, parts, entry_size)
    lost, *ranges, other = with_lead([LOST, whole, whole], size)
    assert (lost, other) == (LOST, whole)
    entries = [entry for each in ranges for one in each.runs for entry in range(one.first, one.after)]
    assert entries == list(range(first, first + per_part * parts))
    assert ranges[-1].split_points == whole.split_points, "parts are read whole, and checked"
    assert ranges[-1].ends_object
    if len(ranges) == 2:
        [lead] = ranges[0].runs
        assert lead.span == 1 or lead.span * entry_size <= size
        assert ranges[0].split_points[-1][:2] == (5, lead.after - 1)
        assert ranges[0].split_points[0].crc32c is None
