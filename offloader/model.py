"""The values that everything else speaks of: topics, positions, ledgers, cuts, parts, segments, slices, receipts.

Frozen, no I/O. Sizes are in bytes, times in milliseconds since the epoch (UTC), positions inclusive unless a name says
`after`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, unquote

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# The last time that Java reads as one: a record has times as unsigned numbers.
MAX_TIME = (1 << 63) - 1

# A Java reader holds object lengths in 32 bits.
MAX_OBJECT_SIZE = 2 * GIB - 1


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A persistent topic, or one partition of one: `persistent://tenant/namespace/name[-partition-N]`."""

    tenant: str
    namespace_part: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read a full or a short name (`tenant/ns/name`, `name` = public/default). Raises ValueError."""
        rest = text
        if "://" in text:
            domain, _, rest = text.partition("://")
            if domain != "persistent":
                raise ValueError(f"{text!r}: only persistent topics can be offloaded")
        pieces = rest.split("/", 2)
        if len(pieces) == 1:
            pieces = ["public", "default", *pieces]
        if len(pieces) != 3 or not all(pieces):
            raise ValueError(f"{text!r} is not a topic name; write persistent://tenant/namespace/name")
        if any("\ud800" <= character <= "\udfff" for character in text):  # bytes of a command line that are no UTF-8
            raise ValueError(f"{text!r} is not a topic name; it is not UTF-8")
        return cls(*pieces)

    @property
    def namespace(self) -> str:
        return f"{self.tenant}/{self.namespace_part}"

    @property
    def partition(self) -> int:
        """The partition's number, -1 where the topic is not a partition."""
        match = re.search(r"-partition-(\d+)$", self.name)
        return int(match.group(1)) if match else -1

    @property
    def partitioned_name(self) -> str:
        """The partitioned topic's full name (the topic's own where it is not a partition)."""
        return re.sub(r"-partition-\d+$", "", str(self))

    @property
    def rest_path(self) -> str:
        """`persistent/tenant/namespace/name`, encoded for Pulsar's admin REST."""
        return f"persistent/{self.tenant}/{self.namespace_part}/{self.encoded}"

    @property
    def encoded(self) -> str:
        """The local name as it stands in an object key or a URL."""
        return quote(self.name, safe="")

    @classmethod
    def from_encoded(cls, tenant: str, namespace_part: str, encoded: str) -> TopicName:
        return cls(tenant, namespace_part, unquote(encoded))

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace_part}/{self.name}"


class Position(NamedTuple):
    """An entry's place in its topic. The order of the fields is the order of positions.

    Ledger ids grow within an incarnation but are not consecutive: a position's successor needs the ledger list.
    `entry == -1` means "before the ledger's first entry".
    """

    incarnation: int
    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str, incarnation: int = 0) -> Position:
        """Read `ledger:entry`. Raises ValueError."""
        match = re.fullmatch(r"([0-9]+):(-1|[0-9]+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a position; write LEDGER:ENTRY, for example 12:345")
        return cls(incarnation, int(match.group(1)), int(match.group(2)))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """One ledger of a topic's list. `last` is the last entry id it was closed with (-1: empty), None while it is open."""

    ledger: int
    last: int | None


class LedgerList:
    """A topic's ledgers in order, as Pulsar lists them: what makes a position's successor computable."""

    def __init__(self, spans: tuple[LedgerSpan, ...]) -> None:
        self.spans = tuple(sorted(spans, key=lambda s: s.ledger))
        self._by_id = {s.ledger: i for i, s in enumerate(self.spans)}

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._by_id

    def reaches(self, ledger: int) -> bool:
        """Whether the list has this ledger or a later one. Else it is older than whoever says that there is this ledger."""
        return bool(self.spans) and self.spans[-1].ledger >= ledger

    def closed_with(self, ledger: int) -> int | None:
        """The ledger's last entry id, None while it is open or when it is not (any more) in the list."""
        i = self._by_id.get(ledger)
        return None if i is None else self.spans[i].last

    def next_ledger(self, ledger: int) -> int | None:
        """The first listed ledger after this one that is open or not empty."""
        after = bisect_right(self.spans, ledger, key=lambda s: s.ledger)
        return next((self.spans[i].ledger for i in range(after, len(self.spans)) if self.spans[i].last != -1), None)

    def following(self, ledger: int) -> int | None:
        """The ledger that is listed right after this one, whatever it holds."""
        i = self._by_id.get(ledger)
        return None if i is None or i + 1 == len(self.spans) else self.spans[i + 1].ledger

    def successor(self, position: Position) -> Position | None:
        """The position right after; None when it cannot be known (yet): its ledger is not listed (any more), or it is full and no later
        one is listed. In an open ledger that is the next entry id.
        """
        if position.ledger not in self._by_id:
            return None
        last = self.closed_with(position.ledger)
        if last is None or position.entry < last:
            return Position(position.incarnation, position.ledger, position.entry + 1)
        following = self.next_ledger(position.ledger)
        return None if following is None else Position(position.incarnation, following, 0)


