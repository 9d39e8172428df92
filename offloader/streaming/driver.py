"""The one process that decides: rounds of looking, deciding, journaling, and publishing plans; receipts come back between them.

Everything here runs in one thread (`run`), which owns all topics; other threads only put receipts and discoveries into its inbox. Work that
is not data (requests, seals, acknowledgements, discovery) goes on while a batch runs.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from offloader.errors import OffloadError, OutcomeUnknownError, RetryableError
from offloader.metadata import layout
from offloader.metadata.state import TopicState
from offloader.model import Receipt, TopicName
from offloader.streaming import acknowledging, planner, segments, sources
from offloader.streaming.context import Context
from offloader.streaming.desk import RequestDesk
from offloader.streaming.looking import look
from offloader.streaming.plan_server import PlanServer
from offloader.streaming.planner import Begin, Decision, Hold, Limits, Plan, Read, Seal
from offloader.streaming.rates import RateLimits
from offloader.streaming.receiving import receive, tell_of_abandoned
from offloader.streaming.roster import Roster
from offloader.streaming.sealer import OBJECT_META
from offloader.streaming.sealing import AbandonedUploads, Sealing
from offloader.streaming.status import TopicStatus, status_of
from offloader.streaming.tails import explain_old_tails
from offloader.streaming.topics import Topic, source_of

log = logging.getLogger(__name__)

STATE_EVERY_MS = 1_000
BUSY_WAIT = 0.25  # seconds between rounds while something is under way


@dataclass
class _Batch:
    """What foreachBatch delivered, and the event that lets Spark go on."""

    receipts: list[Receipt]
    accounted: bool = False  # it is received again while the journal is not reachable
    done: threading.Event = field(default_factory=threading.Event)


class Driver:
    """Plans, takes receipts, seals, acknowledges. `roster` says which topics there are."""

    def __init__(
        self,
        context: Context,
        roster: Roster,
        plans: PlanServer,
        limits: Limits,
        desk: RequestDesk,
        rates: RateLimits,
        poll_ms: int,
    ) -> None:
        self.context = context
        self.roster = roster
        self.plans = plans
        self._limits = limits
        self._desk = desk
        self._rates = rates
        self._poll_ms = poll_ms
        self._inbox: queue.Queue[_Batch | None] = queue.Queue()
        self._sealing = Sealing(context, wake=lambda: self._inbox.put(None))
        self._abandoned = AbandonedUploads(context)
        self._outstanding: Plan | None = None
        self._number = 0
        self._published_at = 0
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._checked_at = 0
        self._batches = 0
        self._statuses: tuple[TopicStatus, ...] = ()
        self._stated_at = 0
        self._due_at = 0  # when a topic that is held back may go on

    # The application's side

    def commit(self, receipts: list[Receipt]) -> None:
        """Called by foreachBatch: returns once the receipts are journaled (or the driver stops)."""
        batch = _Batch(receipts)
        self._inbox.put(batch)
        while not batch.done.wait(BUSY_WAIT) and not self._stopping.is_set():
            pass

    def stop(self) -> None:
        """End `run` after its present round."""
        self._stopping.set()
        self._inbox.put(None)

    def run(self) -> None:
        """Rounds until stopped. Raises OvertakenError, OutcomeUnknownError (journal) and other errors that end the application."""
        trouble = 0
        while not self._stopping.is_set():
            try:
                self.round()
                self._wait()
                trouble = 0
                self.context.metrics.health.checked("store")
            except RetryableError as error:
                trouble += 1
                self.context.metrics.health.checked("store", str(error))
                log.warning("waiting, nothing is lost (%d): %s", trouble, error)
                self._stopping.wait(min(0.5 * 2**trouble, 30.0))

    def replan(self) -> None:
        """The batch of the outstanding plan is lost (its query died): its topics are planned again."""
        self._outstanding = None
        self.context.metrics.health.batch_ended()

    def batches_since_restart(self) -> int:
        """How many batches were committed since the last call."""
        done, self._batches = self._batches, 0
        return done

    def finish_batch(self, timeout: float) -> None:
        """Publish no more plans; wait for the one that is outstanding, but no longer than `timeout` seconds."""
        self._draining.set()
        self._idle.wait(timeout)

    # One round

    def round(self) -> None:
        """Everything that is due now. Safe to call at any time from the driver's thread."""
        context = self.context
        now = context.clock_ms()
        context.metrics.health.tick()
        if now - self._checked_at >= self._poll_ms or self._outstanding is None:
            context.journal.check_not_overtaken()
            self._checked_at = now
        self._take_receipts()
        self.roster.update()
        self._desk.serve(self.roster, now)
        self._sealing.collect(self.roster.topics.values())
        self._release_retired()
        acknowledging.acknowledge_all(context, self.roster.topics.values())
        self._abandoned.abort(now)
        self._state_how_it_stands(now)
        if self._outstanding is None and not self._draining.is_set():
            self._plan()

    def _wait(self) -> None:
        """Until a batch is in, a seal is done, or the next round is due."""
        try:
            batch = self._inbox.get(timeout=self._pause())
        except queue.Empty:
            return
        if batch is not None:
            self._take(batch)

    def _pause(self) -> float:
        """Seconds until the next round. A round looks at every topic: idle ones do not need it four times a second."""
        if self._outstanding is not None or not self.roster.settled or self._desk.busy:
            return BUSY_WAIT
        return max(BUSY_WAIT, min(self._due_at - self.context.clock_ms(), self._poll_ms) / 1000)

    # Receipts

    def _take_receipts(self) -> None:
        for _ in range(self._inbox.qsize()):
            batch = self._inbox.get()
            if batch is not None:
                self._take(batch)

    def _take(self, batch: _Batch) -> None:
        received = receive(self.context, self.roster.topics, self._rates, self.plans.run, batch.receipts)
        if not batch.accounted:
            batch.accounted = True
            received.account()
        try:
            self.context.journal.record(received.states.values())
        except RetryableError:
            self._inbox.put(batch)  # the journal is not reachable: the batch stays uncommitted
            raise
        self._batch_ended(batch, self.context.clock_ms())
        self._idle.set()
        batch.done.set()

    def _batch_ended(self, batch: _Batch, now: int) -> None:
        """Its duration counts from the plan's publication; a batch of no plan of ours (a replay) has none."""
        if self._outstanding is not None:
            took = now - self._published_at
            self.context.metrics.batch(took / 1000, len(batch.receipts))
            longest = max((r.elapsed_ms for r in batch.receipts), default=0)
            size = sum(r.read_bytes for r in batch.receipts)
            log.debug(
                "batch plan=%d slices=%d bytes=%d took=%d ms longest slice=%d ms",
                self._number, len(batch.receipts), size, took, longest,
            )  # fmt: skip
        self._outstanding = None
        self.context.metrics.health.batch_ended()
        self._batches += 1

    # Planning

    def _plan(self) -> None:
        context = self.context
        for topic in self.roster.topics.values():
            topic.source = source_of(self.state(topic.name), topic.rules)
        failures = look(context, self.roster.topics.values())
        answered = len(failures) < len(self.roster.topics) or not failures
        context.metrics.health.checked("pulsar", "" if answered else "no topic could be looked at")
        for name, error in failures.items():
            sources.could_not_look(self.roster, self.roster.topics[name], error)
        seen = [t for t in self.roster.topics.values() if not t.unseen and t.name not in failures]
        explain_old_tails(context, seen, context.clock_ms())
        sources.check_all(context, self.roster, self._sealing, set(failures))
        decisions = self._decide(
            name for name, topic in self.roster.topics.items() if name not in failures and not topic.gone and not topic.trouble
        )
        if any(isinstance(d.step, Begin) for d in decisions):
            self._begin_uploads([d for d in decisions if isinstance(d.step, Begin)])
            decisions = self._decide([d.state.topic for d in decisions if isinstance(d.step, Begin | Read)]) + [
                d for d in decisions if isinstance(d.step, Seal | Hold)
            ]
        holds = [d.step.until for d in decisions if isinstance(d.step, Hold) and d.step.until is not None]
        self._due_at = min(holds, default=context.clock_ms() + self._poll_ms)
        for decision in decisions:
            if isinstance(decision.step, Seal):
                self._sealing.start(self.roster.topics[decision.state.topic], decision.state)
        self._publish(decisions)

    def _decide(self, names: Iterable[TopicName]) -> list[Decision]:
        """One decision a topic; what they change is journaled before anything acts on it."""
        now = self.context.clock_ms()
        decisions = []
        for name in list(names):
            topic = self.roster.topics[name]
            allowance, allowed_at = self._rates.allowance(name, now)
            view = topic.view(self.state(name), allowance, allowed_at)
            try:
                decisions.append(planner.decide(view, now, self.context.new_uuid))
                self._measure_throttling(topic, decisions[-1], now)
                self._tell_of_abandoned(decisions[-1])
            except OffloadError as error:
                self.context.record(self.context.failed(view.state, error))
        self.context.journal.record([d.state for d in decisions if d.state != d.view.state])
        return decisions

    def _measure_throttling(self, topic: Topic, decision: Decision, now: int) -> None:
        if isinstance(decision.step, Hold) and decision.step.reason == planner.RATE_LIMIT:
            topic.throttled_since = topic.throttled_since or now
        elif topic.throttled_since:
            self.context.metrics.throttled(topic.name, (now - topic.throttled_since) / 1000)
            topic.throttled_since = 0

    def _tell_of_abandoned(self, decision: Decision) -> None:
        for gone in decision.state.abandoned[len(decision.view.state.abandoned) :]:
            tell_of_abandoned(self.context, decision.state.topic, gone.reason)

    def _begin_uploads(self, decisions: list[Decision]) -> None:
        store = self.context.store
        begun: list[tuple[TopicState, Future[str]]] = []
        for decision in decisions:
            key = layout.data_key(decision.state.topic, segments.opened(decision.state).uuid)
            begun.append((decision.state, self.context.pool.submit(store.begin, key, meta=OBJECT_META)))
        self.context.journal.record([self._begun(state, answer) for state, answer in begun])

    def _begun(self, state: TopicState, answer: Future[str]) -> TopicState:
        try:
            return segments.uploading(state, answer.result())
        except OffloadError as error:
            log.warning("cannot begin an upload topic=%s: %s", state.topic, error)
            if isinstance(error, OutcomeUnknownError):
                state = segments.abandoned(state, self.context.new_uuid(), str(error))
            return self.context.failed(state, error)

    def _publish(self, decisions: list[Decision]) -> None:
        plan = planner.plan(self.plans.run, self._number + 1, decisions, self._limits)
        if not plan.tasks:
            return
        self._number = plan.number
        self._outstanding = plan
        self._idle.clear()
        now = self.context.clock_ms()
        for work in plan.slices:
            self.roster.topics[work.topic].planned_at = now
        self._published_at = now
        self.context.metrics.health.batch_began()
        self.plans.publish(plan)
        log.debug(
            "planned plan=%d at=%d slices=%d tasks=%d topics=%s",
            plan.number, now, len(plan.slices), len(plan.tasks), ",".join(str(work.topic) for work in plan.slices),
        )  # fmt: skip

    # How things stand

    @property
    def statuses(self) -> tuple[TopicStatus, ...]:
        """One line a topic, at most `STATE_EVERY_MS` old. From any thread."""
        return self._statuses

    def _state_how_it_stands(self, now: int) -> None:
        if now - self._stated_at < STATE_EVERY_MS:
            return
        self._stated_at = now
        self._statuses = tuple(status_of(t, self.state(t.name), now) for t in self.roster.topics.values())
        metrics = self.context.metrics
        metrics.topics(s.lag for s in self._statuses)
        metrics.topic_states(Counter(s.state for s in self._statuses))

    # Small things

    def state(self, name: TopicName) -> TopicState:
        """The topic's journal state."""
        return self.context.state(name)

    def _release_retired(self) -> None:
        for topic in list(self.roster.topics.values()):
            self.roster.retire_if_done(topic, self.state(topic.name))
