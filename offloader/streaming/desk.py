"""Requests from the command line: taken in while the application runs, answered when the catalog has what they asked for."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import replace

from offloader.errors import OffloadError
from offloader.metadata import requests
from offloader.metadata.requests import Outcome, Request, RequestKind
from offloader.metadata.state import CloseRequest, TopicState
from offloader.model import Position
from offloader.streaming import segments
from offloader.streaming.context import Context
from offloader.streaming.roster import Roster
from offloader.streaming.topics import Topic, lost_range

log = logging.getLogger(__name__)

Pending = list[tuple[str, Request]]


class RequestDesk:
    """Looks for new requests every `poll_ms`; a close and a release live on in the journal until they are satisfied."""

    def __init__(self, context: Context, poll_ms: int) -> None:
        self._context = context
        self._poll_ms = poll_ms
        self._look_at = 0
        self._remove_at = 0
        self._asking: Future[Pending] | None = None
        self._taken: dict[str, Request] = {}

    @property
    def busy(self) -> bool:
        """Whether a look for requests is under way, or one is being worked on."""
        return self._asking is not None or bool(self._taken)

    def serve(self, roster: Roster, now: int) -> None:
        """Take in what is new, answer what is satisfied. A store that does not answer delays requests, nothing else."""
        try:
            self._take(roster, now)
            for request_id, request in list(self._taken.items()):
                self._answer(request_id, request, roster, now)
        except OffloadError as error:
            log.warning("requests wait: %s", error)

    def _take(self, roster: Roster, now: int) -> None:
        context = self._context
        if self._asking is not None and self._asking.done():
            answer, self._asking = self._asking, None
            for request_id, request in answer.result():
                if request_id not in self._taken:
                    requests.mark_seen(context.store, context.application, request_id)
                    self._begin(request_id, request, roster, now)
        if self._asking is None and now >= self._look_at:
            self._look_at = now + self._poll_ms
            self._asking = context.pool.submit(requests.pending, context.store, context.application, now)
            if now >= self._remove_at:
                self._remove_at = now + requests.DAY_MS // 24
                requests.remove_old(context.store, context.application, now)

    def _begin(self, request_id: str, request: Request, roster: Roster, now: int) -> None:
        """Record what is asked of a topic that we have; refuse the others in one line, once all topics are known."""
        topic = roster.topics.get(request.topic)
        if topic is None and not roster.settled:
            return
        refusal = self._refusal(request, topic, roster)
        if refusal or topic is None:
            self._done(request_id, request.kind, Outcome(False, refusal, now))
            return
        log.info("request id=%s kind=%s topic=%s", request_id, request.kind, request.topic)
        topic.look_again_at = 0
        self._record(request_id, request, topic)
        self._taken[request_id] = request

    def _refusal(self, request: Request, topic: Topic | None, roster: Roster) -> str:
        """Why the request cannot be served; empty: it can."""
        if topic is None:
            why = roster.refused.get(request.topic)
            return f"not offloaded now: {why}" if why else f"{request.topic} is not offloaded by {self._context.application}"
        if request.kind is RequestKind.ACCEPT_LOSS:
            return self._refused_loss(request, topic)
        return ""

    def _refused_loss(self, request: Request, topic: Topic) -> str:
        lost = lost_range(self._context.state(topic.name), topic.catalog, topic.info.ledgers)
        if lost is None:
            return f"nothing of {topic.name} is lost"
        if request.position is None or request.position._replace(incarnation=topic.incarnation) < lost[1]:
            return f"the loss reaches from {lost[0]} to {lost[1]}: accept it with --to {lost[1]}"
        return ""

    def _record(self, request_id: str, request: Request, topic: Topic) -> None:
        context = self._context
        state = context.state(topic.name)
        end = None if request.position is None else request.position._replace(incarnation=topic.incarnation)
        match request.kind:
            case RequestKind.CLOSE:
                if end is not None and not any(r.id == request_id for r in state.requests):
                    context.record(replace(state, requests=(*state.requests, CloseRequest(request_id, end))))
            case RequestKind.RELEASE:
                context.record(replace(state, releasing=True))
            case RequestKind.ACCEPT_LOSS:
                topic.accepted_loss = end
                context.record(replace(state, failure=None))

    def _answer(self, request_id: str, request: Request, roster: Roster, now: int) -> None:
        outcome = self._outcome(request_id, request, roster, now)
        if outcome is not None:
            self._done(request_id, request.kind, outcome)
            self._taken.pop(request_id, None)

    def _outcome(self, request_id: str, request: Request, roster: Roster, now: int) -> Outcome | None:
        topic = roster.topics.get(request.topic)
        if request.kind is RequestKind.RELEASE and roster.was_released(request.topic):
            advice = "disable it in the configuration, or the next start claims it again"
            return Outcome(True, f"{request.topic} is released; {advice}", now)
        if topic is None:
            return Outcome(False, f"{request.topic} does not exist any more", now)
        match request.kind:
            case RequestKind.CLOSE:
                return self._closed(request_id, request, topic, now)
            case RequestKind.ACCEPT_LOSS:
                return _loss_accepted(topic, now)
            case RequestKind.RELEASE:
                return None

    def _closed(self, request_id: str, request: Request, topic: Topic, now: int) -> Outcome | None:
        end = topic.catalog.end
        state = self._only_what_is_readable(topic, self._context.state(topic.name), request.at)
        state, done = segments.satisfied(state, end)
        if not any(r.id == request_id for r in done):
            return _nothing_to_do(request, topic, state, now)
        self._context.record(state)
        return Outcome(True, _where(topic, end), now)

    def _only_what_is_readable(self, topic: Topic, state: TopicState, asked_at: int) -> TopicState:
        """A command reads the ledger's end, which may be a marker or an aborted entry: no broker delivers that, but bookies do."""
        last = topic.last
        if last is None or topic.known_at <= asked_at or all(r.end <= last for r in state.requests):
            return state
        state = replace(state, requests=tuple(replace(r, end=min(r.end, last)) for r in state.requests))
        self._context.record(state)
        return state

    def _done(self, request_id: str, kind: RequestKind, outcome: Outcome) -> None:
        requests.mark_done(self._context.store, self._context.application, request_id, outcome)
        self._context.metrics.request(kind, "done" if outcome.ok else "refused")
        log.info("request id=%s ok=%s %s", request_id, outcome.ok, outcome.message)


def _loss_accepted(topic: Topic, now: int) -> Outcome | None:
    """Recorded: the losses' handler takes the acceptance away with the record."""
    return Outcome(True, f"recorded, the topic goes on after {topic.catalog.end}", now) if topic.accepted_loss is None else None


def _nothing_to_do(request: Request, topic: Topic, state: TopicState, now: int) -> Outcome | None:
    """A close of a topic without entries since the last segment is satisfied at once."""
    begin = topic.begin()
    wanted = request.position
    if wanted is None or state.open is not None or begin is None:
        return None
    before_begin = wanted._replace(incarnation=begin.incarnation) < begin
    return Outcome(True, "Nothing to offload", now) if before_begin else None


def _where(topic: Topic, end: Position | None) -> str:
    newest = topic.catalog.segments[-1] if topic.catalog.segments else None
    if newest is None:
        return "Nothing to offload"
    return f"segment {newest.uuid} {newest.start} to {newest.end}" if newest.end == end else f"offloaded up to {end}"