class Source(StrEnum):
    """Where a segment's entries are read from: fixed when it is Assigned, because it decides what its bytes are."""

    BROKER = "broker"
    FILLED = "broker-filled"  # from brokers, and from bookies what brokers do not deliver
    BOOKKEEPER = "bookkeeper"

    @property
    def complete(self) -> bool:
        """Whether every stored entry is copied, also what consumers never see: markers, aborted and open transactions."""
        return self is not Source.BROKER


@dataclass(frozen=True, slots=True)
class Cuts:
    """What is fixed when a segment is Assigned: the same start then gives the same blocks and parts, for ever."""

    part_size: int = 8 * MIB
    block_size: int = 1 * MIB
    index_step: int = 256 * KIB
    version: int = 2


class GapKind(StrEnum):
    """Why a broker did not deliver an entry."""

    ABORTED = "aborted"  # an entry of an aborted transaction
    MARKER = "marker"  # a server-only marker (transaction, replicated subscription)
    FILTERED = "filtered"  # proven filtered, content unknown


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries `first`..`last` of one ledger that exist in Pulsar, are not in the segment, and are known to be `kind`."""

    kind: GapKind
    ledger: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class LedgerRange:
    """What a part or a segment holds of one ledger. `size` is the sum of the entries' lengths."""

    ledger: int
    first: int
    last: int
    count: int
    size: int
    closed_with: int | None = None


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
    aborted: tuple[Transaction, ...] = field(default=(), kw_only=True)  # those whose abort markers are among the entries
    unreadable: int = field(default=0, kw_only=True)  # entries that are no messages: copied as they are, nothing is known of them

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

    `indexed` is the number of index entries that stand at its end. `gaps` were found before or between this part's entries.
    """

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
    DATA_LOST = "data-lost"


class SegmentStatus(StrEnum):
    """PIP-76's words (Assigned, Offloaded, Failed) and the two steps in between."""

    ASSIGNED = "Assigned"
    CLOSING = "Closing"
    SEALING = "Sealing"
    OFFLOADED = "Offloaded"
    FAILED = "Failed"


class FailureKind(StrEnum):
    """What a topic's slice or seal met; names are those of the error tree's leaves."""

    RETRYABLE = "retryable"
    FATAL = "fatal"
    UNKNOWN = "outcome-unknown"
    INTEGRITY = "integrity"
    UPLOAD_GONE = "upload-gone"
    DATA_LOST = "data-lost"
    TASK_DIED = "task-died"
    TOPIC_GONE = "topic-gone"


@dataclass(frozen=True, slots=True)
class Failure:
    """A topic's last failure, how often in a row, and when it is tried again."""

    kind: FailureKind
    reason: str
    attempts: int
    retry_at: int


