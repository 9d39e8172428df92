"""The work planned for one topic in one micro-batch, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offloader.model.ledger import Gap, LedgerSpan
from offloader.model.position import Position
from offloader.model.segment import FailureKind, Part, SegmentLayout, Source
from offloader.model.topic import TopicName


class Lane(StrEnum):
    """A streaming query with a plan of its own: topics that cannot fill a part soon hold no other topic in theirs."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class SliceId:
    """Which work it is: `run`, `lane` and `plan` name the plan, `uuid` and `upload` the segment's object.

    `upload`: a handle, or `SINGLE_PUT`. `first_part`: the number of the first part to upload, the segment's
    `next_part`. Two attempts may upload different bytes under one number (short last parts with different ends). The
    wrong ones are never published: the commit names size, ETag and CRC32C of each part that the journal has. A single
    PUT never replaces an object.
    `start`: the first position to account for; where a gap begins there, the slice explains it."""

    topic: TopicName
    run: str
    lane: Lane
    plan: int
    uuid: str
    upload: str
    first_part: int
    start: Position


@dataclass(frozen=True, slots=True)
class Slice:
    """The work planned for one topic in one micro-batch: read from `id.start`, cut, upload whole parts.

    `bound`: the last position that it may read. `seal`: the segment ends at `bound`, so its last part may be short.
    `offset`, `first_block`: the object's bytes before the first part, and the number of that part's first block.
    `room`: bytes by which the object may grow. `goal`: object bytes by which it has something to show: a part, or the
    estimated rest of its segment. `alone`: it gets a task of its own, since its topic's last task died."""

    id: SliceId
    bound: Position
    seal: bool
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
    cuts: SegmentLayout
    ledgers: tuple[LedgerSpan, ...]
    max_gap_lookups: int = 1000
    alone: bool = False
    stall_ms: int | None = None  # it ends when nothing at all has come for so long; None: at the hard limit


class SliceStop(StrEnum):
    """Why a slice ended."""

    BOUND = "bound"  # everything up to the bound was read and, where it fills parts or seals, uploaded
    BUDGET = "budget"  # bytes or time are used up after at least one whole part
    FULL = "full"  # the segment's maximum size: `Receipt.seen_to` is where it must end
    LARGER = "larger"  # the segment was planned as a single PUT and is more than one part: nothing of it is uploaded
    SLOW = "slow"  # less than one part by the hard limit, or it will be
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What came of a slice. `id` is the slice's, to be matched with the journal.

    `seen_to`: the last position accounted for (entry or explained gap), uploaded or not. `gaps`: behind the last
    uploaded part, where the entries would take `seen_bytes`. `finished`: the part that ends the segment is uploaded.
    `reading_ms`: `elapsed_ms` without waiting for the store alone."""

    id: SliceId
    stop: SliceStop
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
