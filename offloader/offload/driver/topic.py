"""What the running application knows of one topic, and the planner's view of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from offloader.metadata.state import CatalogHead, TopicState
from offloader.model import Position, RollReason, Source, TopicName
from offloader.offload.core import lanes, segments
from offloader.offload.core.evidence import Look, TopicListing
from offloader.offload.core.lanes import LaneLimits, Speed
from offloader.offload.core.planner import Reach, TopicRules, TopicView, enough
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.ports.admin import TopicInfo
from offloader.ports.pins import TopicEnd

ENTRY_OVERHEAD = 12  # bytes that the object format adds to an entry


@dataclass(frozen=True, slots=True)
class Committed:
    """What the topic's catalog has, as far as we know. `catalog_error`: what is wrong with that; it is loaded anew before anything else
    is decided, at `reload_at` or later. `committing.py` alone changes it."""

    catalog: CatalogHead
    catalog_error: str = ""
    reload_at: int = 0


@dataclass(frozen=True, slots=True)
class Retirement:
    """The topic is offloaded up to `at`, and no further. None: to the end that it has at the first look after `asked_at`.
    `retiring.py` alone changes it."""

    reason: RollReason
    at: Position | None
    asked_at: int


@dataclass
class Inquiry:
    """What is known of a topic that may be gone. `vouched`: somebody says that it was deleted. `adopted`: before it was gone; else it is
    taken in anew where it turns out to be there."""

    adopted: bool = True
    vouched: bool = False
    looks: list[Look] = field(default_factory=list)
    look_at: int = 0


@dataclass
class Topic:
    """One topic in the running application: its catalog, what was last seen in Pulsar, and what the last slice taught.

    Changed by the driver's thread only.
    """

    name: TopicName
    rules: TopicRules
    committed: Committed
    info: TopicInfo
    end: TopicEnd
    looked_at: int
    source: Source = Source.BROKER  # where what is open, or will be opened next, is read from
    look_again_at: int = 0
    ledgers_at: int = 0  # when its ledger list was last read, since it was adopted
    doubted: bool = False  # a slice has failed since then: what it was to read may have been trimmed, which moves no end
    wanted_bytes: int = 0
    speed: Speed = field(default_factory=Speed)
    travels: bool = False  # a slice of it is in a plan whose receipts are not in yet
    died: bool = False
    planned_at: int = 0
    throttled_since: int = 0
    retirement: Retirement | None = None
    looking: bool = False  # its end is being asked for
    alarm: str = ""
    unseen: str = ""  # why it could not be looked at
    acknowledged: Position | None = None
    polls: RetrySchedule = field(default_factory=RetrySchedule)
    acknowledging: RetrySchedule = field(default_factory=RetrySchedule)
    release_retry: RetrySchedule = field(default_factory=RetrySchedule)
    accepted_loss: Position | None = None
    inquiry: Inquiry | None = None  # it may be gone
    missing: bool = False  # it was held only to find out what became of it, and is there: it is to be taken in
    gone: str = ""  # why there is nothing left to read of this incarnation
    last_seen: Position | None = None
    seen_at: int = 0  # when its end was last looked at
    hidden_end: Position | None = None  # the end of a tail that no broker delivers, and that is explained
    awaited: Position | None = None  # the first position that was seen to be there and is not accounted for
    deleting: bool = False  # its pin, for good
    pin_released: bool = False
    tail_looked_at: int = 0
    undecided: bool = False  # an open transaction keeps the tail from being read

    @property
    def catalog(self) -> CatalogHead:
        return self.committed.catalog

    @property
    def retire_at(self) -> Position | None:
        return self.retirement.at if self.retirement else None

    @property
    def incarnation(self) -> int:
        return self.catalog.claim.incarnation if self.catalog.claim else 0

    @property
    def readable(self) -> bool:
        """Whether there is anything to decide: it is there, and its catalog is sound."""
        return not (self.gone or self.inquiry or self.committed.catalog_error)

    @property
    def known_at(self) -> int:
        """When `last` was last learned: consumers' end is asked for often, the ledger's only where it is needed."""
        return self.ledgers_at if self.source.complete else self.seen_at

    @property
    def confirmed(self) -> Position | None:
        """The last entry that is stored for good, whether consumers get it or not; None: there is none in the ledgers that are listed."""
        spans = self.info.ledgers.spans
        found = [(s.ledger, s.last) for s in spans if s.last is not None and s.last >= 0][-1:]
        last = self.info.last_confirmed
        if last is not None and spans and last[0] <= spans[-1].ledger:  # beyond: the list is older than the end
            found.append(last)
        return Position(self.incarnation, *max(found)) if found else None

    @property
    def last(self) -> Position | None:
        """The last position that can be accounted for: readable, or explained; from bookies all that is confirmed."""
        if self.source is Source.BOOKKEEPER:
            return self.confirmed
        readable = None if self.end.last is None else Position(self.incarnation, *self.end.last)
        return max((p for p in (readable, self.hidden_end) if p is not None), default=None)

    def hidden_tail(self) -> tuple[Position, Position] | None:
        """What the ledger has beyond everything that a broker delivers: (first, last); None: nothing."""
        raw, last = self.confirmed, self.last
        if raw is None:
            return None
        first = self.begin() if last is None else self.info.ledgers.successor(last)
        begin = self.begin()
        if first is not None and begin is not None:
            first = max(first, begin)
        return None if first is None or first > raw else (first, raw)

    @property
    def mark_delete(self) -> Position:
        return Position(self.incarnation, *self.end.mark_delete)

    def begin(self) -> Position | None:
        """Where the next segment starts; None while nothing proves what follows the catalog's end."""
        start = self.catalog.next_start(self.info.ledgers)
        return None if start is None else start.position

    @property
    def listed(self) -> TopicListing:
        """What Pulsar's list has of it."""
        return TopicListing(self.info.ledgers, self.mark_delete, self.awaited, self.info.token)

    def _next(self, state: TopicState) -> Position | None:
        return segments.next_position(state.open, self.info.ledgers) if state.open else self.begin()

    def pending(self, state: TopicState) -> int:
        """An estimate of what lies after the last uploaded position."""
        return pending_bytes(self.info, self._next(state), self.last)

    def view(self, state: TopicState, slow: LaneLimits, allowance: int | None = None, allowed_at: int = 0) -> TopicView:
        """The planner's view of the topic. `slow`: the slow lane's limits."""
        begin, start, retirement = self.catalog.next_start(self.info.ledgers), self._next(state), self.retirement
        return TopicView(
            state=state,
            rules=self.rules,
            ledgers=self.info.ledgers,
            begin=begin,
            last=self.last,
            pending_bytes=self.pending(state),
            wanted_bytes=self.wanted_bytes,
            predecessor=self.catalog.last,
            retire=retirement.reason if retirement else RollReason.TERMINATED if self.info.terminated else None,
            retire_at=self.retire_at,
            allowance=allowance,
            allowed_at=allowed_at,
            speed=self.speed,
            died=self.died,
            planned_at=self.planned_at,
            reach=None
            if start is None
            else reach(self.info, start, lanes.sure_bytes(self.speed, slow), enough(state, self.rules)),
        )


