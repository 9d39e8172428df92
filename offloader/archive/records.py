"""A topic's records, of which only those are read that a selection needs: the selection says which slots, manifests say
where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from offloader.archive.read_model import EVERYTHING, PlanItem, Selection
from offloader.archive.reading import overlaps
from offloader.archive.reading.plan import plan
from offloader.archive.view import TopicSnapshot
from offloader.metadata.history import History, Slot
from offloader.metadata.manifest import ManifestRow
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName, Transaction

# Two records that are wanted are read with what is between them, where that are no more: they are in one object then,
# mostly.
BETWEEN = 16
# So many records are looked at in one go where all of them are passed through.
STEP = 64

Viewed = tuple[TopicSnapshot, Selection]
"""Consecutive records, and what is wanted of them."""


class TopicRecords:
    """What is stored of a topic, at one moment. Raises DamagedRecordError and what the store raises."""

    def __init__(self, history: History | None, whole: TopicSnapshot | None = None) -> None:
        self._history = history
        self._whole = whole

    @classmethod
    def of(cls, view: TopicSnapshot) -> TopicRecords:
        """Of a topic all of whose records were read: where stock brokers have offloaded ledgers of it, too, all are
        needed."""
        return cls(None, view)

    @property
    def topic(self) -> TopicName:
        return self.head.topic

    @property
    def head(self) -> CatalogHead:
        return self.whole.catalog.head if self._history is None else self._history.head

    @cached_property
    def whole(self) -> TopicSnapshot:
        """All records: for what cannot do with less."""
        if self._whole is not None or self._history is None:
            assert self._whole is not None
            return self._whole
        return TopicSnapshot.of(self._history.catalog(range(self._history.head.next_slot)))

    def plan(self, selection: Selection = EVERYTHING) -> Iterator[PlanItem]:
        """See `plan`. Some records at a time: a whole topic's are never held at once. With times, what is between two
        stretches that may hold such messages is not looked at."""
        history = self._history
        if history is None:
            yield from plan(self.whole, selection)
            return
        planned_to: Position | None = None
        for stretch in _stretches(history, selection, STEP):
            yield from plan(*self._view(history, stretch, selection, 0), planned_to)
            planned_to = stretch[-1].row.end

    def located(self, position: Position) -> Position:
        """See `once.located`."""
        if self._history is None:
            return overlaps.located(self.whole, position)
        head = self._history.head
        if head.claim is None or head.claim.incarnation == 0:
            return position._replace(incarnation=0)
        for slot in self._history.slots(lambda row: row.max_ledger >= position.ledger):
            view = TopicSnapshot.of(self._history.catalog(range(slot.number, slot.number + 1)))
            if any(overlaps.reaches(span, position) for span in overlaps.spans_once(view)):
                return overlaps.located(view, position)
        return position if head.last is None else position._replace(incarnation=head.last.end.incarnation)

    def views(self, selection: Selection = EVERYTHING, *, back: int = 0) -> Iterator[Viewed]:
        """The records that a selection needs, stretch by stretch in topic order. A stretch begins so far before what is
        wanted that its data objects have `back` more bytes."""
        history = self._history
        if history is None:
            yield self.whole, selection
            return
        for stretch in _stretches(history, selection):
            yield self._view(history, stretch, selection, back)

    @property
    def last_position(self) -> Position | None:
        """The last that is archived, or known to be missing."""
        if self._history is None:
            return max((span.end for span in overlaps.spans_once(self.whole)), default=None)
        return None if self._history.head.last is None else self._history.head.last.end

    @property
    def stored_bytes(self) -> int:
        """What is stored of the topic."""
        ledgers = () if self._history is not None else self.whole.ledgers
        return self.head.size + sum(ledger.size for ledger in ledgers)

    def extents(self, selection: Selection) -> Iterator[tuple[Position, Position]]:
        """Within what positions everything lies that a selection wants, each pair in one incarnation."""
        if self._history is None:
            yield from ((span.start, span.end) for span in overlaps.spans_once(self.whole))
            return
        wanted = _wanted(selection)
        known: dict[int, tuple[Position, Position]] = {}
        for row in self._history.outline(wanted):
            start, end = row
            first, last = known.get(start.incarnation, (start, end))
            known[start.incarnation] = min(first, start), max(last, end)
        yield from known.values()

    def behind(self, position: Position | None, *, back: int = 0) -> TopicSnapshot:
        """The records from a position's own on; if none holds the position, from the last one before it.

        So many records come before these that their data objects have `back` bytes.
        """
        history = self._history
        if history is None or position is None:
            return self.whole
        after = next(history.slots(lambda row: row.end is not None and row.end >= position), None)
        first = history.head.next_slot if after is None else after.number
        reached = after is not None and after.row.holds(position)
        while first > 0 and (back > 0 or not reached):
            first -= 1
            row = history.row(first)
            back, reached = back - row.size, reached or row.start is not None
        view = TopicSnapshot.of(history.catalog(range(first, history.head.next_slot)))
        return replace(view, also_aborted=self.aborted(position))

    def before(self, position: Position) -> Iterator[Viewed]:
        """What is up to a position, some of it at a time, the nearest first."""
        history = self._history
        if history is None:
            yield self.whole, Selection(end=position)
            return
        first = next(history.slots(lambda row: row.holds(position) or row.ends_after(position)), None)
        last = history.head.next_slot - 1 if first is None else first.number
        for end in range(last, -1, -STEP):
            yield TopicSnapshot.of(history.catalog(range(max(end - STEP + 1, 0), end + 1))), Selection(end=position)

    def first(self) -> Iterator[Viewed]:
        """All records, some at a time, from the first on."""
        return self._in_steps(range(0, self.head.next_slot, STEP))

    def last(self) -> Iterator[Viewed]:
        """All records, some at a time, from the last back."""
        return self._in_steps(reversed(range(0, self.head.next_slot, STEP)))

    def aborted(self, since: Position | None) -> frozenset[Transaction]:
        """Transactions whose abort markers are archived behind a position, in what was copied complete: their entries
        are, too."""
        history = self._history
        if history is None:
            return self.whole.catalog.aborted
        behind = (
            s.number for s in history.slots(lambda row: row.aborted > 0 and (since is None or row.ends_after(since)))
        )
        found = (history.catalog(range(number, number + 1)).aborted for number in behind)
        return frozenset(transaction for each in found for transaction in each)

    def _in_steps(self, firsts: Iterator[int] | range) -> Iterator[Viewed]:
        history = self._history
        if history is None:
            yield self.whole, EVERYTHING
            return
        for first in firsts:
            yield TopicSnapshot.of(history.catalog(range(first, min(first + STEP, history.head.next_slot)))), EVERYTHING

    def _view(self, history: History, stretch: list[Slot], selection: Selection, back: int) -> Viewed:
        begin, end = stretch[0].number, stretch[-1].number + 1
        first, before = begin, back
        while first > 0 and before > 0:
            first -= 1
            before -= history.row(first).size
        view, start = TopicSnapshot.of(history.catalog(range(first, end))), stretch[0].row.start
        if not selection.is_timed or start is None or history.is_first(begin):
            return view, selection
        # What is before the stretch was left out for its times, or belongs to another one.
        return view, replace(selection, start=start if selection.start is None else max(start, selection.start))


def _stretches(history: History, selection: Selection, most: int | None = None) -> Iterator[list[Slot]]:
    """The records that a selection needs, in order: near ones together, and all where it has no times, for they follow
    on. Where that are more than `most` slots, in several lists, of which each begins with the last record of the one
    before."""
    stretch: list[Slot] = []
    for slot in history.slots(_wanted(selection)):
        if stretch and selection.is_timed and slot.number - stretch[-1].number > BETWEEN:
            yield stretch
            stretch = []
        elif stretch and most is not None and slot.number - stretch[0].number >= most:
            yield stretch
            stretch = stretch[-1:]
        stretch.append(slot)
    if stretch:
        yield stretch


def _wanted(selection: Selection) -> Callable[[ManifestRow], bool]:
    start, end = selection.start, selection.end
    early, late = selection.published_from, selection.published_to

    def wanted(row: ManifestRow) -> bool:
        if row.start is None or row.end is None:
            return False
        if (start is not None and row.end < start) or (end is not None and row.start > end):
            return False
        if not selection.is_timed or row.losses or row.untimed or row.early is None or row.late is None:
            return True
        return (early is None or row.late >= early) and (late is None or row.early <= late)

    return wanted
