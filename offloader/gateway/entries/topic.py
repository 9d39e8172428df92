"""A topic as its records say at one moment, and what follows from them alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from offloader.archive.continuity import LedgerPart
from offloader.archive.object_range import PlanItem
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.records import TopicRecords
from offloader.archive.selection import EVERYTHING
from offloader.archive.snapshot import TopicSnapshot
from offloader.gateway.entries.missing import Absence, absences, covered_by
from offloader.gateway.entries.served import Served
from offloader.gateway.topic_entries import DeletedSegment
from offloader.gateway.values import BEFORE_ALL
from offloader.metadata.deletions import DeletedRange, DeletionReason, SegmentRange, range_of
from offloader.model import Place, Position, Transaction

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
        self._ledgers: dict[Ledger, int] | None = None
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
        if self._ledgers is not None:
            later._ledgers = dict(self._ledgers)
            later._add_ledgers([records.behind(end)], later._ledgers)
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
        """See the port. What brokers have instead is not deleted."""
        return [each for each in self.records.head.removed.ranges if not each.is_bridged]

    def being_deleted(self) -> Sequence[SegmentRange]:
        """What is going to be deleted, and may still be taken back."""
        pending = self.records.head.removed.pending
        return () if pending is None or pending.reason is DeletionReason.BRIDGED else pending.ranges

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

    def ledgers(self) -> list[tuple[int, int, int]]:
        """See the port. A ledger of which all is deleted or lost is none."""
        if self._ledgers is None:
            found: dict[Ledger, int] = {}
            self._add_ledgers((snapshot for snapshot, _ in self.records.first()), found)
            self._ledgers = found
        return [(*ledger, last) for ledger, last in sorted(self._ledgers.items())]

    def _add_ledgers(self, snapshots: Iterable[TopicSnapshot], found: dict[Ledger, int]) -> None:
        for snapshot in snapshots:
            told = snapshot.catalog.head.removed.withheld
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
