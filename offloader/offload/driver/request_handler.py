"""Requests from the command line: taken in, and answered when the catalog has what they asked for. The journal keeps
which segments somebody wants closed by hand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from offloader.errors import OffloadError, OutcomeUnknownError, OvertakenError, RetryableError
from offloader.metadata import requests
from offloader.metadata.requests import MIGRATIONS, OF_THE_ARCHIVE, Request, RequestKind, RequestOutcome
from offloader.metadata.state import CloseRequest, Releasing, TopicState
from offloader.model import Position, TopicName
from offloader.offload.core import evidence, segments
from offloader.offload.core.topic import Topic
from offloader.offload.driver import inquiries, losses, observed, retiring
from offloader.offload.driver.context import Context
from offloader.offload.driver.migrating import BACK, THERE, HandOver, Migrating
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

Pending = list[tuple[str, Request]]
Then = Callable[[], None]
LOOK = ""  # the key of looking for requests; answers have their request's


class _Taken(NamedTuple):
    """A request that is worked on, and when it was first seen here: whoever asks has another clock."""

    request: Request
    seen_at: int


class RequestHandler:
    """Looks for new requests every `poll_ms`. The journal keeps a close and a release until they are satisfied."""

    def __init__(self, context: Context, poll_ms: int, retaining: Retaining, bridge: HandOver) -> None:
        self._context = context
        self._retaining = retaining
        self._bridge = bridge
        self._migrating = Migrating(context, bridge)
        self._poll_ms = poll_ms
        self._look_at = 0
        self._remove_at = 0
        self._taken: dict[str, _Taken] = {}
        self._asked: dict[TopicName, list[str]] = {}  # what is taken of each topic, in that order
        self._answers: dict[str, tuple[RequestKind, RequestOutcome]] = {}  # which the store does not have yet

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on."""
        return bool(self._taken or self._answers)

    def is_asked(self, topic: TopicName) -> bool:
        """Whether somebody waits for an answer about a topic."""
        return bool(self._asked.get(topic))

    def serve(self, registry: TopicRegistry, now: int) -> None:
        """Take in what is new, answer what is satisfied. A silent store delays requests, nothing else."""
        if now >= self._look_at:
            self._look_at = now + self._poll_ms
            call, then = partial(self._look, frozenset(self._taken), now), partial(self._begin_all, registry)
            self._context.work.post(WorkKind.REQUEST, LOOK, call, then, wakes=bool)  # mostly there is nothing
            for request_id in self._answers:
                self._have_answered(request_id)
        with self._context.as_one_record():
            done = dict(self._outcomes(registry, now))
        for request_id, outcome in done.items():
            self._done(request_id, self._taken[request_id].request.kind, outcome)

    def _outcomes(self, registry: TopicRegistry, now: int) -> Iterator[tuple[str, RequestOutcome]]:
        for request_id, taken in self._taken.items():
            outcome = None if request_id in self._answers else self._outcome(request_id, taken, registry, now)
            if outcome is not None:
                self._closes_no_more(request_id, taken)
                yield request_id, outcome

    def _look(self, taken: frozenset[str], now: int) -> Pending:
        """Not in the driver's thread: requests that were not taken yet, which are marked as seen."""
        store, application = self._context.store, self._context.application
        if now >= self._remove_at:
            self._remove_at = now + requests.DAY_MS // 24
            requests.remove_old(store, application, now)
        found = []
        for request_id, request in requests.unanswered(store, application, now, but=taken):
            requests.mark_seen(store, application, request_id)  # at once: whoever asked waits for that
            found.append((request_id, request))
        return found

    def _begin_all(self, registry: TopicRegistry, found: Pending | OffloadError) -> None:
        if isinstance(found, OffloadError):
            log.warning("requests wait: %s", found, extra={"see": "requests-wait"})
            return
        now = self._context.clock_ms()
        new = [each for each in found if each[0] not in self._taken and each[0] not in self._answers]
        for wave in _waves(new):
            with self._context.as_one_record():
                begun = [self._begin(request_id, request, registry, now) for request_id, request in wave]
            for then in begun:
                then()

    def _begin(self, request_id: str, request: Request, registry: TopicRegistry, now: int) -> Then:
        """Record what is asked of a topic that we have; refuse the others, once all topics are known. Returns what
        follows once that is durable."""
        if request.kind in OF_THE_ARCHIVE:
            return partial(self._serve_archive, request_id, request, registry, now)
        topic = registry.topics.get(request.topic)
        if topic is None and not registry.settled:
            return _wait
        answer = self._refused(request, topic, registry, now)
        if answer is not None:
            return partial(self._done, request_id, request.kind, answer)
        if request.kind is RequestKind.BRIDGE_LET_GO and topic is not None:
            return partial(self._let_go, request_id, request, topic, now)
        log.info("request id=%s kind=%s topic=%s", request_id, request.kind, request.topic)
        if topic is not None:
            observed.soon(topic)
            self._record(request_id, request, topic)
        for older in self._taken_back_by(request_id, request):
            self._closes_no_more(older, self._taken[older])
        return partial(self._take, request_id, request, now)

    def _refused(
        self, request: Request, topic: Topic | None, registry: TopicRegistry, now: int
    ) -> RequestOutcome | None:
        """The answer to what needs no work; None: it does."""
        if request.kind in MIGRATIONS:  # the claim says from now on how its offloaded ledgers are taken over
            refusal = self._migrating.taken_over(request, topic, registry)
            return RequestOutcome(False, refusal, now) if refusal else None
        released = self._migrating.released(request, registry, now)
        if released is not None:
            return released
        refusal = self._refusal(request, topic, registry)
        return RequestOutcome(False, refusal, now) if refusal else None

    def _serve_archive(self, request_id: str, request: Request, registry: TopicRegistry, now: int) -> None:
        self._taken[request_id] = _Taken(request, now)
        self._retaining.see(registry.topics.values())  # the last look may have been long ago
        call, then = partial(self._retaining.serve, request), partial(self._served, request_id, request.kind)
        self._context.work.post(WorkKind.RETENTION, request_id, call, then)

    def _closes_no_more(self, request_id: str, taken: _Taken) -> None:
        """Of a request that has its answer: no segment is closed for a handing over any more."""
        if taken.request.kind is RequestKind.HAND_OVER:
            self._migrating.over(request_id, taken.request.topic)

    def _take(self, request_id: str, request: Request, now: int) -> None:
        """What is under way for the topic in the other direction is over."""
        self._taken[request_id] = _Taken(request, now)
        self._asked.setdefault(request.topic, []).append(request_id)
        for older in self._taken_back_by(request_id, request):
            if older not in self._answers:
                outcome = RequestOutcome(False, f"a later request, {request.kind}, has taken it back", now)
                self._done(older, self._taken[older].request.kind, outcome)

    def _taken_back_by(self, request_id: str, request: Request) -> list[str]:
        """The older requests for the other direction whose answer is not in the store yet."""
        others = BACK if request.kind in THERE else THERE if request.kind in BACK else frozenset[RequestKind]()
        before = takewhile(lambda each: each != request_id, self._asked.get(request.topic, ()))
        return [each for each in before if self._taken[each].request.kind in others]

    def _let_go(self, request_id: str, request: Request, topic: Topic, now: int) -> None:
        """While its bridge is being worked on, the request waits where it is."""
        ledger = -1 if request.position is None else request.position.ledger

        def then(error: OffloadError | None) -> None:
            self._served(
                request_id, request.kind, error or f"ledger {ledger} of {topic.name} stays in the archive alone"
            )

        refusal = self._bridge.let_go(topic, ledger, request.by or "a request", then)
        if refusal:
            self._done(request_id, request.kind, RequestOutcome(False, refusal, now))
        elif refusal is not None:
            self._taken[request_id] = _Taken(request, now)

    def _served(self, request_id: str, kind: RequestKind, answer: str | OffloadError) -> None:
        if isinstance(answer, OvertakenError):
            raise answer
        if isinstance(answer, RetryableError | OutcomeUnknownError):
            log.warning("requests wait: %s", answer, extra={"see": "requests-wait"})
            self._taken.pop(request_id, None)  # taken again at the next look
            return
        failed = isinstance(answer, OffloadError)
        self._done(request_id, kind, RequestOutcome(not failed, str(answer), self._context.clock_ms()))

    def _refusal(self, request: Request, topic: Topic | None, registry: TopicRegistry) -> str:
        """Why the request cannot be served; empty: it can."""
        if topic is None:
            why = registry.refused.get(request.topic)
            default = f"{request.topic} is not offloaded by {self._context.application}"
            return f"not offloaded now: {why}" if why else default
        if request.kind is RequestKind.HAND_OVER:
            return self._migrating.not_handed_over(topic, registry)
        if request.kind is RequestKind.HAND_OVER_UNDO:
            return self._migrating.being_let_go_of(topic)
        if request.kind is not RequestKind.ACCEPT_LOSS:
            return ""
        if request.position is None:
            return "" if topic.in_question or topic.gone else f"{topic.name} is there: it was not deleted"
        lost = evidence.lost(self._context.state(topic.name), topic.catalog, topic.info.ledgers, topic.confirmed)
        if lost is None:
            return f"nothing of {topic.name} is lost"
        if request.position._replace(incarnation=topic.incarnation) < lost.last:
            return f"the loss reaches from {lost.first} to {lost.last}: accept it with --to {lost.last}"
        return ""

    def _record(self, request_id: str, request: Request, topic: Topic) -> None:
        context = self._context
        state = context.state(topic.name)
        end = None if request.position is None else request.position._replace(incarnation=topic.incarnation)
        match request.kind:
            case RequestKind.CLOSE if end is not None:
                _record_close(context, topic, request_id, end)
            case RequestKind.RELEASE:
                context.record(replace(state, releasing=Releasing.REQUEST))
                retiring.requested(context, topic)
            case RequestKind.HAND_OVER:
                context.record(replace(state, handed_over=True))
            case RequestKind.HAND_OVER_UNDO:
                retiring.take_back(context, topic)
            case RequestKind.ACCEPT_LOSS if end is None:
                inquiries.vouch(topic)
            case RequestKind.ACCEPT_LOSS if end is not None:
                losses.accept(topic, end)
                context.record(replace(state, failure=None))

    def _outcome(self, request_id: str, taken: _Taken, registry: TopicRegistry, now: int) -> RequestOutcome | None:
        request = taken.request
        if request.kind in OF_THE_ARCHIVE or request.kind is RequestKind.BRIDGE_LET_GO:
            return None  # `_served` has it
        if self._taken_back_by(request_id, request):
            return None  # first they have their answers: the next process would go on with them
        if request.kind in MIGRATIONS:
            return self._migrating.migrated(request, registry, now)
        topic = registry.topics.get(request.topic)
        released = self._migrating.released(request, registry, now)
        if released is not None:
            return released
        deleted = request.kind is RequestKind.ACCEPT_LOSS and request.position is None
        if topic is None:
            return RequestOutcome(deleted, f"{request.topic} does not exist any more", now)
        if deleted:
            waits = topic.in_question or topic.gone
            return None if waits else RequestOutcome(True, f"{topic.name} is incarnation {topic.incarnation} now", now)
        match request.kind:
            case RequestKind.CLOSE:
                return _closed(self._context, topic, request_id, request, taken.seen_at, now)
            case RequestKind.HAND_OVER:
                return self._migrating.handed_over(request_id, taken.seen_at, topic, now)
            case RequestKind.RELEASE:
                return self._migrating.not_released(topic, now)
            case RequestKind.HAND_OVER_UNDO:
                return self._migrating.undone(topic, registry, now)
            case RequestKind.ACCEPT_LOSS if topic.losses.accepted is None:
                return RequestOutcome(True, f"recorded, the topic goes on after {topic.catalog.end}", now)
            case _:
                return None

    def _done(self, request_id: str, kind: RequestKind, outcome: RequestOutcome) -> None:
        self._answers[request_id] = kind, outcome
        self._have_answered(request_id)

    def _have_answered(self, request_id: str) -> None:
        context, (_, outcome) = self._context, self._answers[request_id]
        call = partial(requests.mark_done, context.store, context.application, request_id, outcome)
        context.work.post(WorkKind.REQUEST, request_id, call, partial(self._answered, request_id))

    def _answered(self, request_id: str, error: OffloadError | None) -> None:
        if error is not None:
            log.warning("requests wait: %s", error, extra={"see": "requests-wait"})
            return
        kind, outcome = self._answers.pop(request_id)
        taken = self._taken.pop(request_id, None)
        if taken is not None and request_id in (asked := self._asked.get(taken.request.topic, [])):
            asked.remove(request_id)
        self._context.metrics.request(kind, "done" if outcome.ok else "refused")
        log.info("request id=%s ok=%s %s", request_id, outcome.ok, outcome.message)


