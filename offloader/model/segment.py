"""A segment, from Assigned to Offloaded: how it is cut, its parts, what it accounts for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from offloader.errors import (
    DataLostError,
    IntegrityError,
    OffloadError,
    OutcomeUnknownError,
    RetryableError,
    TopicNotFoundError,
    UploadGoneError,
)
from offloader.model.ledger import Gap, LedgerRange
from offloader.model.position import Position
from offloader.model.units import KIB, MAX_TIME, MIB


class Source(StrEnum):
    """Where a segment's entries are read from: fixed when it is Assigned, because it decides what its bytes are."""

    BROKER = "broker"
    BROKER_WITH_BOOKIES = "broker-filled"  # from brokers, and from bookies what brokers do not deliver
    BOOKKEEPER = "bookkeeper"
    OFFLOADED = "offloaded"  # a whole ledger, as a byte copy of the object that a broker's own offloader wrote

    @property
    def complete(self) -> bool:
        """Whether it copies every stored entry, also markers and aborted or open transactions: consumers see none."""
        return self is not Source.BROKER


class Taking(StrEnum):
    """How a topic's ledgers that brokers have offloaded become part of the archive."""

    COPY = "copy"  # each as one segment, a byte copy of the brokers' object
    REWRITE = "rewrite"  # their entries are read like all others


V1, V2 = 1, 2  # whose blocks: ledger-based ones (PIP-17), or those of segments (PIP-76)
V3 = 3  # blocks as V2, in parts of equal length


@dataclass(frozen=True, slots=True)
class SegmentLayout:
    """What is fixed when a segment is Assigned: the same start then gives the same blocks and parts, for ever.

    `version` 1: the blocks are those that a broker's own offloader wrote (`Source.OFFLOADED`), whole ones in each part,
    and no index stands at a part's end. 3: each part but the last has exactly `part_size` bytes."""

    part_size: int = 8 * MIB
    block_size: int = 1 * MIB
    index_step: int = 256 * KIB
    version: int = V2


Transaction = tuple[int, int]
"""A transaction's id as Pulsar writes it: the most and the least significant 64 bits."""


@dataclass(frozen=True, slots=True)
class EntryStats:
    """What the message metadata of some entries say; None where no entry says it. Payloads are never opened."""

    messages: int = 0
    min_publish_time: int | None = None
    max_publish_time: int | None = None
    min_broker_time: int | None = None
    max_broker_time: int | None = None
    min_index: int | None = None
    max_index: int | None = None
    # those whose abort markers are among the entries
    aborted: tuple[Transaction, ...] = field(default=(), kw_only=True)
    # entries that are no messages: copied as they are, nothing is known of them
    unreadable: int = field(default=0, kw_only=True)

    @property
    def publish_bounds(self) -> tuple[int, int] | None:
        """No entry says a publish time outside these, signed as Java reads it; None where none says one."""
        least, greatest = self.min_publish_time, self.max_publish_time
        if least is None or greatest is None:
            return None
        if least <= MAX_TIME < greatest:  # some are below 0, some are not: nothing tells how far
            return -MAX_TIME - 1, MAX_TIME
        return (least, greatest) if greatest <= MAX_TIME else (least - (1 << 64), greatest - (1 << 64))


@dataclass(frozen=True, slots=True)
class Part:
    """One uploaded part: whole blocks, back to back. `number` counts from 1, `offset` is where it begins in the object.

    `indexed` is the number of index entries that stand at its end. `gaps` were found before or between this part's
    entries."""

    number: int
    offset: int
    size: int
    etag: str
    crc32c: int
    blocks: int
    ledgers: tuple[LedgerRange, ...]
    indexed: int
    stats: EntryStats
    gaps: tuple[Gap, ...] = ()

    @property
    def first(self) -> tuple[int, int]:
        return (self.ledgers[0].ledger, self.ledgers[0].first)

    @property
    def last(self) -> tuple[int, int]:
        return (self.ledgers[-1].ledger, self.ledgers[-1].last)

    @property
    def entries(self) -> int:
        return sum(r.count for r in self.ledgers)


class RollReason(StrEnum):
    """Why a segment was closed."""

    SIZE = "size"
    AGE = "age"
    REQUEST = "request"
    INDEX = "index"
    TERMINATED = "terminated"
    DELETED = "deleted"
    DISABLED = "disabled"
    RELEASED = "released"
    CAUGHT_UP = "caught-up"
    PASSED_ON = "passed-on"  # to another shard
    DATA_LOST = "data-lost"
    OFFLOADED = "offloaded"  # it is a ledger that brokers had offloaded, or ends before one


class SegmentStatus(StrEnum):
    """PIP-76's words (Assigned, Offloaded, Failed) and the two steps in between."""

    ASSIGNED = "Assigned"
    CLOSING = "Closing"
    SEALING = "Sealing"
    OFFLOADED = "Offloaded"
    FAILED = "Failed"


