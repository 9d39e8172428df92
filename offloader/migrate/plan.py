"""What a migration would do to each ledger of a topic, and about what that asks of the store. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from offloader.model import GIB, MIB, LedgerSpan, Position, Taking

ENTRY_BYTES = 12  # of an object's format, each
LARGEST = 2 * GIB - 128 * MIB
_SCHEMES = {
    "aws-s3": ("s3",),
    "s3": ("s3",),
    "google-cloud-storage": ("gs", "gcs"),
    "azureblob": ("az", "abfs", "abfss"),
    "aliyun-oss": ("s3",),
}
READ_AT_ONCE = 4 * MIB
READ_BY_BROKERS = MIB  # at once, from their bucket
COPIED_AT_ONCE = 128 * MIB
STREAMED_AT_ONCE = 16 * MIB
RECORD_PUTS = 6  # of a segment: upload begun and completed, index, record beside it, catalog, journal
PAUSE = 0.2  # seconds that an unload costs producers, measured with one broker


class ListedState(StrEnum):
    """What Pulsar says of a ledger."""

    OPEN = "open"
    EMPTY = "empty"
    CLOSED = "closed"
    ATTEMPTED = "attempted"  # brokers are at it, or have failed
    KEPT = "offloaded"  # and BookKeeper may have it, too
    MOVED = "offloaded-only"  # BookKeeper's copy is deleted


class LedgerAction(StrEnum):
    """What becomes of it."""

    NOTHING = "nothing"
    ARCHIVED = "archived"  # all of it is in the archive already
    OUTSIDE = "outside"  # the archive goes on behind it, and does not have it: what Pulsar has is the only copy
    COPY = "copy"  # a segment, its object a copy of the brokers' one
    READ = "read"  # its entries go into segments like all others
    BRIDGE = "bridge"  # brokers get a copy of it, made of our blocks
    READABLE = "readable"  # brokers read it already
    STAYS = "stays"  # in BookKeeper; brokers offload it by themselves later
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TopicLedger:
    """What is known of one ledger of a topic's list. `driver`: of the offloader that wrote it ("": nobody says)."""

    span: LedgerSpan
    entries: int
    size: int
    state: ListedState
    driver: str = ""


class AbsentRange(NamedTuple):
    """Positions that the archive goes on behind without having them, and in words why."""

    start: Position
    end: Position
    why: str


@dataclass(frozen=True, slots=True)
class ArchivedExtent:
    """What the archive has of a topic as it is now: from `begin` (None: it is not claimed yet) to `end` (None: nothing
    yet), but for what is `absent`."""

    begin: Position | None = None
    end: Position | None = None
    absent: tuple[AbsentRange, ...] = ()

    def reaches(self, span: LedgerSpan) -> bool:
        """Whether it goes on behind a ledger that is closed."""
        return self.end is not None and span.last is not None and (span.ledger, span.last) <= self.end.place

    def pending(self, facts: TopicLedger) -> int:
        """How many entries of a ledger are still to come into it."""
        span, end = facts.span, self.end
        if self.outside(span) and self.begin is not None and span.ledger < self.begin.ledger:
            return 0
        if end is None or span.ledger > end.ledger:
            return facts.entries
        return max(facts.entries - end.entry - 1, 0) if span.ledger == end.ledger else 0

    def outside(self, span: LedgerSpan) -> str:
        """Why it does not have, or will not have, all of a closed ledger; empty: it has, or will have."""
        first, last, begin = (span.ledger, 0), (span.ledger, span.last or 0), self.begin
        if begin is not None and last < begin.place:
            return "the archive begins behind it"
        if begin is not None and first < begin.place:
            return f"the archive begins in it, with entry {begin.entry}"
        absent = (each for each in self.absent if each.start.place <= last and first <= each.end.place)
        return next((each.why for each in absent), "")


