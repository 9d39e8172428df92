"""What is to be done next for a topic's bridge, and when: in from what is known of it, out one step; and how many
topics may be unloaded for it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from itertools import islice, takewhile
from math import inf
from typing import NamedTuple
from zoneinfo import ZoneInfo

from offloader.bridge.core.rounds import BridgePhase, BridgeState, UnbridgedLedger
from offloader.config.bridging import QuietHours
from offloader.metadata.state import CatalogHead
from offloader.model import LedgerSpan, Position
from offloader.ports.admin import TopicInfo

MINUTE_MS = 60_000
BLOCKED_AGAIN_MS = 24 * 60 * MINUTE_MS  # bookies may be back, a deletion undone, an object brought back
SHARE = 3  # of all unloads the part that what has failed before may have


@dataclass(frozen=True, slots=True)
class BridgeRules:
    """What the settings say at this moment. `open`: it is the time of day for it. `urgent`: neither that nor the
    intervals count. `max_interval_ms`: how long a ledger waits that our own last unload has closed, and no other with
    it: each round would make the next one due."""

    min_interval_ms: int = 0
    max_interval_ms: int = 0
    open: bool = True
    ledgers_at_once: int = 100
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class BridgeFacets:
    """What is known of a topic, as it is known elsewhere. `state`: what is recorded. `wanted`: stock brokers are to
    read the topic. `retry_at`: a step failed, and is tried again then. `gone`: the topic was deleted for good.
    `refused`: brokers refuse what is built until an operator changes something."""

    state: BridgeState | None
    catalog: CatalogHead
    info: TopicInfo
    wanted: bool = True
    retry_at: int = 0
    gone: bool = False
    refused: bool = False

    @property
    def current(self) -> BridgeState | None:
        """What is recorded of this incarnation."""
        state = self.state
        return state if state is not None and state.incarnation == self.catalog.incarnation else None

    @property
    def first_unfit(self) -> int:
        """From this ledger on none can be read from objects, whatever its record says: brokers make the part of the
        newest one anew whenever they load a topic. Of a terminated one it is the last with entries. -1: none is."""
        spans = self.info.ledgers.spans
        if self.info.terminated:
            return next((span.ledger for span in reversed(spans) if span.last != -1), -1)
        return spans[-1].ledger if spans else -1


class BridgeRest(StrEnum):
    """Why nothing is to be done now."""

    NOTHING = "nothing to do"
    BLOCKED = "blocked"
    INTERVAL = "waits for bridge.minInterval"
    COMPANY = "waits for a ledger that brokers have closed, or for bridge.maxInterval"
    HOURS = "waits for bridge.quietHours"
    BACK_OFF = "waits after a failure"


class BridgeWork(Enum):
    """What is to be done for a round that is recorded."""

    GONE = "gone"  # so is its topic, for good: its objects go
    ANEW = "anew"  # it is of a former incarnation: its objects go
    DROP = "drop"  # nobody wants it any more, and no broker can know of it
    TAKE_BACK = "take back"  # nobody wants it any more, and brokers refuse to go on with it: it is to be withdrawn
    BUILD = "build"
    SWAP = "swap"
    WITHDRAW = "withdraw"
    CLEAN = "clean"  # objects that nobody needs go

    @property
    def unloads(self) -> bool:
        """Whether it costs an unload."""
        return self in (BridgeWork.SWAP, BridgeWork.WITHDRAW)


@dataclass(frozen=True, slots=True)
class BeginRound:
    """These ledgers are due, together. `generation`: of the catalog that says so."""

    spans: tuple[LedgerSpan, ...]
    generation: int = 0


@dataclass(frozen=True, slots=True)
class PassOffloaded:
    """Brokers have offloaded all up to there by themselves, these ledgers."""

    up_to: Position
    ledgers: tuple[int, ...]


BridgeStep = BridgeRest | BridgeWork | BeginRound | PassOffloaded

_OF_PHASE: Mapping[BridgePhase, BridgeWork] = {
    BridgePhase.BUILDING: BridgeWork.BUILD,
    BridgePhase.SWAPPING: BridgeWork.SWAP,
    BridgePhase.WITHDRAWING: BridgeWork.WITHDRAW,
}


def next_step(facets: BridgeFacets, rules: BridgeRules, now: int) -> BridgeStep:
    """What is to be done now. A round that is recorded goes on whatever the hour is, also where it is not wanted any
    more: one that is not built yet is dropped then, one that brokers may know of is finished, or withdrawn where they
    refuse it."""
    if now < facets.retry_at:
        return BridgeRest.BACK_OFF
    state = facets.state
    if state is not None and state.leaving is not None:
        return BridgeWork.CLEAN
    if facets.gone:
        return BridgeRest.NOTHING if state is None or state.round is None else BridgeWork.GONE
    if state is not None and state.round is not None:
        if state.incarnation != facets.catalog.incarnation:
            return BridgeWork.ANEW
        return _going_on(facets, state.round.phase)
    if not facets.wanted:
        return BridgeRest.NOTHING
    blocked = blocking(facets)
    if blocked is not None and not _again(facets, blocked, now):
        return BridgeRest.BLOCKED
    return _following(facets, rules, now)


def _going_on(facets: BridgeFacets, phase: BridgePhase) -> BridgeWork:
    if not facets.wanted and phase is BridgePhase.BUILDING:
        return BridgeWork.DROP
    if not facets.wanted and phase is BridgePhase.SWAPPING and facets.refused:
        return BridgeWork.TAKE_BACK
    return _OF_PHASE[phase]


def _following(facets: BridgeFacets, rules: BridgeRules, now: int) -> BridgeStep:
    due = waiting(facets)
    first = next(due, None)
    if first is None:
        return BridgeRest.NOTHING
    if first.ledger in facets.info.offloaded:
        theirs = [first, *takewhile(lambda span: span.ledger in facets.info.offloaded, due)]
        up_to = Position(facets.catalog.incarnation, theirs[-1].ledger, theirs[-1].last or 0)
        return PassOffloaded(up_to, tuple(span.ledger for span in theirs))
    state = facets.current
    if not rules.urgent and _since_swap(state, now) < rules.min_interval_ms:
        return BridgeRest.INTERVAL
    if not rules.open and not rules.urgent:
        return BridgeRest.HOURS
    behind = tuple(islice(due, rules.ledgers_at_once))
    alone = state is not None and first.ledger == state.closed and not behind
    if alone and not rules.urgent and _since_swap(state, now) < rules.max_interval_ms:
        return BridgeRest.COMPANY
    ours = takewhile(lambda span: span.ledger not in facets.info.offloaded, behind)
    most = rules.ledgers_at_once if state is None or not state.in_vain else 1  # one shows whether brokers can read now
    return BeginRound((first, *islice(ours, most - 1)), facets.catalog.generation)


def _since_swap(state: BridgeState | None, now: int) -> float:
    """How long ago the topic was unloaded last, ms. A time that is still to come is another clock's."""
    return inf if state is None or state.swapped_at > now else now - state.swapped_at


