"""Looks after what is bridged: ledgers that brokers were proven to read and list no more, and objects that are gone.

The ledgers of a topic are looked through once for each list. Of the objects a few are looked at each minute, all of
them by and by; what is remembered is one place, however many ledgers are bridged."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from offloader.bridge.core.rounds import BridgedLedger, BridgeHead, BridgeRound
from offloader.bridge.core.schedule import suspects
from offloader.bridge.driver import progress
from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.driver.progress import Unloading, facets_of, is_wanted, progress_of
from offloader.bridge.driver.status import tell_broken
from offloader.bridge.log import BridgeLog, last_finished
from offloader.bridge.swapping import StaleOrFine
from offloader.errors import FatalError, OffloadError, RetryableError
from offloader.model import LedgerList, TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)
REPAIR_AGAIN_MS = 3_600_000  # after a repair that was taken back
AUDITED_AGAIN_MS = 900_000  # after a look that failed
TRIES = 5  # at one place
EVERY_MS = 60_000
TURN_MS = 3_600_000  # all of them are looked at no more often than that
MOST_LEDGERS = 25  # at a time, each costs two requests
MOST_RECORDS = 10  # of a log, at a time


class Repaired(NamedTuple):
    """`head`: with a round recorded, where one is to put contexts in again. `sound`: the ledgers that need not be
    listed as offloaded. `loaded`: the broker did not know its record, and was made to load it."""

    head: BridgeHead
    sound: frozenset[int]
    loaded: bool = False


@dataclass(frozen=True)
class BridgeRepairs:
    """Not in the driver's thread. `still_ours`: raises OvertakenError where another process owns the application by
    now. `unloads`: how often each topic was unloaded, until somebody takes that away."""

    parts: BridgeParts
    application: str
    clock_ms: Callable[[], int]
    still_ours: Callable[[], None]
    unloads: Counter[TopicName] = field(default_factory=Counter)

    def repair(self, topic: TopicName, head: BridgeHead, found: frozenset[int], *, wanted: bool) -> Repaired:
        """What becomes of ledgers that are listed as not offloaded.

        A broker that does not know its record is made to load it. Where the record lacks what was proven, somebody has
        taken it out: it is put in again, since BookKeeper's copy goes, or has gone. Where brokers are not to read it
        any more, only what they cannot read from BookKeeper."""
        ours = self.proven(topic, found)
        if not ours or head.state is None:
            return Repaired(head, found)
        sound = found - {each.ledger for finished in ours for each in finished.ledgers}
        log.warning(
            "bridge topic=%s: %d ledgers that brokers can read are not listed as offloaded, the first is %d",
            topic, len(found - sound), min(found - sound), extra={"see": "bridge-stale"},
        )  # fmt: skip
        self.still_ours()
        match self.look(topic):
            case StaleOrFine.UNKNOWN:
                raise RetryableError(f"{topic}: whether its broker knows its record cannot be told now")
            case StaleOrFine.STALE:
                raise FatalError(f"{topic}: its broker does not know its record, in spite of an unload")
            case StaleOrFine.REPAIRED:
                return Repaired(head, sound, loaded=True)
        if head.state.round is not None:  # it is looked at again once that is over
            return Repaired(head, sound)
        missing = self.parts.swaps().missing(topic, [each for finished in ours for each in finished.ledgers])
        for finished in reversed(ours):  # what was bridged first is first gone from BookKeeper
            ledgers = tuple(x for x in finished.ledgers if x.ledger in missing and (wanted or not missing[x.ledger]))
            if ledgers:
                state = head.state.repairing(ledgers, finished.bucket, self.application, self.clock_ms())
                return Repaired(self.parts.log.append(head, state), sound)
        return Repaired(head, sound)

    def look(self, topic: TopicName) -> StaleOrFine:
        """Whether the topic's broker knows its record; where not, it is unloaded once."""
        found = self.parts.swaps().look(topic)
        self.unloads[topic] += found in (StaleOrFine.REPAIRED, StaleOrFine.STALE)
        return found

    def inspect(
        self, topic: TopicName, incarnation: int, listed: LedgerList, at: InspectedPlace
    ) -> tuple[InspectedPlace | None, Mapping[int, str]]:
        """Whether the objects of some bridged ledgers are there: where to go on, and what is wrong, by ledger."""
        due = inspection(self.parts.log, topic, incarnation, listed, at)
        if due.finished is None:
            return due.following, {}
        return due.following, self.parts.swaps().broken(topic, due.finished.bucket, due.ledgers)

    def proven(self, topic: TopicName, found: frozenset[int]) -> list[BridgeRound]:
        """Rounds that were proven, each with only those of its ledgers that are asked for."""
        rounds, lowest = list[BridgeRound](), min(found)
        for state in self.parts.log.finished_rounds(topic):
            finished = state.finished
            ledgers = tuple(each for each in finished.ledgers if each.ledger in found) if finished else ()
            if finished and ledgers:
                rounds.append(replace(finished, ledgers=ledgers))
            if finished and finished.ledgers[0].ledger <= lowest:
                break
        return rounds


