"""What is left of a topic: frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from offloader.metadata.state import Claim, Record
from offloader.model import Cuts, EntryStats, LedgerRange, Loss, OpenSegment, Position, RollReason, Segment, TopicName

MARK = "catalog rebuild"  # in what a rebuild makes: a claim's reason, who accepted a loss


def is_made(record: Record) -> bool:
    """Whether a rebuild has made the record: the next one makes it again, of what is there then."""
    match record:
        case Claim():
            return record.reason == MARK
        case Loss():
            return record.accepted_by == MARK
        case Segment():
            return record.roll_reason is RollReason.UNKNOWN
    return False


class NoteKind(StrEnum):
    """What a note is about."""

    UNKNOWN = "unknown"  # it was recorded once, and nothing says it any more
    LEFT_OUT = "left-out"  # an object that gets no record
    LOST = "lost"  # positions of which nothing is left
    DAMAGED = "damaged"  # a record that is moved aside


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that whoever decides must know."""

    kind: NoteKind
    key: str
    message: str
    position: Position | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.message}"


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """A block of a data object. `first_size` is the length of its first entry."""

    offset: int
    length: int
    held: LedgerRange
    first_size: int
    crc32c: int
    stats: EntryStats


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A data object and its index object that are sound and belong together, and that no record names.

    `ends`: by ledger, the last entry id that the index speaks of: what the ledger was closed with, where that was known, else the
    last one of the segment, a gap at its end included.
    """

    uuid: str
    size: int
    offloaded_at: int
    ends: Mapping[int, int]
    blocks: tuple[BlockFacts, ...]

    @property
    def first(self) -> tuple[int, int]:
        return (self.blocks[0].held.ledger, self.blocks[0].held.first)

    @property
    def last(self) -> tuple[int, int]:
        return (self.blocks[-1].held.ledger, self.blocks[-1].held.last)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that is known of a topic. `records` can be read and agree with each other; `damaged` are the slots of those that
    cannot, or do not. `made` was made by earlier rebuilds, and is made again."""

    topic: TopicName
    records: Mapping[int, Record]
    damaged: Mapping[int, str] = field(default_factory=dict)
    objects: tuple[FoundObject, ...] = ()
    open: tuple[tuple[str, OpenSegment], ...] = ()  # with the application whose journal has it
    notes: tuple[Note, ...] = ()
    made: Mapping[int, Record] = field(default_factory=dict)

    @property
    def segments(self) -> list[Segment]:
        """The segments that still have a record."""
        return [r for _, r in sorted(self.records.items()) if isinstance(r, Segment)]

    @property
    def claims(self) -> list[Claim]:
        """The claims that still have a record, before these those that were made again."""
        found = [r for records in (self.made, self.records) for _, r in sorted(records.items())]
        return [r for r in found if isinstance(r, Claim)]

    @property
    def made_segments(self) -> Mapping[str, Segment]:
        """The segments that earlier rebuilds have made, by uuid."""
        return {r.uuid: r for _, r in sorted(self.made.items()) if isinstance(r, Segment)}

    @property
    def slots(self) -> int:
        """How many slots must be filled at least."""
        return max([*self.records, *self.damaged, *self.made], default=-1) + 1


@dataclass(frozen=True, slots=True)
class Given:
    """What whoever asks says, for where the evidence does not. `created` None: not known. `ended`: positions behind which nothing is
    missing up to the next ones that are recorded, though no record proves it."""

    application: str
    at: int
    incarnation: int = 0
    created: str | None = None
    cuts: Cuts = field(default_factory=Cuts)
    root: str = ""
    ended: tuple[tuple[int, int], ...] = ()