@dataclass(frozen=True, slots=True)
class PlannedLedger:
    """One ledger, and what becomes of it. `why`: where that needs a reason. `pending`: of so many entries segments are
    made."""

    ledger: int
    entries: int
    size: int
    state: ListedState
    action: LedgerAction
    why: str = ""
    pending: int = 0

    @property
    def stored(self) -> int:
        """Bytes of an object that has it."""
        return self.size + self.entries * ENTRY_BYTES

    @property
    def unread(self) -> int:
        """Bytes of the segments that are made of it."""
        return self.stored * self.pending // self.entries if self.entries else 0


def state_of(
    span: LedgerSpan, offloaded: Collection[int], attempted: Collection[int], moved: Collection[int]
) -> ListedState:
    """From Pulsar's list; `attempted`: with the uuid of a copy; `moved`: BookKeeper's copy is known to be deleted."""
    if span.last is None:
        return ListedState.OPEN
    if span.last < 0:
        return ListedState.EMPTY
    if span.ledger in offloaded:
        return ListedState.MOVED if span.ledger in moved else ListedState.KEPT
    return ListedState.ATTEMPTED if span.ledger in attempted else ListedState.CLOSED


def plan_to_streaming(
    ledgers: Iterable[TopicLedger], archived: ArchivedExtent, taking: Taking, refusals: Mapping[str, str]
) -> tuple[PlannedLedger, ...]:
    """`refusals`: why copies of a driver cannot be taken."""
    return tuple(_planned(each, archived, *_action(each, archived, taking, refusals)) for each in ledgers)


def _planned(facts: TopicLedger, archived: ArchivedExtent, action: LedgerAction, why: str) -> PlannedLedger:
    made = action in (LedgerAction.READ, LedgerAction.BRIDGE, LedgerAction.STAYS)
    pending = archived.pending(facts) if made else 0
    return PlannedLedger(facts.span.ledger, facts.entries, facts.size, facts.state, action, why, pending)


def _action(
    facts: TopicLedger, archived: ArchivedExtent, taking: Taking, refusals: Mapping[str, str]
) -> tuple[LedgerAction, str]:
    span, state, end = facts.span, facts.state, archived.end
    if state is ListedState.EMPTY:
        return LedgerAction.NOTHING, ""
    outside = archived.outside(span) if state is not ListedState.OPEN else ""
    if outside:
        return LedgerAction.OUTSIDE, outside
    if archived.reaches(span):
        return LedgerAction.ARCHIVED, ""
    if state not in (ListedState.KEPT, ListedState.MOVED):
        return LedgerAction.READ, "brokers have not completed their copy" if state is ListedState.ATTEMPTED else ""
    if end is not None and span.ledger == end.ledger:
        return LedgerAction.READ, "a part of it is in the archive already"
    if taking is Taking.REWRITE:
        return LedgerAction.READ, ""
    if facts.size + facts.entries * ENTRY_BYTES > LARGEST:
        return LedgerAction.READ, "it is larger than an object of ours may be"
    refusal = refusals.get(facts.driver)
    if refusal is not None:
        return LedgerAction.REFUSED, refusal
    return LedgerAction.COPY, ""


def plan_to_ledger_based(ledgers: Iterable[TopicLedger], archived: ArchivedExtent) -> tuple[PlannedLedger, ...]:
    """What is closed and not archived yet will be, before anything is handed over."""
    return tuple(_planned(each, archived, *_way_back(each, archived)) for each in ledgers)


def _way_back(facts: TopicLedger, archived: ArchivedExtent) -> tuple[LedgerAction, str]:
    if facts.state is ListedState.EMPTY:
        return LedgerAction.NOTHING, ""
    if facts.state in (ListedState.KEPT, ListedState.MOVED):
        return LedgerAction.READABLE, ""
    if facts.state is ListedState.OPEN:
        return LedgerAction.STAYS, ""
    outside = archived.outside(facts.span)
    return (LedgerAction.STAYS, f"brokers get no copy: {outside}") if outside else (LedgerAction.BRIDGE, "")


