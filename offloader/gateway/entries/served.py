"""Which incarnations of a topic are served, and which position a client's place is.

A message id has no room for the incarnation. Ledger ids grow over a cluster's life, so all incarnations follow each
other; where they do not (the cluster was set up anew), the last ones are served of which that is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.gateway.entries.missing import is_junction
from offloader.model import Place, Position

Extent = tuple[Position, Position]
"""The first and the last position of an incarnation."""


class Served:
    """The incarnations that are served: in order, and so are their ledgers."""

    def __init__(self, extents: Iterable[Extent]) -> None:
        self._extents: list[Extent] = []
        known = _by_incarnation(extents)
        for extent in reversed(known):
            if self._extents and extent[1].place >= self._extents[0][0].place:
                break
            self._extents.insert(0, extent)
        self._all = len(self._extents) == len(known)

    @property
    def first(self) -> Position | None:
        """The first position; None: nothing is archived."""
        return self._extents[0][0] if self._extents else None

    @property
    def last(self) -> Position | None:
        """The last position; None: nothing is archived."""
        return self._extents[-1][1] if self._extents else None

    def has(self, position: Position) -> bool:
        """Whether a position's incarnation is served."""
        return bool(self._extents) and position.incarnation >= self._extents[0][0].incarnation

    def position(self, place: Place) -> Position:
        """In the first incarnation that reaches as far; in the last one if none does. There must be one."""
        reached = (start.incarnation for start, end in self._extents if end.place >= place)
        return Position(next(reached, self._extents[-1][0].incarnation), *place)

    def is_at_begin(self, after: Place) -> bool:
        """Whether everything that is served lies behind a place."""
        return self.first is None or after < self.first.place

    def plan(self, records: TopicRecords, after: Place) -> Iterator[PlanItem]:
        """What is to be read behind a place, and what is missing there. Raises DamagedRecordError, and what the store
        raises."""
        if self.is_at_begin(after):
            if self.first is not None:
                yield from records.plan(Selection(None if self._all else self.first))
            return
        position = self.position(after)
        # The position itself is planned, too: or nobody would see whether what follows it does follow.
        following = records.plan(Selection(position))
        first = next(following, None)
        if isinstance(first, ObjectRange) and first.start <= position < first.end:
            yield from records.plan(Selection(position.next_entry))  # no part is read that ends with this position
            return
        for item in chain(() if first is None else (first,), following):
            if item.end > position:
                yield _behind(item, position)


def _by_incarnation(extents: Iterable[Extent]) -> list[Extent]:
    found: dict[int, Extent] = {}
    for start, end in extents:
        first, last = found.get(start.incarnation, (start, end))
        found[start.incarnation] = min(first, start), max(last, end)
    return [found[incarnation] for incarnation in sorted(found)]


def _behind(item: PlanItem, position: Position) -> PlanItem:
    """What is missing behind a position that lies in it."""
    if not isinstance(item, Missing) or item.start > position or is_junction(item):
        return item
    return Missing(position.next_entry, item.end, item.why, item.kind, item.damaged, item.deleted)