class FailureKind(StrEnum):
    """What a topic's slice or seal met, after the branches and leaves of the error tree."""

    RETRYABLE = "retryable"
    FATAL = "fatal"
    UNKNOWN = "outcome-unknown"
    INTEGRITY = "integrity"
    UPLOAD_GONE = "upload-gone"
    DATA_LOST = "data-lost"
    TASK_DIED = "task-died"
    TOPIC_GONE = "topic-gone"

    @classmethod
    def of(cls, error: OffloadError) -> FailureKind:
        """The kind that a failure is remembered as."""
        return next((kind for branch, kind in _KINDS if isinstance(error, branch)), cls.FATAL)


_KINDS: tuple[tuple[type[OffloadError], FailureKind], ...] = (
    (UploadGoneError, FailureKind.UPLOAD_GONE),
    (TopicNotFoundError, FailureKind.TOPIC_GONE),
    (DataLostError, FailureKind.DATA_LOST),
    (OutcomeUnknownError, FailureKind.UNKNOWN),
    (RetryableError, FailureKind.RETRYABLE),
    (IntegrityError, FailureKind.INTEGRITY),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A topic's last failure, how often in a row, and when it is tried again."""

    kind: FailureKind
    reason: str
    attempts: int
    retry_at: int
    of_catalog: bool = False  # its catalog could not be appended to, or read


@dataclass(frozen=True, slots=True)
class SealedFacts:
    """What sealing needs, journaled before its first write: repeated, it writes the same bytes."""

    offloaded_at: int
    size: int
    crc32c: int
    end: Position
    ledgers: tuple[LedgerRange, ...]
    gaps: tuple[Gap, ...]


SINGLE_PUT = "single-put"
"""In place of an upload's handle: the segment's object is its only part, which a worker writes with one conditional
PUT. Of several attempts one writes it, and nothing replaces it: the others find their bytes there, or fail."""


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A topic's one segment that is not Offloaded. `start` is its first position, a leading gap included.

    `upload` is the store's handle (text that only the store reads) or `SINGLE_PUT`; None until there is something to
    write."""

    uuid: str
    start: Position
    source: Source
    cuts: SegmentLayout
    assigned_at: int
    status: SegmentStatus = SegmentStatus.ASSIGNED
    predecessor_uuid: str = ""
    predecessor_end: Position | None = None
    upload: str | None = None
    parts: tuple[Part, ...] = ()
    closing_end: Position | None = None
    roll_reason: RollReason | None = None
    sealed: SealedFacts | None = None  # set when sealing begins
    former_ledger_last: int | None = None  # as in `Segment`
    former_ledger: int | None = None  # as in `Segment`
    lost_uploads: int = 0  # how many uploads of its range failed for good

    @property
    def size(self) -> int:
        return self.parts[-1].offset + self.parts[-1].size if self.parts else 0

    @property
    def blocks(self) -> int:
        return sum(p.blocks for p in self.parts)

    @property
    def next_part(self) -> int:
        """The number of the next part to upload: parts count from 1, as the journal has them."""
        return len(self.parts) + 1

    @property
    def covered(self) -> Position | None:
        """The last position that is safely uploaded, None before the first part."""
        if not self.parts:
            return None
        ledger, entry = self.parts[-1].last
        return Position(self.start.incarnation, ledger, entry)


@dataclass(frozen=True, slots=True)
class Segment:
    """An Offloaded segment: the OffloadSegment record of the catalog (PIP-76's fields, and what proves continuity).

    `start`..`end` is what it accounts for: every entry in it is in the object or in `gaps`.
    An object-less segment (`size` 0) accounts only for gaps.

    `former_ledger_last` proves that it follows where it begins another ledger: the entry that the ledger of the
    position before was closed with (-1: nobody wrote to it), as Pulsar's list said while it still had both ledgers.
    `former_ledger` is that ledger; None: a build wrote the record that did not name it."""

    uuid: str
    start: Position
    end: Position
    assigned_at: int
    offloaded_at: int
    size: int
    crc32c: int
    cuts: SegmentLayout
    source: Source
    roll_reason: RollReason
    ledgers: tuple[LedgerRange, ...]
    parts: tuple[Part, ...] = ()
    gaps: tuple[Gap, ...] = ()
    predecessor_uuid: str = ""
    predecessor_end: Position | None = None
    driver: str = ""
    driver_properties: tuple[tuple[str, str], ...] = ()
    deleted_ledgers: tuple[int, ...] = field(default=())
    former_ledger_last: int | None = None
    former_ledger: int | None = None

    @property
    def entries(self) -> int:
        return sum(r.count for r in self.ledgers)

    @property
    def v1_ledger(self) -> int | None:
        """The ledger whose V1 blocks, which do not name it, are its object; None: the blocks are ours."""
        return self.start.ledger if self.cuts.version == V1 else None


class Ending(NamedTuple):
    """A segment or a loss that something follows: its uuid, and where it ends."""

    uuid: str
    end: Position


@dataclass(frozen=True, slots=True)
class Loss:
    """Entries `start`..`end` that were gone before they were offloaded. `uncounted`: nobody knows how many, if any."""

    start: Position
    end: Position
    reason: str
    accepted_by: str
    at: int
    uncounted: bool = False
    predecessor_uuid: str = ""
    predecessor_end: Position | None = None
