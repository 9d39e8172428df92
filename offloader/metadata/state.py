"""What the journal holds of one topic, and what the catalog's records of one topic add up to. Frozen, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from offloader.errors import IntegrityError
from offloader.model import Failure, LedgerList, Loss, OpenSegment, Position, Segment, TopicName


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
    """A ledger that was open when its last entry was offloaded has since been closed with `last`."""

    incarnation: int
    ledger: int
    last: int


Record = Claim | Segment | Loss | LedgerClosed


@dataclass(frozen=True, slots=True)
class TopicCatalog:
    """The fold of a topic's catalog records. `next_slot` is where the next record goes; `entries` and `size` are sums over the segments."""

    topic: TopicName
    claim: Claim | None = None
    segments: tuple[Segment, ...] = ()
    losses: tuple[Loss, ...] = ()
    closed: dict[tuple[int, int], int] = field(default_factory=dict)
    next_slot: int = 0
    entries: int = 0
    size: int = 0

    @property
    def end(self) -> Position | None:
        """The last position accounted for in the present incarnation; None before its first record."""
        if self.claim is None:
            return None
        ends = [s.end for s in self.segments[-1:]] + [loss.end for loss in self.losses[-1:]]
        ends = [p for p in ends if p.incarnation == self.claim.incarnation]
        return max(ends, default=None)

    def begins_at(self, ledgers: LedgerList) -> Position | None:
        """Where the next segment starts: the claim's begin, or the successor of the end (None while that is unknown)."""
        if self.claim is None:
            return None
        end = self.end
        return self.claim.begin if end is None else ledgers.successor(end)

    def apply(self, record: Record) -> TopicCatalog:
        """The catalog with one more record. Raises IntegrityError where the record does not continue it."""
        following = replace(self, next_slot=self.next_slot + 1)
        match record:
            case Claim():
                return replace(following, claim=record)
            case Segment():
                self._check_continues(record.start, record.uuid)
                entries, size = self.entries + record.entries, self.size + record.size
                return replace(following, segments=(*self.segments, record), entries=entries, size=size)
            case Loss():
                self._check_continues(record.start, "loss")
                return replace(following, losses=(*self.losses, record))
            case LedgerClosed():
                return replace(following, closed={**self.closed, (record.incarnation, record.ledger): record.last})

    def _check_continues(self, start: Position, what: str) -> None:
        if self.claim is None:
            raise IntegrityError(f"{self.topic}: {what} stands before any claim")
        end = self.end
        if start.incarnation != self.claim.incarnation or (end is not None and start <= end):
            raise IntegrityError(f"{self.topic}: {what} starts at {start}, which does not continue {end}")
        if any(s.uuid == what for s in self.segments):
            raise IntegrityError(f"{self.topic}: segment {what} is in the catalog already")