def blocking(facets: BridgeFacets) -> UnbridgedLedger | None:
    """The ledger that cannot be bridged, and is in the way: as long as Pulsar lists it, and brokers have not offloaded
    it by themselves."""
    blocked = facets.current.blocked if facets.current is not None else None
    if blocked is None or blocked.ledger not in facets.info.ledgers or blocked.ledger in facets.info.offloaded:
        return None
    return blocked


def _again(facets: BridgeFacets, blocked: UnbridgedLedger, now: int) -> bool:
    """Whether it is worth another try: what it lacks may be there by now, or the catalog was made anew since."""
    return blocked.generation != facets.catalog.generation or not blocked.at <= now < blocked.at + BLOCKED_AGAIN_MS


def waiting(facets: BridgeFacets) -> Iterator[LedgerSpan]:
    """The closed ledgers that are not bridged and whose turn can come now, in order: all of them is accounted for in
    the catalog. Whoever has just passed the last one is before those that are not."""
    end = facets.catalog.end
    if end is not None and end.incarnation == facets.catalog.incarnation:
        yield from takewhile(lambda span: (span.ledger, span.last or 0) <= end.place, not_bridged(facets))


def not_bridged(facets: BridgeFacets) -> Iterator[LedgerSpan]:
    """The closed ledgers with entries behind the last one that is bridged, in order, but for the last one of the list.
    Those that Pulsar does not list any more are not among them: only the archive has these."""
    state, spans, unfit = facets.current, facets.info.ledgers.spans, facets.first_unfit
    after = state.up_to.ledger if state is not None and state.up_to is not None else None
    if after is None:
        claim = facets.catalog.claim
        after = claim.begin.ledger - 1 if claim is not None else -1
    behind = bisect_right(spans, after, key=lambda span: span.ledger)
    closed = takewhile(lambda span: span.last is not None and span.ledger < unfit, islice(spans, behind, None))
    return (span for span in closed if span.last != -1)


