"""Topics on their way from brokers' own offload to ours, and back: what requests for either do to a topic, and when
they are done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from offloader.errors import OffloadError
from offloader.metadata.requests import MIGRATIONS, Request, RequestKind, RequestOutcome
from offloader.metadata.state import CloseRequest
from offloader.model import Position, TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.driver import committing, retiring
from offloader.offload.driver.context import Context
from offloader.offload.driver.registry import TopicRegistry

THERE = frozenset({RequestKind.HAND_OVER_UNDO, *MIGRATIONS})
BACK = frozenset({RequestKind.HAND_OVER, RequestKind.RELEASE})


class HandOver(Protocol):
    """What has brokers alone read topics: the feature of which requests for that speak."""

    @property
    def refusal(self) -> str:
        """Why no topic can be handed over to brokers; empty: each can."""
        ...

    def finish(self, topic: Topic, end: Position | None) -> str | None:
        """See `TopicFeature`."""
        ...

    def let_go(self, topic: Topic, ledger: int, by: str, then: Callable[[OffloadError | None], None]) -> str | None:
        """Leave a ledger that is in the way to the archive alone; `then` hears whether that failed. Returns why not,
        empty where it is being done, None where it has to wait."""
        ...


class Migrating:
    """`_ends`: where topics ended when somebody asked for their handing over, by requests' ids."""

    def __init__(self, context: Context, bridge: HandOver) -> None:
        self._context = context
        self._bridge = bridge
        self._ends: dict[str, Position] = {}

    def taken_over(self, request: Request, topic: Topic | None, registry: TopicRegistry) -> str:
        """Have a topic taken over, which goes on being offloaded, or soon is. Returns why not; empty: it is tried."""
        if topic is None:
            return registry.take_over(request.topic, MIGRATIONS[request.kind])
        return self._not_enabled(topic, registry) or self.taken_back(topic)

    def taken_back(self, topic: Topic) -> str:
        """Nobody hands the topic over any more. Returns why that is too late; empty: it is not."""
        refusal = self.being_let_go_of(topic)
        if not refusal:
            retiring.take_back(self._context, topic)
        return refusal

    def being_let_go_of(self, topic: Topic) -> str:
        """Why it cannot be taken back; empty: it can."""
        if retiring.may_be_taken_back(self._context, topic):
            return ""
        return f"{topic.name} is being released: wait for that, then `offloader migrate to-streaming` it again"

    def not_handed_over(self, topic: Topic, registry: TopicRegistry) -> str:
        """Why the topic cannot be handed over; empty: it can. What was begun goes on whatever the policy says now."""
        state = self._context.state(topic.name)
        if state.handed_over:
            return ""
        if state.releasing is not None:
            return f"{topic.name} is being released already, and nobody waits for its brokers"
        return self._not_enabled(topic, registry) or self._bridge.refusal

    def migrated(self, request: Request, registry: TopicRegistry, now: int) -> RequestOutcome | None:
        """Once we have the topic, and its claim says how its offloaded ledgers are taken over."""
        name, taking = request.topic, MIGRATIONS[request.kind]
        topic = registry.topics.get(name)
        if topic is None:
            why = registry.refused_for_good(name)
            if not why and not registry.is_enabled(name):
                why = f"{name} is not there any more, or not enabled"
            if why:
                registry.take_over_no_more(name)
            return RequestOutcome(False, why, now) if why else None
        refusal = self.taken_back(topic)
        if refusal:
            return RequestOutcome(False, refusal, now)
        claim = topic.catalog.claim
        if claim is None or not topic.readable or self._context.busy(topic):
            return None
        if claim.taking is not taking:
            record = replace(claim, at=max(now, claim.at + 1), taking=taking, reason="migrates")
            committing.have_recorded(self._context, topic, record)
            return None
        return RequestOutcome(True, _taken_over(topic), now)

    def handed_over(self, request_id: str, seen_at: int, topic: Topic, now: int) -> RequestOutcome | None:
        """Once brokers read every closed ledger up to the end that the topic had, or it shows that they cannot. It goes
        on being offloaded."""
        if request_id not in self._ends:
            asked = retiring.end_asked_for(topic, seen_at)
            if asked is None:
                return None
            self._ends[request_id] = asked
            self._have_closed(request_id, topic, asked)
        end = self._ends[request_id]
        if self._context.busy(topic) or not retiring.is_accounted(topic, end):
            return None
        why = self._bridge.finish(topic, end)
        if why is None:
            return None
        if why:
            return RequestOutcome(False, f"{topic.name} cannot be handed over: {why}", now)
        told = f"brokers read {topic.name} up to {topic.catalog.end}, from copies or from BookKeeper"
        return RequestOutcome(True, told, now)

    def undone(self, topic: Topic, registry: TopicRegistry, now: int) -> RequestOutcome:
        """Nobody hands it over any more; one that nothing enables is paused from now on."""
        why = self._not_enabled(topic, registry)
        return RequestOutcome(not why, why or f"{topic.name} goes on being offloaded", now)

    def not_released(self, topic: Topic, now: int) -> RequestOutcome | None:
        """A topic that was handed over, and that brokers cannot read by themselves, goes on being offloaded."""
        context, state = self._context, self._context.state(topic.name)
        if state.releasing is None:
            return RequestOutcome(False, f"{topic.name} goes on being offloaded: its release was taken back", now)
        if not state.handed_over or not retiring.may_be_taken_back(context, topic):
            return None
        if context.busy(topic) or not retiring.is_accounted(topic, topic.retire_at):
            return None
        why = self._bridge.finish(topic, topic.retire_at)
        if not why:
            return None
        retiring.take_back(context, topic, handed_over=True)
        return RequestOutcome(False, f"{topic.name} is not let go of, and goes on being offloaded: {why}", now)

    def released(self, request: Request, registry: TopicRegistry, now: int) -> RequestOutcome | None:
        """Where the topic is let go of, whoever wanted that has it."""
        if request.kind not in BACK or not registry.was_released(request.topic):
            return None
        advice = "disable it in the configuration, or the next start claims it again"
        return RequestOutcome(True, f"{request.topic} is released; {advice}", now)

    def over(self, request_id: str, topic: TopicName) -> None:
        """The request has its answer: no segment is closed for it any more."""
        self._ends.pop(request_id, None)
        state = self._context.state(topic)
        self._context.record(replace(state, requests=tuple(r for r in state.requests if r.id != request_id)))

    def _have_closed(self, request_id: str, topic: Topic, end: Position) -> None:
        """What is uploaded of a segment brokers cannot read yet. A former process may have begun that."""
        state = self._context.state(topic.name)
        others = tuple(r for r in state.requests if r.id != request_id)
        ours = () if retiring.is_accounted(topic, end) else (CloseRequest(request_id, end),)
        self._context.record(replace(state, requests=(*others, *ours)))

    def _not_enabled(self, topic: Topic, registry: TopicRegistry) -> str:
        return "" if registry.is_enabled(topic.name) else f"{topic.name} is not enabled: enable it in the configuration"


def _taken_over(topic: Topic) -> str:
    """What becomes of the ledgers that brokers have offloaded."""
    begin, claim = topic.begin(), topic.catalog.claim
    known = [ledger for ledger in sorted(topic.info.offloaded) if begin is None or ledger >= begin.ledger]
    copied = len(topic.copies.intersection(known))
    before = len(topic.info.offloaded) - len(known)
    told = f"{len(known)} ledgers that brokers have offloaded are taken over, {copied} of them as copies"
    if not before or claim is None:
        return told
    return f"{told}; {before} others end before {begin}, where the archive goes on"
