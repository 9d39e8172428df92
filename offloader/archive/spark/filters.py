"""What Spark's filters say of topic, position and publish time, and what that leaves of one topic. Pure.

They only leave out what cannot match: Spark evaluates every filter again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from offloader.archive.selection import Selection
from offloader.archive.spark.values import in_ms
from offloader.model import Position, TopicName


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest value that can match, both included; None: no bound."""

    least: int | None = None
    greatest: int | None = None

    def narrowed(self, other: Bounds) -> Bounds:
        """What both allow."""
        leasts = [b for b in (self.least, other.least) if b is not None]
        greatests = [b for b in (self.greatest, other.greatest) if b is not None]
        return Bounds(max(leasts, default=None), min(greatests, default=None))

    @property
    def empty(self) -> bool:
        return self.least is not None and self.greatest is not None and self.least > self.greatest


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """What the columns are called that filters are understood of."""

    topic: str
    ledger: str
    entry: str
    published: str


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What is left to read. `entry` counts only where `ledger` names one ledger. Times in ms."""

    topic_filters: tuple[Filter, ...] = ()
    ledger: Bounds = Bounds()
    entry: Bounds = Bounds()
    published: Bounds = Bounds()

    def may_have(self, topic: TopicName) -> bool:
        """Whether rows of the topic can match."""
        return all(_holds(f, str(topic)) for f in self.topic_filters)


UNNARROWED = Narrowing()
PositionBounds = tuple[Position, Position]  # first and last position of an incarnation, or of a part of it


def narrowing(filters: Iterable[Filter], names: ColumnNames) -> Narrowing:
    """All filters together (Spark means AND)."""
    given = list(filters)
    return Narrowing(
        tuple(_of(given, names.topic, (EqualTo, EqualNullSafe, In, StringStartsWith))),
        _bounds(given, names.ledger, int),
        _bounds(given, names.entry, int),
        _bounds(given, names.published, lambda value: in_ms(value) if isinstance(value, datetime) else int(value)),
    )


def narrowed_selection(extents: Iterable[PositionBounds], wanted: Selection, narrowing: Narrowing) -> Selection | None:
    """The narrowest selection that has everything that is wanted and may match; None where that is nothing."""
    if narrowing.ledger.empty or narrowing.published.empty:
        return None
    matching = list(_clipped(extents, narrowing))
    if not matching:
        return None
    published = Bounds(wanted.published_from, wanted.published_to).narrowed(narrowing.published)
    starts = [p for p in (wanted.start, min(start for start, _ in matching)) if p is not None]
    ends = [p for p in (wanted.end, max(end for _, end in matching)) if p is not None]
    found = Selection(max(starts), min(ends), published.least, published.greatest)
    return None if published.empty or max(starts) > min(ends) else found


def _clipped(extents: Iterable[PositionBounds], narrowing: Narrowing) -> Iterator[tuple[Position, Position]]:
    """What the filters on ledger and entry leave of each span."""
    ledger = narrowing.ledger
    entry = narrowing.entry if ledger.least is not None and ledger.least == ledger.greatest else Bounds()
    for start, end in extents:
        incarnation = start.incarnation
        if ledger.least is not None:
            start = max(start, Position(incarnation, ledger.least, entry.least or 0))
        if ledger.greatest is not None:
            greatest = 2**63 if entry.greatest is None else entry.greatest
            end = min(end, Position(incarnation, ledger.greatest, greatest))
        if start <= end:
            yield start, end


def _of(filters: Iterable[Filter], column: str, kinds: tuple[type[Filter], ...]) -> Iterator[Any]:
    return (f for f in filters if isinstance(f, kinds) and getattr(f, "attribute", ()) == (column,))


def _bounds(filters: Iterable[Filter], column: str, number: Callable[[Any], int]) -> Bounds:
    found = Bounds()
    for f in _of(
        filters, column, (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ):
        values = [v for v in (f.value if isinstance(f, In) else (f.value,)) if v is not None]
        if values:
            # `>` is taken as `>=`: a time is rounded down to the ms, so what follows it may have the same one
            least = None if isinstance(f, LessThan | LessThanOrEqual) else min(map(number, values))
            greatest = None if isinstance(f, GreaterThan | GreaterThanOrEqual) else max(map(number, values))
            found = found.narrowed(Bounds(least, greatest))
    return found


def _holds(f: Filter, name: str) -> bool:
    match f:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            return bool(name == value)
        case In(_, values):
            return name in values
        case StringStartsWith(_, value):
            return name.startswith(value)
    return True
