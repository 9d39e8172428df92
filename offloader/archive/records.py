"""The list of a topic's segments, which is its catalog's records: only those that a selection needs are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

from offloader.archive.object_range import PlanItem
from offloader.archive.reading import overlaps
from offloader.archive.reading.plan import matters, plan
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.metadata.deletions import DeletedRange
from offloader.metadata.history import History, Slot
from offloader.metadata.manifest import ManifestRow
from offloader.metadata.state import CatalogHead
from offloader.model import Position, TopicName, Transaction

# With up to this many unwanted records between two wanted ones, all are read: mostly one object has them.
BETWEEN = 16
# Records that are read at a time by those who go through all of them.
STEP = 64

Excerpt = tuple[TopicSnapshot, Selection]
"""Consecutive records, and what to select from them."""


class TopicRecords:
    """What is stored of a topic, at one moment. Here all of it was read, as ledgers of Pulsar's own offloader need it;
    without these, `LazyTopicRecords` reads only what each call needs."""

    def __init__(self, snapshot: TopicSnapshot) -> None:
        self._whole = snapshot

    @property
    def topic(self) -> TopicName:
        return self.head.topic

    @property
    def head(self) -> CatalogHead:
        return self.whole.catalog.head

    @property
    def whole(self) -> TopicSnapshot:
        """All records: for what cannot do with less."""
        return self._whole

    def plan(self, selection: Selection = EVERYTHING) -> Iterator[PlanItem]:
        """See `reading.plan`."""
        yield from plan(self.whole, selection)

    def located(self, position: Position) -> Position:
        """See `overlaps.located`."""
        return overlaps.located(self.whole, position)

    def excerpts(self, selection: Selection = EVERYTHING, *, back: int = 0) -> Iterator[Excerpt]:  # noqa: ARG002
        """The records that a selection needs, group by group, each with those of `back` bytes of data before it."""
        yield self.whole, selection

    @property
    def last_position(self) -> Position | None:
        """The last position that is archived or known to be missing."""
        return max((span.end for span in overlaps.distinct_spans(self.whole)), default=None)

    @property
    def stored_bytes(self) -> int:
        """Bytes that are stored of the topic."""
        return self.head.kept.size + sum(ledger.size for ledger in self.whole.ledgers)

    def extents(self, selection: Selection) -> Iterator[tuple[Position, Position]]:  # noqa: ARG002
        """First and last positions of what a selection may need; each pair is of one incarnation."""
        yield from ((span.start, span.end) for span in overlaps.distinct_spans(self.whole))

    def behind(self, position: Position | None, *, back: int = 0) -> TopicSnapshot:  # noqa: ARG002
        """The records from a position's own (else the last before it) on, and those of `back` bytes before these."""
        return self.whole

    def before(self, position: Position | None = None) -> Iterator[Excerpt]:
        """The records up to a position (None: all), some at a time, from the last back."""
        yield self.whole, Selection(end=position)

    def first(self) -> Iterator[Excerpt]:
        """All records, some at a time, from the first on; of those of what is deleted only the last."""
        yield self.whole, EVERYTHING

    def aborted(self, since: Position | None) -> frozenset[Transaction]:  # noqa: ARG002
        """Transactions whose abort markers are archived behind a position: their entries are archived, too."""
        return self.whole.catalog.aborted


