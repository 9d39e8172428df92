"""A plan for messages of a time leaves out nothing between the first and the last entry that may be wanted."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.reading.plan import contiguous, plan
from offloader.archive.selection import Selection
from offloader.format.entry import inspect
from tests.archive.reading.support import GAP, LOST, Topic, items_told, topics

START = 1_700_000_000_000


@given(topics(), st.integers(0, 500), st.integers(0, 500))
def test_it_is_without_a_hole(built: Topic, least: int, most: int) -> None:
    assert list(contiguous(partial(plan, built.view), Selection())) == plan(built.view)
    selection = Selection(published_from=START + least, published_to=START + most)
    told = items_told(built, contiguous(partial(plan, built.view), selection))
    assert {p: t for p, t in told.items() if t in (GAP, LOST)} == {
        p: t for p, t in built.truth.items() if t in (GAP, LOST)
    }
    read = {p: t for p, t in told.items() if isinstance(t, bytes)}
    entries = {p: t for p, t in built.truth.items() if isinstance(t, bytes)}
    assert read == {p: t for p, t in entries.items() if read and min(read) <= p <= max(read)}
    assert all(p in read for p, t in entries.items() if least <= (inspect(t).publish_time or 0) - START <= most)
    perhaps = items_told(built, plan(built.view, selection))
    ends = [p for p, t in perhaps.items() if isinstance(t, bytes)]
    assert [min(read), max(read)] == [min(ends), max(ends)] if ends else not read
