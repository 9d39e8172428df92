"""Filters leave out only what cannot match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from offloader.archive.selection import Selection
from offloader.archive.spark.filters import Bounds, ColumnNames, Narrowing, narrowed_selection, narrowing
from offloader.model import Loss, Position, TopicName

NAMES = ColumnNames("__topic", "__ledgerId", "__entryId", "__publishTime")
ORDERS, USERS = TopicName.parse("a/b/orders"), TopicName.parse("a/b/users")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KNOWN = [
    Loss(Position(0, 5, 0), Position(0, 5, 9), "trimmed", "accept-loss", at=2),
    Loss(Position(0, 5, 10), Position(0, 7, 3), "trimmed", "accept-loss", at=2),
    Loss(Position(1, 9, 0), Position(1, 12, 9), "trimmed", "accept-loss", at=2),
]
EXTENTS = [(span.start, span.end) for span in KNOWN]
POSITIONS = [Position(0, 5, e) for e in range(10)] + [Position(0, 7, e) for e in range(4)]
POSITIONS += [Position(1, ledger, e) for ledger in (9, 12) for e in range(10)]


def test_topics() -> None:
    for kept in (
        EqualTo(("__topic",), str(ORDERS)),
        In(("__topic",), (str(ORDERS), "x")),
        StringStartsWith(("__topic",), "persistent://a/b/o"),
    ):
        found = narrowing([kept], NAMES)
        assert found.may_have(ORDERS)
        assert not found.may_have(USERS)


def test_what_is_not_understood_leaves_everything() -> None:
    found = narrowing(
        [IsNotNull(("__topic",)), Not(EqualTo(("__topic",), str(ORDERS))), EqualTo(("__key",), "k")], NAMES
    )

    assert found == Narrowing()
    assert found.may_have(ORDERS)


def test_times_keep_every_ms_that_may_match() -> None:
    at = EPOCH + timedelta(microseconds=1500)

    assert narrowing([GreaterThan(("__publishTime",), at)], NAMES).published == Bounds(1, None)
    assert narrowing([LessThan(("__publishTime",), at)], NAMES).published == Bounds(None, 1)
    assert narrowing([EqualTo(("__publishTime",), at)], NAMES).published == Bounds(1, 1)


def test_contradictions_leave_nothing() -> None:
    filters: list[Filter] = [GreaterThan(("__ledgerId",), 8), LessThan(("__ledgerId",), 7)]

    assert narrowed_selection(EXTENTS, Selection(), narrowing(filters, NAMES)) is None


def test_an_entry_of_one_ledger() -> None:
    filters: list[Filter] = [EqualTo(("__ledgerId",), 12), EqualTo(("__entryId",), 4)]

    found = narrowed_selection(EXTENTS, Selection(), narrowing(filters, NAMES))

    assert found == Selection(Position(1, 12, 4), Position(1, 12, 4))


_COLUMN = st.sampled_from(["__ledgerId", "__entryId"])
_KIND = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
_FILTER = st.builds(lambda kind, column, value: kind((column,), value), _KIND, _COLUMN, st.integers(0, 14))
_ANY = st.one_of(
    _FILTER, st.builds(lambda c, v: In((c,), tuple(v)), _COLUMN, st.lists(st.integers(0, 14), min_size=1, max_size=3))
)


Comparison = EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual


def matches(f: Comparison, position: Position) -> bool:
    value = position.ledger if f.attribute == ("__ledgerId",) else position.entry
    match f:
        case EqualTo(_, wanted):
            return bool(value == wanted)
        case In(_, wanted):
            return value in wanted
        case GreaterThan(_, wanted):
            return bool(value > wanted)
        case GreaterThanOrEqual(_, wanted):
            return bool(value >= wanted)
        case LessThan(_, wanted):
            return bool(value < wanted)
        case LessThanOrEqual(_, wanted):
            return bool(value <= wanted)


@given(st.lists(_ANY, max_size=4), st.sampled_from([None, *POSITIONS]), st.sampled_from([None, *POSITIONS]))
def test_whatever_matches_is_selected(filters: list[Comparison], start: Position | None, end: Position | None) -> None:
    found = narrowed_selection(EXTENTS, Selection(start, end), narrowing(filters, NAMES))

    for position in POSITIONS:
        wanted = (start is None or position >= start) and (end is None or position <= end)
        if wanted and all(matches(f, position) for f in filters):
            assert found is not None
            assert found.start is None or found.start <= position
            assert found.end is None or position <= found.end


def test_times_are_narrowed_by_both() -> None:
    found = narrowed_selection(EXTENTS, Selection(published_from=5, published_to=9), Narrowing(published=Bounds(7, 20)))

    assert found == Selection(KNOWN[0].start, KNOWN[-1].end, 7, 9)
