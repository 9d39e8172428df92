"""What is left of a topic, and what a rebuild notes about it: frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionRecord,
    DeletionUndone,
    Tombstone,
    in_order,
)
from offloader.metadata.generations import Slots
from offloader.metadata.layout import record_key
from offloader.metadata.state import Claim, LedgerClosed, Said, TopicCatalog, record_uuid
from offloader.model import Loss, OpenSegment, Position, Segment, TopicName

Span = Segment | Loss


class NoteKind(StrEnum):
    """What a note is about."""

    UNKNOWN = "unknown"  # it was recorded once, and nothing says it any more
    LEFT_OUT = "left-out"  # a record or an object that does not get into the catalog
    LOST = "lost"  # positions of which no record is left
    DAMAGED = "damaged"  # a record that cannot be read


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that the person who decides must know."""

    kind: NoteKind
    key: str
    message: str
    position: Position | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.key}: {self.message}"


@dataclass(frozen=True, slots=True)
class Remains:
    """Everything that is left of a topic but the bytes of its segments.

    `records`: by uuid, segments without their parts; `read_from`: the key of each. `generation`: the one in force;
    `committed`: the uuids of its records. `catalog`: None if it cannot be read as a whole. `incomplete`: uuids whose
    own object is absent or damaged. `with_manifests`: generations that have manifests left, perhaps nothing else.
    """

    topic: TopicName
    records: Mapping[str, Said]
    read_from: Mapping[str, str]
    committed: AbstractSet[str]
    incomplete: AbstractSet[str]
    catalog: TopicCatalog | None
    generation: int | None
    slots: Slots
    with_manifests: AbstractSet[int]
    open: tuple[tuple[str, OpenSegment], ...]
    abandoned: AbstractSet[str]
    notes: tuple[Note, ...]

    @property
    def spans(self) -> list[Span]:
        """Segments and losses."""
        return [record for record in self.records.values() if isinstance(record, Segment | Loss)]

    @property
    def claims(self) -> list[Claim]:
        """All claims of which a record is left."""
        return [record for record in self.records.values() if isinstance(record, Claim)]

    @property
    def closed(self) -> list[LedgerClosed]:
        """The ends of ledgers that have a record of their own."""
        return [record for record in self.records.values() if isinstance(record, LedgerClosed)]

    @property
    def deletions(self) -> list[DeletionRecord]:
        """The records of deletions, as a log can have them. What the catalog in force has taken back has not begun
        there: whoever was paused while that was made may have written so late."""
        of = {uuid: record for uuid, record in self.records.items() if isinstance(record, DeletionRecord)}
        undone = {
            each.number for uuid, each in of.items() if uuid in self.committed and isinstance(each, DeletionUndone)
        }
        begun = (DeletionBegun, Deleted)
        left = (each for each in of.values() if not (isinstance(each, begun) and each.number in undone))
        return in_order(left, (each for each in self.records.values() if isinstance(each, Tombstone)))

    def is_deleted(self, span: Span) -> bool:
        """Whether a segment's objects may be absent, because it was deleted."""
        if isinstance(span, Tombstone):
            return True
        deletions = self.deletions
        begun = {each.number for each in deletions if isinstance(each, DeletionBegun | Deleted)}
        of = (each for each in deletions if isinstance(each, Deleting | Deleted) and each.number in begun)
        return any(each.start <= span.start and span.end <= each.end for record in of for each in record.ranges)

    def uuid(self, record: Said) -> str:
        """A record's uuid."""
        return record_uuid(self.topic, record)

    def key(self, record: Said) -> str:
        """Where a record's object is, or would be."""
        return record_key(self.topic, self.uuid(record))


@dataclass(frozen=True, slots=True)
class Given:
    """What the person who rebuilds says: for a lost claim, whose topic it is and when it was created; ends of ledgers
    (ledger and last entry). `at`: now. Times in ms."""

    application: str
    at: int
    created: int | None = None
    ended: tuple[tuple[int, int], ...] = ()