@dataclass(frozen=True, slots=True)
class SealedFacts:
    """Everything that sealing steps 2-4 need, fixed in the journal before the first of them: they write the same bytes
    however often they run."""

    offloaded_at: int
    size: int
    crc32c: int
    end: Position
    ledgers: tuple[LedgerRange, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A topic's one segment that is not Offloaded. `start` is its first position, a leading gap included.

    `upload` is the store's handle (text that only the store reads); None until there is a whole part to write.
    """

    uuid: str
    start: Position
    source: Source
    cuts: Cuts
    assigned_at: int
    status: SegmentStatus = SegmentStatus.ASSIGNED
    predecessor_uuid: str = ""
    predecessor_end: Position | None = None
    upload: str | None = None
    parts: tuple[Part, ...] = ()
    closing_end: Position | None = None
    roll_reason: RollReason | None = None
    sealed: SealedFacts | None = None
    former_ledger_last: int | None = None  # as in `Segment`

    @property
    def size(self) -> int:
        return self.parts[-1].offset + self.parts[-1].size if self.parts else 0

    @property
    def blocks(self) -> int:
        return sum(p.blocks for p in self.parts)

    @property
    def covered(self) -> Position | None:
        """The last position that is safely uploaded, None before the first part."""
        if not self.parts:
            return None
        ledger, entry = self.parts[-1].last
        return Position(self.start.incarnation, ledger, entry)


class Lane(StrEnum):
    """A streaming query with a plan of its own: topics that cannot fill a part soon hold no other topic in theirs."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Slice:
    """The work planned for one topic in one micro-batch: read from `start`, cut, upload whole parts.

    `start` is the first position to account for (a gap there is to be explained); `bound` the last one that may be read.
    `seal` says that `bound` is the segment's fixed end, so that the last part may be short.
    `run`, `lane` and `plan` name the plan that it belongs to. `goal`: object bytes by which it has something to show, a part or, where it
    ends the segment, what is estimated to be left of it.
    """

    topic: TopicName
    run: str
    plan: int
    uuid: str
    upload: str
    start: Position
    bound: Position
    seal: bool
    first_part: int
    offset: int
    first_block: int
    room: int
    byte_budget: int
    time_budget_ms: int
    hard_limit_ms: int
    silent_ms: int
    goal: int
    read_ahead: int
    source: Source
    cuts: Cuts
    ledgers: tuple[LedgerSpan, ...]
    lane: Lane = Lane.FAST
    max_gap_lookups: int = 1000
    alone: bool = False
    stall_ms: int | None = None  # it ends when nothing at all has come for so long; None: at the hard limit


class SliceStop(StrEnum):
    """Why a slice ended."""

    BOUND = "bound"  # everything up to the bound was read and, where it fills parts or seals, uploaded
    BUDGET = "budget"  # bytes or time are used up after at least one whole part
    FULL = "full"  # the segment's maximum size: `Receipt.seen_to` is where it must end
    SLOW = "slow"  # less than one part by the hard limit, or it will be
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of a slice. `uuid`, `upload`, `first_part` and `start` repeat the slice's, to be matched with the journal.

    `seen_to` is the last position accounted for (entry or explained gap), uploaded or not; `seen_bytes` the object bytes
    that what was read after the last uploaded part would take.
    `gaps` are those after the last uploaded part; `finished`: the segment's fixed end was reached and its last part uploaded.
    `reading_ms`: `elapsed_ms` without the time in which it only waited for the store.
    """

    topic: TopicName
    run: str
    plan: int
    uuid: str
    upload: str
    first_part: int
    start: Position
    stop: SliceStop
    lane: Lane = Lane.FAST
    parts: tuple[Part, ...] = ()
    seen_to: Position | None = None
    seen_bytes: int = 0
    gaps: tuple[Gap, ...] = ()
    finished: bool = False
    failure_kind: FailureKind | None = None
    failure_reason: str = ""
    elapsed_ms: int = 0
    reading_ms: int = 0
    read_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """An Offloaded segment: the OffloadSegment record of the catalog (PIP-76's fields, and what proves continuity).

    `start`..`end` is what it accounts for: every entry in it is in the object or in `gaps`.
    An object-less segment (`size` 0) accounts only for gaps.

    `former_ledger_last` proves that it follows where it begins another ledger: the entry that the ledger of the position before was
    closed with (-1: nobody wrote to it), as Pulsar's list said while it still had both ledgers.
    """

    uuid: str
    start: Position
    end: Position
    assigned_at: int
    offloaded_at: int
    size: int
    crc32c: int
    cuts: Cuts
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

    @property
    def entries(self) -> int:
        return sum(r.count for r in self.ledgers)


class Ending(NamedTuple):
    """A segment or a loss that something follows: its uuid, and where it ends."""

    uuid: str
    end: Position


@dataclass(frozen=True, slots=True)
class Loss:
    """Entries `start`..`end` that were gone before they were offloaded, and who accepted that. `uncounted`: nobody knows how many there
    were here, if any."""

    start: Position
    end: Position
    reason: str
    accepted_by: str
    at: int
    uncounted: bool = False
    predecessor_uuid: str = ""
    predecessor_end: Position | None = None