def suspects(facets: BridgeFacets) -> frozenset[int]:
    """Ledgers with entries that are done with, and listed as not offloaded: unless an operator let them go, or brokers
    have offloaded them and do not any more, a broker has not loaded its record anew, or somebody has changed it."""
    state = facets.current
    if state is None or state.up_to is None:
        return frozenset()
    claim, end = facets.catalog.claim, min(state.up_to.ledger + 1, facets.first_unfit)
    first = 0 if claim is None else claim.begin.ledger
    listed = takewhile(lambda span: span.ledger < end, facets.info.ledgers.spans)
    return frozenset(
        span.ledger
        for span in listed
        if span.last != -1 and span.ledger >= first and span.ledger not in facets.info.offloaded
    )


def limit_of(facets: BridgeFacets) -> Position | None:
    """How far the pin may be acknowledged as far as brokers' reading is concerned; None: as far as anybody likes."""
    if not facets.wanted:
        return None
    state = facets.current
    if state is not None and state.up_to is not None:
        return state.up_to
    claim = facets.catalog.claim
    return (Position(0, 0, 0) if claim is None else claim.begin).previous_entry


def is_bridged(facets: BridgeFacets, goal: Position | None) -> bool:
    """Whether every closed ledger that ends at the goal or before is done with, and no round is under way, nor anything
    left of one."""
    if facets.state is not None and (facets.state.round is not None or facets.state.leaving is not None):
        return False
    if not facets.wanted:
        return True
    place = (-1, -1) if goal is None else goal.place
    return all((span.ledger, span.last or 0) > place for span in not_bridged(facets))


def in_hours(hours: QuietHours | None, now: int) -> bool:
    """Whether it is that time of day, by the clocks of its zone."""
    if hours is None:
        return True
    time = datetime.fromtimestamp(now / 1000, ZoneInfo(hours.zone)).time()
    if hours.begin < hours.end:
        return hours.begin <= time < hours.end
    return time >= hours.begin or time < hours.end


class _Unload(NamedTuple):
    at: int
    again: bool


@dataclass
class UnloadRate:
    """So many unloads a minute, whichever the minute. Steps that have failed before have a part of them: they neither
    keep others waiting, nor wait for them."""

    a_minute: int
    _counted: list[_Unload] = field(default_factory=list)

    def take(self, now: int, *, again: bool = False) -> bool:
        """Whether a step that unloads may begin now; if so, an unload of its counts already."""
        self._counted = [one for one in self._counted if now - MINUTE_MS < one.at <= now]
        tried_again = sum(one.again for one in self._counted)
        if len(self._counted) >= self.a_minute or (again and tried_again >= max(1, self.a_minute // SHARE)):
            return False
        self._counted.append(_Unload(now, again))
        return True

    def made(self, began: int, now: int, unloads: int, *, again: bool = False) -> None:
        """A step that began then is over, and has made so many."""
        if (taken := _Unload(began, again)) in self._counted:
            self._counted.remove(taken)
        self._counted += [_Unload(now, again)] * unloads