def source_of(state: TopicState, rules: TopicRules) -> Source:
    """Where the open segment's entries are read from, or where those of the next one will be."""
    return rules.source if state.open is None else state.open.source


def pending_bytes(info: TopicInfo, start: Position | None, last: Position | None) -> int:
    """Object bytes that `start`..`last` would take, estimated from the ledgers' average entry."""
    if start is None or last is None or last < start:
        return 0
    total = 0
    for ledger, (entries, size) in info.sizes.items():
        if ledger < start.ledger or ledger > last.ledger or entries <= 0:
            continue
        first = start.entry if ledger == start.ledger else 0
        end = last.entry if ledger == last.ledger else entries - 1
        count = max(end - first + 1, 0)
        total += count * size // entries + count * ENTRY_OVERHEAD
    return max(total, 1)


def reach(info: TopicInfo, start: Position, sure: int | None, part: int) -> Reach | None:
    """How far `sure` bytes come in the ledger of `start`, at least an entry; None: far enough, a part is less."""
    if sure is None or sure >= part:
        return None
    entries, size = info.sizes.get(start.ledger, (0, 0))
    average = size // entries + ENTRY_OVERHEAD if entries > 0 else part
    closed = info.ledgers.closed_with(start.ledger)
    count = max(sure // average, 1)
    if closed is not None:
        count = min(count, closed - start.entry + 1)
    return Reach(start._replace(entry=start.entry + count - 1), count * average)