def drivers_out_of_reach(bucket_scheme: str, drivers: Collection[str]) -> Mapping[str, str]:
    """Why copies of these drivers cannot be read from a bucket that is reached so ("": none is configured)."""
    return {driver: why for driver in drivers if (why := _why_not(bucket_scheme, driver))}


def _why_not(scheme: str, driver: str) -> str:
    name = driver.lower()
    if name == "filesystem":
        return "Pulsar's filesystem offloader keeps ledgers as Hadoop MapFiles, which we do not read: use --rewrite"
    if not scheme:
        return "set lifecycle.stockBucket to the bucket that brokers offload to, or use --rewrite"
    wanted = _SCHEMES.get(name, (scheme,) if not name else ())
    if not wanted:
        return f"we do not know the offload driver {driver}: use --rewrite"
    if scheme not in wanted:
        return (
            f"the offload driver is {driver}, and lifecycle.stockBucket begins with {scheme}://: name the brokers' "
            f"bucket ({wanted[0]}://…), or use --rewrite"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Cost:
    """`stored`: bytes that the archive has more of; `out`: bytes that leave the store."""

    writes: int = 0
    reads: int = 0
    stored: int = 0
    out: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.writes + other.writes, self.reads + other.reads, self.stored + other.stored, self.out + other.out
        )


@dataclass(frozen=True, slots=True)
class CostShape:
    """Sizes that say how often something is asked of a store. `inside`: it copies by itself, so that only the check of
    a copy leaves it."""

    part_size: int
    segment_size: int
    inside: bool


def cost_of(ledgers: Sequence[PlannedLedger], shape: CostShape, *, back: bool) -> Cost:
    """About what it takes to do this to the ledgers of one topic; on the way back with the proof, which reads all."""
    total = sum((_copied(each, shape) for each in ledgers), _streamed(ledgers, shape))
    return total + sum((_proven(each) for each in ledgers), Cost()) if back else total


def pause_of(ledgers: Iterable[PlannedLedger], at_once: int) -> float:
    """Seconds, in all: an unload for each `at_once` ledgers that brokers get copies of, and one more, since each unload
    closes the open ledger, whose turn then comes."""
    bridged = sum(one.action is LedgerAction.BRIDGE for one in ledgers)
    return PAUSE * (_times(bridged, at_once) + 1) if bridged else 0


def _copied(ledger: PlannedLedger, shape: CostShape) -> Cost:
    """Objects that are made of whole ledgers, or only read."""
    stored = ledger.stored
    reads = _times(stored, READ_AT_ONCE)
    if ledger.action not in (LedgerAction.COPY, LedgerAction.BRIDGE):
        return Cost()
    copied = _times(stored, COPIED_AT_ONCE if shape.inside else STREAMED_AT_ONCE)
    times = 1 if shape.inside else 2
    return Cost(copied + RECORD_PUTS, times * reads + 4, stored, times * stored)


def _streamed(ledgers: Iterable[PlannedLedger], shape: CostShape) -> Cost:
    """Segments, which small ledgers share."""
    unread = moved = 0
    for each in ledgers:
        unread += each.unread
        if each.state is ListedState.MOVED:  # brokers read their own object for us
            moved += each.unread
    parts, segments = _times(unread, shape.part_size), _times(unread, shape.segment_size)
    return Cost(parts + RECORD_PUTS * segments, parts + _times(moved, READ_BY_BROKERS), unread, moved)


def _proven(ledger: PlannedLedger) -> Cost:
    """The command reads what is archived, and brokers read their own objects for it."""
    if ledger.action is LedgerAction.READABLE or ledger.action is LedgerAction.BRIDGE:
        stored = ledger.stored
        return Cost(0, _times(stored, READ_AT_ONCE) + _times(stored, READ_BY_BROKERS), 0, 2 * stored)
    return Cost(0, _times(ledger.unread, READ_AT_ONCE), 0, ledger.unread)


def _times(size: int, at_once: int) -> int:
    return -(-size // at_once)
