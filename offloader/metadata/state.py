"""What the journal holds of one topic, and what the catalog's records of one topic add up to. Frozen, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from offloader.errors import IntegrityError
from offloader.model import Failure, LedgerList, Loss, OpenSegment, Position, Segment, TopicName, Transaction


@dataclass(frozen=True, slots=True)
class Abandoned:
    """An upload that must never be completed: its uuid is not used again, it is aborted when the store lets us."""

    uuid: str
    upload: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """A manual close: satisfied when the catalog's end reaches `end`."""

    id: str
    end: Position


@dataclass(frozen=True, slots=True)
class TopicState:
    """What the journal holds of one topic.

    `releasing`: the subscription is to be deleted once everything up to its end is offloaded. `lost_after`: the subscription had gone,
    so what followed this position up to the first ledger that is left is lost.
    """

    topic: TopicName
    open: OpenSegment | None = None
    failure: Failure | None = None
    abandoned: tuple[Abandoned, ...] = ()
    requests: tuple[CloseRequest, ...] = ()
    releasing: bool = False
    lost_after: Position | None = None
    unknown_fields: bytes = b""

    @property
    def idle(self) -> bool:
        """Nothing is remembered: the topic needs no place in the journal."""
        return self == TopicState(self.topic)


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose topic it is, and which incarnation the records after it speak of. `begin` is the first position that we keep."""

    application: str
    incarnation: int
    created: str
    begin: Position
    at: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """A ledger that was open when its last entry was offloaded has since been closed with `last`. `vouched_by`: who says that nothing is
    missing behind that entry, where no record proves it any more."""

    incarnation: int
    ledger: int
    last: int
    vouched_by: str = ""


Record = Claim | Segment | Loss | LedgerClosed


@dataclass(frozen=True, slots=True)
class TopicCatalog:
    """The fold of a topic's catalog records. `next_slot` is where the next record goes; `entries` and `size` are sums over the segments;
    `begins`: where the first claim of each incarnation begins."""

    topic: TopicName
    claim: Claim | None = None
    segments: tuple[Segment, ...] = ()
    losses: tuple[Loss, ...] = ()
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    next_slot: int = 0
    entries: int = 0
    size: int = 0
    begins: dict[int, Position] = field(default_factory=dict)

    @property
    def end(self) -> Position | None:
        """The last position accounted for in the present incarnation; None before its first record."""
        return _end(self.claim, self.segments, self.losses)

    @property
    def aborted(self) -> frozenset[Transaction]:
        """The transactions whose abort markers are in segments that were copied complete; their entries are, too."""
        return frozenset(t for segment in self.segments for part in segment.parts for t in part.stats.aborted)

    def begins_at(self, ledgers: LedgerList) -> Position | None:
        """Where the next segment starts: the claim's begin, or the successor of the end (None while that is unknown)."""
        if self.claim is None:
            return None
        end = self.end
        return self.claim.begin if end is None else ledgers.successor(end)

    def apply(self, *records: Record) -> TopicCatalog:
        """The catalog with more records. Raises IntegrityError where one does not continue it."""
        fold = CatalogFold(self)
        for record in records:
            fold.add(record)
        return fold.catalog()


class CatalogFold:
    """A catalog that takes records, each in the same time however many there are. `claim` and `next_slot` are set where records that
    cannot be read are passed over."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.claim = catalog.claim
        self.next_slot = catalog.next_slot
        self._topic = catalog.topic
        self._segments = list(catalog.segments)
        self._uuids = {s.uuid for s in catalog.segments}
        self._losses = list(catalog.losses)
        self._closed = dict(catalog.closed)
        self._entries = catalog.entries
        self._size = catalog.size
        self._begins = dict(catalog.begins)

    def catalog(self) -> TopicCatalog:
        """What the records add up to."""
        segments, losses = tuple(self._segments), tuple(self._losses)
        return TopicCatalog(
            self._topic,
            self.claim,
            segments,
            losses,
            dict(self._closed),
            self.next_slot,
            self._entries,
            self._size,
            dict(self._begins),
        )

    def add(self, record: Record) -> None:
        """The record of the next slot. Raises IntegrityError, and is as before, where it does not continue the others."""
        match record:
            case Claim():
                self.claim = record
                self._begins.setdefault(record.incarnation, record.begin)
            case Segment():
                self._check_continues(record.start, record.uuid)
                self._segments.append(record)
                self._uuids.add(record.uuid)
                self._entries += record.entries
                self._size += record.size
            case Loss():
                self._check_continues(record.start, "loss")
                self._losses += (replace(record, start=first, end=last, also=()) for first, last in record.also)
                self._losses.append(replace(record, also=()))
            case LedgerClosed():
                self._closed[record.incarnation, record.ledger] = record.last
        self.next_slot += 1

    def _check_continues(self, start: Position, what: str) -> None:
        if self.claim is None:
            raise IntegrityError(f"{self._topic}: {what} stands before any claim")
        end = _end(self.claim, self._segments, self._losses)
        if start.incarnation != self.claim.incarnation or (end is not None and start <= end):
            raise IntegrityError(f"{self._topic}: {what} starts at {start}, which does not continue {end}")
        if what in self._uuids:
            raise IntegrityError(f"{self._topic}: segment {what} is in the catalog already")


def _end(claim: Claim | None, segments: Sequence[Segment], losses: Sequence[Loss]) -> Position | None:
    """The end of the last of these that belongs to the claim's incarnation."""
    last: Position | None = None
    spans: tuple[Segment | Loss, ...] = (*segments[-1:], *losses[-1:])
    for span in spans:
        mine = claim is not None and span.end.incarnation == claim.incarnation
        if mine and (last is None or span.end > last):
            last = span.end
    return last