def _waves(found: Pending) -> Iterator[Pending]:
    """The oldest request of each topic, then the next: each finds what the one before has changed."""
    while found:
        first = {request.topic: request_id for request_id, request in reversed(found)}
        yield [each for each in found if first[each[1].topic] == each[0]]
        found = [each for each in found if first[each[1].topic] != each[0]]


def _wait() -> None:
    """It is looked for again."""


def _record_close(context: Context, topic: Topic, request_id: str, position: Position) -> None:
    """Have the segment closed once it reaches there. A former process may have recorded that."""
    state = context.state(topic.name)
    if not any(r.id == request_id for r in state.requests):
        close = CloseRequest(request_id, position._replace(incarnation=topic.incarnation))
        context.record(replace(state, requests=(*state.requests, close)))


def _closed(
    context: Context, topic: Topic, request_id: str, request: Request, seen_at: int, now: int
) -> RequestOutcome | None:
    """Once the catalog has what was asked for. The journal keeps a request no longer than that."""
    state, end = _only_what_is_readable(context, topic, seen_at), topic.catalog.end
    if not any(r.id == request_id for r in state.requests):  # taken out with another one, or nobody heard that it was
        return RequestOutcome(True, _where(topic, end), now)
    state, done = segments.satisfied(state, end)
    if any(r.id == request_id for r in done):
        context.record(state)
        return RequestOutcome(True, _where(topic, end), now)
    if not _nothing_to_do(request, topic, state):
        return None
    context.record(replace(state, requests=tuple(r for r in state.requests if r.id != request_id)))
    return RequestOutcome(True, "Nothing to offload", now)


def _only_what_is_readable(context: Context, topic: Topic, seen_at: int) -> TopicState:
    """A command reads the ledger's end, which may be a marker or an aborted entry: only bookies deliver that. What was
    known of the topic's end before the request was seen here proves nothing."""
    state, last = context.state(topic.name), topic.last
    if last is None or all(r.end <= last for r in state.requests) or not observed.seen_after(topic, seen_at):
        return state
    state = replace(state, requests=tuple(replace(r, end=min(r.end, last)) for r in state.requests))
    context.record(state)
    return state


def _nothing_to_do(request: Request, topic: Topic, state: TopicState) -> bool:
    """A close of a topic without entries since the last segment is satisfied at once."""
    begin, wanted = topic.begin(), request.position
    if wanted is None or state.unfinished or begin is None:
        return False
    return wanted._replace(incarnation=begin.incarnation) < begin


def _where(topic: Topic, end: Position | None) -> str:
    newest = topic.catalog.newest
    if newest is None:
        return "Nothing to offload"
    return f"segment {newest.uuid} {newest.start} to {newest.end}" if newest.end == end else f"offloaded up to {end}"
