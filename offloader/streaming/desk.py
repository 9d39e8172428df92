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
from offloader.streaming.topics import Topic

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
                self._answer(request_id, request, roster.topics.get(request.topic), now)
        except OffloadError as error:
            log.warning("requests wait: %s", error)

    def _take(self, roster: Roster, now: int) -> None:
        context = self._context
        if self._asking is not None and self._asking.done():
            found, self._asking = self._asking.result(), None
            for request_id, request in found:
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
        if topic is None:
            self._done(
                request_id, request.kind, Outcome(False, f"{request.topic} is not offloaded by {self._context.application}", now)
            )
            return
        log.info("request id=%s kind=%s topic=%s", request_id, request.kind, request.topic)
        state = self._context.journal.topics.get(topic.name) or TopicState(topic.name)
        topic.look_again_at = 0
        if request.kind is RequestKind.CLOSE and request.position is not None:
            end = replace(request.position, incarnation=topic.incarnation)
            if not any(r.id == request_id for r in state.requests):
                self._context.journal.record([replace(state, requests=(*state.requests, CloseRequest(request_id, end)))])
        elif request.kind is RequestKind.RELEASE and not state.releasing:
            self._context.journal.record([replace(state, releasing=True)])
        elif request.kind is RequestKind.ACCEPT_LOSS and request.position is not None:
            topic.accepted_loss = replace(request.position, incarnation=topic.incarnation)
            if state.failure is not None:
                self._context.journal.record([replace(state, failure=None)])
        self._taken[request_id] = request

    def _answer(self, request_id: str, request: Request, topic: Topic | None, now: int) -> None:
        outcome = self._outcome(request_id, request, topic, now)
        if outcome is not None:
            self._done(request_id, request.kind, outcome)
            self._taken.pop(request_id, None)

    def _outcome(self, request_id: str, request: Request, topic: Topic | None, now: int) -> Outcome | None:
        if request.kind is RequestKind.RELEASE:
            return (
                Outcome(
                    True, f"{request.topic} is released; disable it in the configuration, or the next start claims it again", now
                )
                if topic is None
                else None
            )
        if topic is None:
            return Outcome(False, f"{request.topic} is not offloaded any more", now)
        end = topic.catalog.end
        if request.kind is RequestKind.ACCEPT_LOSS:
            return Outcome(True, f"recorded, the topic goes on after {end}", now) if topic.accepted_loss is None else None
        state = self._context.journal.topics.get(topic.name) or TopicState(topic.name)
        state = self._only_what_is_readable(topic, state, request.at)
        state, done = segments.satisfied(state, end)
        if not any(r.id == request_id for r in done):
            return _nothing_to_do(request, topic, state, now)
        self._context.journal.record([state])
        return Outcome(True, _where(topic, end), now)

    def _only_what_is_readable(self, topic: Topic, state: TopicState, asked_at: int) -> TopicState:
        """A command reads the ledger's end, which may be a marker or an aborted entry: no broker delivers that."""
        last = topic.last
        if last is None or topic.seen_at <= asked_at or all(r.end <= last for r in state.requests):
            return state
        state = replace(state, requests=tuple(replace(r, end=min(r.end, last)) for r in state.requests))
        self._context.journal.record([state])
        return state

    def _done(self, request_id: str, kind: RequestKind, outcome: Outcome) -> None:
        requests.mark_done(self._context.store, self._context.application, request_id, outcome)
        self._context.metrics.request(kind, "done" if outcome.ok else "refused")
        log.info("request id=%s ok=%s %s", request_id, outcome.ok, outcome.message)


def _nothing_to_do(request: Request, topic: Topic, state: TopicState, now: int) -> Outcome | None:
    """A close of a topic without entries since the last segment is satisfied at once."""
    begin = topic.begin()
    wanted = request.position
    if wanted is None or state.open is not None or begin is None:
        return None
    before_begin = replace(wanted, incarnation=begin.incarnation) < begin
    return Outcome(True, "Nothing to offload", now) if before_begin else None


def _where(topic: Topic, end: Position | None) -> str:
    newest = topic.catalog.segments[-1] if topic.catalog.segments else None
    if newest is None:
        return "Nothing to offload"
    return f"segment {newest.uuid} {newest.start} to {newest.end}" if newest.end == end else f"offloaded up to {end}"
