"""A topic as its records say at one moment: which incarnations are served, and what follows from the records alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from offloader.archive.continuity import LedgerPart
from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.records import TopicRecords
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.gateway.entries.missing import Absence, absences, covered_by, is_junction
from offloader.gateway.topic_entries import DeletedSegment
from offloader.gateway.values import BEFORE_ALL
from offloader.metadata.deletions import DeletedRange, SegmentRange, range_of
from offloader.model import Place, Position, Transaction

Extent = tuple[Position, Position]
"""The first and the last position of an incarnation."""


class Served:
    """The incarnations that are served: in order, and so are their ledgers.

    A message id has no room for the incarnation. Ledger ids grow over a cluster's life, so all incarnations follow each
    other; where they do not (the cluster was set up anew), the last ones are served of which that is true."""

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


Ledger = tuple[int, int]
"""Incarnation and ledger."""


class ServedTopic:
    """Threads may share it. What is asked for is found out when it is asked for the first time, maybe by two threads at
    once: no lock is held while the store is waited for. Raises DamagedRecordError, and what the store raises.

    `key`: what was read by one of them may be given by another one that has the same."""

    def __init__(self, records: TopicRecords, aborted: frozenset[Transaction], key: object) -> None:
        self.records = records
        self.aborted = aborted
        self.key = key
        self.served = Served(records.extents(EVERYTHING))
        self._absences: tuple[Absence, ...] | None = None
        self._lasts: dict[Ledger, int] | None = None  # the last entry of each ledger
        self._ledgers: tuple[tuple[int, int, int], ...] | None = None
        self._unreadable: list[SegmentRange] = []

    @classmethod
    def of(cls, records: TopicRecords) -> ServedTopic:
        """Of these records."""
        return cls(records, records.aborted(None), object())

    def followed_by(self, records: TopicRecords) -> ServedTopic:
        """Of later records: if they only go on, no more of them is read than what is new."""
        end, before, now = self.served.last, self.records.head, records.head
        if end is None or (now.removed, now.generation) != (before.removed, before.generation):
            return ServedTopic.of(records)
        aborted = self.aborted | records.aborted(end)
        later = ServedTopic(records, aborted, self.key if aborted == self.aborted else object())
        if later.served.first != self.served.first:  # ledger ids began anew: what was served is not any more
            return ServedTopic(records, aborted, object())
        if self._absences is not None:
            behind = later.plan(end.place)
            later._absences = (*self._absences, *absences(behind, at_begin=False))
        if self._lasts is not None:
            later._lasts = dict(self._lasts)
            later._add_ledgers([records.behind(end)], later._lasts)
        return later

    def plan(self, after: Place) -> Iterator[PlanItem]:
        """What is to be read behind a place, and what is missing there."""
        return self.served.plan(self.records, after)

    def missing_behind(self, after: Place) -> Absence | None:
        """The first range behind a place of which there should be data, and are none. What is deleted is none where the
        topic is read from its begin on."""
        if self._absences is None:
            self._absences = tuple(absences(self.plan(BEFORE_ALL), at_begin=True))
        at_begin = self.served.is_at_begin(after)
        behind = (each for each in self._absences if covered_by(each.missing) > after)
        return next((each for each in behind if not (at_begin and each.at_begin)), None)

    def deletions(self) -> list[DeletedRange]:
        """See the port."""
        return list(self.records.head.removed.ranges)

    def being_deleted(self) -> Sequence[SegmentRange]:
        """What is going to be deleted, and may still be taken back."""
        pending = self.records.head.removed.pending
        return () if pending is None else pending.ranges

    def deleted_behind(self, position: Position) -> list[DeletedSegment]:
        """See the port."""
        ranges = tuple(each for each in self.deletions() if each.end > position)
        if not ranges:
            return []
        behind = (each for each in self.records.behind(position).catalog.segments if each.end > position)
        found = ((range_of(ranges, each.end), each) for each in behind)
        return [DeletedSegment(deleted.at, each) for deleted, each in found if deleted is not None]

    def unreadable(self) -> Sequence[SegmentRange]:
        """What is left to ledgers of brokers' own of which nothing can be read now: none of `ledgers`."""
        self.ledgers()
        return tuple(self._unreadable)

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        """See the port. A ledger of which all is deleted or lost is none."""
        if self._ledgers is None:
            if self._lasts is None:
                found: dict[Ledger, int] = {}
                self._add_ledgers((snapshot for snapshot, _ in self.records.first()), found)
                self._lasts = found
            self._ledgers = tuple((*ledger, last) for ledger, last in sorted(self._lasts.items()))
        return self._ledgers

    def _add_ledgers(self, snapshots: Iterable[TopicSnapshot], found: dict[Ledger, int]) -> None:
        for snapshot in snapshots:
            told = snapshot.catalog.head.removed.told
            segments = (each for each in snapshot.catalog.segments if range_of(told, each.end) is None)
            ends = [
                each.start._replace(ledger=held.ledger, entry=held.last) for each in segments for held in each.ledgers
            ]
            ends += [held.end for held in snapshot.ledgers if held.unreadable is None]
            if any(held.unreadable for held in snapshot.ledgers):
                spans = (span for span in distinct_spans(snapshot) if isinstance(span, LedgerPart))
                self._unreadable += [SegmentRange(s.start, s.end) for s in spans if s.ledger.unreadable is not None]
            for end in ends:
                if self.served.has(end):
                    found[end[:2]] = max(end.entry, found.get(end[:2], -1))
            for loss in snapshot.catalog.losses:
                if loss.end[:2] in found:
                    found[loss.end[:2]] = max(loss.end.entry, found[loss.end[:2]])