class LazyTopicRecords(TopicRecords):
    """Of a topic without such ledgers: each call reads only what it needs. Raises DamagedRecordError, as the store."""

    def __init__(self, history: History) -> None:
        self.recorded = history

    @property
    def head(self) -> CatalogHead:
        return self.recorded.head

    @cached_property
    def whole(self) -> TopicSnapshot:
        return self._snapshot(0, self.head.next_slot)

    def plan(self, selection: Selection = EVERYTHING) -> Iterator[PlanItem]:
        """Reads some records at a time, never a whole topic's. With times it skips records of other times."""
        planned_to: Position | None = None
        for group in _groups(self.recorded, selection, STEP):
            snapshot, wanted = _excerpt(self.recorded, group, selection, 0)
            yield from plan(snapshot, wanted, planned_to)
            planned_to = group[-1].row.end

    def located(self, position: Position) -> Position:
        head = self.head
        if head.claim is None or head.claim.incarnation == 0:
            return position._replace(incarnation=0)
        for slot in self.recorded.slots(lambda row: row.max_ledger >= position.ledger):
            snapshot = _read(self.recorded, slot.number, slot.number + 1)
            if any(overlaps.reaches(span, position) for span in overlaps.distinct_spans(snapshot)):
                return overlaps.located(snapshot, position)
        return position if head.last is None else position._replace(incarnation=head.last.end.incarnation)

    def excerpts(self, selection: Selection = EVERYTHING, *, back: int = 0) -> Iterator[Excerpt]:
        for group in _groups(self.recorded, selection):
            yield _excerpt(self.recorded, group, selection, back)

    @property
    def last_position(self) -> Position | None:
        return None if self.head.last is None else self.head.last.end

    @property
    def stored_bytes(self) -> int:
        return self.head.kept.size

    def extents(self, selection: Selection) -> Iterator[tuple[Position, Position]]:
        found: dict[int, tuple[Position, Position]] = {}
        for start, end in self.recorded.outline(_wanted(selection)):
            first, last = found.get(start.incarnation, (start, end))
            found[start.incarnation] = min(first, start), max(last, end)
        yield from found.values()

    def behind(self, position: Position | None, *, back: int = 0) -> TopicSnapshot:
        if position is None:
            return self.whole
        history = self.recorded
        after = next(history.slots(lambda row: row.end is not None and row.end >= position), None)
        first = self.head.next_slot if after is None else after.number
        reached = after is not None and after.row.holds(position)
        while first > 0 and (back > 0 or not reached):
            first -= 1
            row = history.row(first)
            back, reached = back - row.size, reached or row.start is not None
        snapshot = self._snapshot(first, self.head.next_slot)
        return replace(snapshot, also_aborted=self.aborted(position))

    def before(self, position: Position | None = None) -> Iterator[Excerpt]:
        for end in range(self._last_slot(position), -1, -STEP):
            yield self._snapshot(max(end - STEP + 1, 0), end + 1), Selection(end=position)

    def _last_slot(self, position: Position | None) -> int:
        """Where looking back from a position begins. The search's threads end here, not with whoever looks back."""
        last = self.head.next_slot - 1
        if position is None:
            return last
        slots = self.recorded.slots(lambda row: row.holds(position) or row.ends_after(position))
        return next((slot.number for slot in slots), last)

    def first(self) -> Iterator[Excerpt]:
        if self.head.removal is None:
            for first in range(0, self.head.next_slot, STEP):
                yield self._snapshot(first, min(first + STEP, self.head.next_slot)), EVERYTHING
            return
        after = 0
        for group in _groups(self.recorded, EVERYTHING, STEP):
            first, after = max(group[0].number, after), group[-1].number + 1
            if first < after:
                yield self._snapshot(first, after), EVERYTHING

    def aborted(self, since: Position | None) -> frozenset[Transaction]:
        behind = self.recorded.slots(lambda row: row.aborted > 0 and (since is None or row.ends_after(since)))
        found = (self.recorded.catalog(range(slot.number, slot.number + 1)).aborted for slot in behind)
        return frozenset(transaction for each in found for transaction in each)

    def _snapshot(self, first: int, after: int) -> TopicSnapshot:
        return _read(self.recorded, first, after)


def _read(history: History, first: int, after: int) -> TopicSnapshot:
    return TopicSnapshot.of(history.catalog(range(first, after)))


def _excerpt(history: History, group: list[Slot], selection: Selection, back: int) -> Excerpt:
    begin, first, before = group[0].number, group[0].number, back
    while first > 0 and before > 0:
        first -= 1
        before -= history.row(first).size
    snapshot, start = _read(history, first, group[-1].number + 1), group[0].row.start
    if not selection.is_timed or start is None or history.is_first(begin):
        return snapshot, selection
    # The records before the group lie at other times, or belong to another group.
    deleted = _deleted(history.head.removed.told, group[0].row)
    start = start if deleted is None else deleted.start
    return snapshot, replace(selection, start=start if selection.start is None else max(start, selection.start))


def _groups(history: History, selection: Selection, most: int | None = None) -> Iterator[list[Slot]]:
    """The records that a selection needs, in order. A selection with times has a group for each cluster of records;
    one without has them all in one, but that a deleted range begins a group. A group of more than `most` slots is
    split, and each of the groups that this gives begins with the last record of the one before."""
    group: list[Slot] = []
    told = history.head.removed.told
    for slot in history.slots(_wanted(selection, told)):
        jumps = bool(group) and slot.number != group[-1].number + 1 and _deleted(told, slot.row) is not None
        if jumps or (group and selection.is_timed and slot.number - group[-1].number > BETWEEN):
            yield group
            group = []
        elif group and most is not None and slot.number - group[0].number >= most:
            yield group
            group = group[-1:]
        group.append(slot)
    if group:
        yield group


def _wanted(selection: Selection, told: tuple[DeletedRange, ...] = ()) -> Callable[[ManifestRow], bool]:
    """`told`: what is deleted. Of each such range the last record is wanted, which tells of all of it, and no other."""
    start, end = selection.start, selection.end

    def wanted(row: ManifestRow) -> bool:
        if row.start is None or row.end is None:
            return False
        deleted = _deleted(told, row)
        if deleted is not None:
            return row.end == deleted.end and matters(deleted, selection)
        if (start is not None and row.end < start) or (end is not None and row.start > end):
            return False
        if not selection.is_timed or row.losses or row.untimed or row.early is None or row.late is None:
            return True
        return selection.meets(row.early, row.late)

    return wanted


def _deleted(told: tuple[DeletedRange, ...], row: ManifestRow) -> DeletedRange | None:
    """The deleted range in which all of a row lies."""
    if row.start is None or row.end is None:
        return None
    return next((each for each in told if each.start <= row.start and row.end <= each.end), None)