class BridgeAuditor:
    """Once for each list, also while a round is under way. In the driver's thread."""

    def __init__(self, context: Context, unloading: Unloading) -> None:
        self._context = context
        self._unloading = unloading

    def look(self, topic: Topic, repairs: BridgeRepairs, now: int) -> bool:
        """Look at a topic whose list is new enough. Whether anything was asked for."""
        head, audit = progress_of(topic).head, progress_of(topic).audit
        if head is None or is_audited(topic) or now < audit.again_at:
            return False
        found = suspects(facets_of(topic)) - audit.sound
        if found:
            call = partial(repairs.repair, topic.name, head, found, wanted=is_wanted(topic))
            if not self._unloading.post(topic, call, partial(self._repaired, topic), now, again=True):
                return False
        progress.audited(topic, replace(audit, info=topic.info))
        return bool(found)

    def taken_back(self, topic: Topic) -> None:
        """A repair was: each try takes the ledgers from brokers' clients."""
        self._again(topic, REPAIR_AGAIN_MS)

    def _repaired(self, topic: Topic, answer: Repaired | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._again(topic, AUDITED_AGAIN_MS)
            self._context.metrics.bridge_repaired("failed")
            now = self._context.clock_ms()
            progress.failed(topic, "repair", answer, now, self._context.metrics)
            return
        if answer.loaded:  # a round counts once it is over
            self._context.metrics.bridge_repaired("repaired")
        audit = progress_of(topic).audit
        progress.audited(topic, replace(audit, sound=audit.sound | answer.sound))
        progress.repaired(topic, answer.head)

    def _again(self, topic: Topic, delay: int) -> None:
        """Its rounds go on meanwhile."""
        again_at = self._context.clock_ms() + delay
        progress.audited(topic, replace(progress_of(topic).audit, info=None, again_at=again_at))


def is_audited(topic: Topic) -> bool:
    """Whether its list was looked through."""
    return progress_of(topic).audit.info is topic.info


class Inspections:
    """In the driver's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._turn = InspectionTurn()
        self._in_vain = 0

    def look(self, topics: Iterable[Topic], repairs: BridgeRepairs, is_free: Callable[[Topic], bool], now: int) -> None:
        """Look whether some bridged ledgers' objects are there. A topic that is not free comes in the next turn."""
        due = self._turn.next(topics, now)
        if due is None:
            return
        topic, place = due
        self._turn.went_on(None)
        if is_free(topic):
            call = partial(repairs.inspect, topic.name, topic.incarnation, topic.info.ledgers, place)
            self._context.work.post(WorkKind.BRIDGE, topic.name, call, partial(self._inspected, topic, place))

    def _inspected(
        self,
        topic: Topic,
        place: InspectedPlace,
        answer: tuple[InspectedPlace | None, Mapping[int, str]] | OffloadError,
    ) -> None:
        if isinstance(answer, OffloadError):
            self._in_vain += 1
            if self._in_vain < TRIES:
                self._turn.went_on(place)
            else:  # the others have their turn
                self._in_vain = 0
            self._context.metrics.bridge_failed("inspect")
            log.info("bridge topic=%s: its objects cannot be looked at now: %s", topic.name, answer)
            return
        self._in_vain = 0
        following, broken = answer
        self._turn.went_on(following)
        if broken:
            self._context.metrics.bridge_failed("objects")
            tell_broken(topic.name, broken)


class InspectedPlace(NamedTuple):
    """Of a topic's log the record in `slot` is next, its ledgers behind `after`."""

    slot: int
    after: int = -1


class InspectionDue(NamedTuple):
    """Ledgers of a round that are to be looked at, and where to go on; None: the topic is done."""

    finished: BridgeRound | None
    ledgers: tuple[BridgedLedger, ...]
    following: InspectedPlace | None


@dataclass
class InspectionTurn:
    """Through all topics by their names, each from its newest round backwards."""

    name: str = ""
    place: InspectedPlace | None = None
    began: int = 0
    again_at: int = 0

    def next(self, topics: Iterable[Topic], now: int) -> tuple[Topic, InspectedPlace] | None:
        """Where to look now; None: nowhere."""
        if now < self.again_at <= now + TURN_MS:
            return None
        self.again_at = now + EVERY_MS
        them = [topic for topic in topics if _newest(topic) >= 0]
        if self.place is not None:
            found = next((topic for topic in them if str(topic.name) == self.name), None)
            if found is not None:
                return found, self.place
        behind = min((topic for topic in them if str(topic.name) > self.name), key=_name, default=None)
        if behind is None:
            self.name, self.place = "", None
            self.again_at = max(self.again_at, self.began + TURN_MS)
            return None
        if not self.name:
            self.began = now
        self.name, self.place = _name(behind), InspectedPlace(_newest(behind))
        return behind, self.place

    def went_on(self, place: InspectedPlace | None) -> None:
        """What `next` said is done; None: with all of its topic."""
        self.place = place


def inspection(
    log: BridgeLog, topic: TopicName, incarnation: int, listed: LedgerList, at: InspectedPlace
) -> InspectionDue:
    """The next ledgers of the topic that are bridged and listed. Raises DamagedRecordError, FormatVersionError."""
    first = listed.spans[0].ledger if listed.spans else 0
    place: InspectedPlace | None = at
    for _ in range(MOST_RECORDS):
        if place is None or place.slot < 0:
            return InspectionDue(None, (), None)
        state = log.finishing(topic, place.slot)
        finished = state.finished
        if state.incarnation != incarnation or (finished and finished.ledgers[-1].ledger < first):
            return InspectionDue(None, (), None)
        before = InspectedPlace(state.former) if state.former >= 0 else None
        after = place.after
        due = [one for one in (finished.ledgers if finished else ()) if one.ledger > after and one.ledger in listed]
        some, more = tuple(due[:MOST_LEDGERS]), len(due) > MOST_LEDGERS
        if some:
            return InspectionDue(finished, some, InspectedPlace(place.slot, some[-1].ledger) if more else before)
        place = before
    return InspectionDue(None, (), place)


def _name(topic: Topic) -> str:
    return str(topic.name)


def _newest(topic: Topic) -> int:
    """The slot of the last record that finishes a round or lets a ledger go; -1: none, or nobody knows."""
    head = progress_of(topic).head
    return last_finished(head) if head is not None and facets_of(topic).current else -1
