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
from dataclasses import dataclass, field, replace

from offloader.errors import OffloadError, OutcomeUnknownError, PinMovedError, RetryableError, TopicNotFoundError
from offloader.metadata import layout
from offloader.metadata.state import Abandoned, TopicCatalog, TopicState
from offloader.model import FailureKind, Receipt, SliceStop, TopicName
from offloader.streaming import acknowledging, incarnations, losses, planner, segments
from offloader.streaming.context import Context
from offloader.streaming.desk import RequestDesk
from offloader.streaming.looking import look, record_closed_ledger
from offloader.streaming.plan_server import PlanServer
from offloader.streaming.planner import Begin, Decision, Hold, Limits, Plan, Read, Seal
from offloader.streaming.rates import RateLimits
from offloader.streaming.roster import DELETED, Roster
from offloader.streaming.sealer import OBJECT_META, seal
from offloader.streaming.segments import StaleReceiptError
from offloader.streaming.status import TopicStatus, status_of
from offloader.streaming.tails import explain_old_tails
from offloader.streaming.topics import Topic
from offloader.streaming.worker import failure_kind

log = logging.getLogger(__name__)

ABORT_EVERY_MS = 5_000
STATE_EVERY_MS = 1_000
BUSY_WAIT = 0.25  # seconds between rounds while something is under way


@dataclass
class _Batch:
    """What foreachBatch delivered, and the event that lets Spark go on."""

    receipts: list[Receipt]
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
        self._outstanding: Plan | None = None
        self._number = 0
        self._published_at = 0
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._checked_at = 0
        self._abort_again_at = 0
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
        self._collect_seals()
        self._release_retired()
        acknowledging.acknowledge_all(context, self.roster.topics.values())
        self._abort_abandoned(now)
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
        now = self.context.clock_ms()
        changed: dict[TopicName, TopicState] = {}
        for receipt in batch.receipts:
            state = self._received(receipt, changed, now)
            if state is not None:
                changed[receipt.topic] = state
        try:
            self.context.journal.record(changed.values())
        except RetryableError:
            self._inbox.put(batch)  # the journal is not reachable: the batch stays uncommitted
            raise
        self._batch_ended(batch, now)
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
        self._batches += 1

    def _received(self, receipt: Receipt, changed: dict[TopicName, TopicState], now: int) -> TopicState | None:
        topic = self.roster.topics.get(receipt.topic)
        if topic is None or receipt.run != self.plans.run:
            self.context.metrics.receipt_dropped("unknown-run" if topic else "unknown-topic")
            return None
        before = changed.get(receipt.topic) or self.state(receipt.topic)
        try:
            state = segments.received(before, receipt, now, self.context.jitter())
        except StaleReceiptError as error:
            log.info("receipt dropped topic=%s reason=%s", receipt.topic, error)
            self.context.metrics.receipt_dropped("stale")
            return None
        self._learn(topic, receipt, state)
        try:
            return self._progress(topic, state, receipt, now)
        except OffloadError as error:
            return segments.failed(before, failure_kind(error), str(error), now, self.context.jitter())

    def _progress(self, topic: Topic, state: TopicState, receipt: Receipt, now: int) -> TopicState:
        if receipt.finished and receipt.stop is not SliceStop.FAILED:
            return segments.complete(state, receipt.gaps, topic.info.ledgers, now, topic.catalog.next_slot)
        if receipt.failure_kind is FailureKind.UPLOAD_GONE:
            return self._abandon(topic, state, receipt.failure_reason)
        return state

    def _abandon(self, topic: Topic, state: TopicState, reason: str) -> TopicState:
        log.warning("abandon topic=%s reason=%s", topic.name, reason)
        self.context.metrics.abandoned(topic.name)
        return segments.abandoned(state, self.context.new_uuid(), reason)

    def _learn(self, topic: Topic, receipt: Receipt, state: TopicState) -> None:
        """What a receipt teaches about when and how to plan the topic next."""
        metrics = self.context.metrics
        for part in receipt.parts:
            metrics.offloaded(topic.name, part.size, part.entries)
            for gap in part.gaps:
                metrics.gap(topic.name, gap.kind, gap.last - gap.first + 1)
        metrics.entries_read(topic.name, receipt.read_bytes)
        self._rates.spent(topic.name, receipt.read_bytes)
        topic.slow = topic.slow + 1 if receipt.stop is SliceStop.SLOW else 0
        topic.died = receipt.failure_kind is FailureKind.TASK_DIED
        if receipt.failure_kind is not None:
            log.warning("slice failed topic=%s kind=%s reason=%s", topic.name, receipt.failure_kind, receipt.failure_reason)
            metrics.failure(receipt.failure_kind, topic.name)
        pending = topic.view(state, None, 0).pending_bytes if state.open else 0
        short = receipt.stop is SliceStop.BOUND and not receipt.finished
        topic.wanted_bytes = planner.after_slice(pending, receipt.seen_bytes, planner.enough(state, topic.rules)) if short else 0

    # Planning

    def _plan(self) -> None:
        context = self.context
        failures = look(context, self.roster.topics.values())
        answered = len(failures) < len(self.roster.topics) or not failures
        context.metrics.health.checked("pulsar", "" if answered else "no topic could be looked at")
        for name, error in failures.items():
            self._could_not_look(self.roster.topics[name], error)
        self._end_gone()
        explain_old_tails(context, list(self.roster.topics.values()), context.clock_ms())
        self._check_sources(failures)
        decisions = self._decide(name for name, topic in self.roster.topics.items() if name not in failures and not topic.gone)
        if any(isinstance(d.step, Begin) for d in decisions):
            self._begin_uploads([d for d in decisions if isinstance(d.step, Begin)])
            decisions = self._decide([d.state.topic for d in decisions if isinstance(d.step, Begin | Read)]) + [
                d for d in decisions if isinstance(d.step, Seal | Hold)
            ]
        holds = [d.step.until for d in decisions if isinstance(d.step, Hold) and d.step.until is not None]
        self._due_at = min(holds, default=context.clock_ms() + self._poll_ms)
        for decision in decisions:
            if isinstance(decision.step, Seal):
                self._start_seal(self.roster.topics[decision.state.topic], decision.state)
        self._publish(decisions)

    def _could_not_look(self, topic: Topic, error: OffloadError) -> None:
        if isinstance(error, TopicNotFoundError):
            self.roster.perhaps_deleted(topic)
        elif str(error) != topic.alarm:
            topic.alarm = str(error)
            log.warning("cannot look at topic=%s: %s", topic.name, error)

    def _end_gone(self) -> None:
        """Bring topics whose source is gone to their end, step by step."""
        now = self.context.clock_ms()
        for topic in [t for t in self.roster.topics.values() if t.gone and t.sealing is None]:
            state = self.state(topic.name)
            if state.failure is not None and now < state.failure.retry_at and state.open is not None and state.open.sealed:
                continue
            state = incarnations.end_old(self.context, topic, state, topic.gone)
            self._record(state)
            if state.open is not None:
                self._start_seal(topic, state)
                continue
            incarnations.record_lost_tail(self.context, topic, topic.gone)
            if topic.gone == DELETED:
                self.roster.forget(topic)
            else:
                self.roster.renew(topic)

    def _check_sources(self, failures: dict[TopicName, OffloadError]) -> None:
        """Record ledgers that closed, notice a pin that was moved, and data that is gone."""
        for topic in self.roster.topics.values():
            if topic.name in failures or topic.gone:
                continue
            state = self.state(topic.name)
            if topic.sealing is not None or (state.open is not None and state.open.sealed is not None):
                continue  # the sealer appends to this catalog
            record_closed_ledger(self.context, topic)
            try:
                acknowledging.check_pin(topic)
                topic.alarm = ""
            except PinMovedError as error:
                if topic.alarm != str(error):
                    log.error("%s", error)
                    self.context.metrics.pin_moved(topic.name)
                topic.alarm = str(error)
            self._record(losses.handle(self.context, topic, state))

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
            except OffloadError as error:
                self._record(segments.failed(view.state, failure_kind(error), str(error), now, self.context.jitter()))
        self.context.journal.record([d.state for d in decisions if d.state != d.view.state])
        return decisions

    def _measure_throttling(self, topic: Topic, decision: Decision, now: int) -> None:
        if isinstance(decision.step, Hold) and decision.step.reason == planner.RATE_LIMIT:
            topic.throttled_since = topic.throttled_since or now
        elif topic.throttled_since:
            self.context.metrics.throttled(topic.name, (now - topic.throttled_since) / 1000)
            topic.throttled_since = 0

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
            now = self.context.clock_ms()
            log.warning("cannot begin an upload topic=%s: %s", state.topic, error)
            if isinstance(error, OutcomeUnknownError):
                state = segments.abandoned(state, self.context.new_uuid(), str(error))
            return segments.failed(state, failure_kind(error), str(error), now, self.context.jitter())

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
        self.plans.publish(plan)
        log.debug("plan=%d slices=%d tasks=%d", plan.number, len(plan.slices), len(plan.tasks))

    # Seals

    def _start_seal(self, topic: Topic, state: TopicState) -> None:
        if topic.sealing is None:
            topic.sealing = self.context.pool.submit(self._seal, topic.catalog, state)
            topic.sealing.add_done_callback(lambda _: self._inbox.put(None))  # the next round need not wait

    def _seal(self, catalog: TopicCatalog, state: TopicState) -> TopicCatalog:
        """Runs in the pool."""
        context, began = self.context, self.context.clock_ms()
        try:
            return seal(context.store, context.catalogs, catalog, state)
        finally:
            context.metrics.seal((context.clock_ms() - began) / 1000)

    def _collect_seals(self) -> None:
        for topic in self.roster.topics.values():
            if topic.sealing is not None and topic.sealing.done():
                answer, topic.sealing = topic.sealing, None
                self._record(self._sealed(topic, self.state(topic.name), answer))

    def _sealed(self, topic: Topic, state: TopicState, answer: Future[TopicCatalog]) -> TopicState:
        now = self.context.clock_ms()
        segment = segments.opened(state)
        try:
            topic.catalog = answer.result()
        except OffloadError as error:
            log.warning("seal failed topic=%s segment=%s: %s", topic.name, segment.uuid, error)
            kind = failure_kind(error)
            self.context.metrics.failure(kind, topic.name)
            if segments.must_abandon(error):
                state = self._abandon(topic, state, str(error))
            return segments.failed(state, kind, str(error), now, self.context.jitter())
        offloaded = next((s for s in topic.catalog.segments if s.uuid == segment.uuid), None)
        if offloaded is None:
            log.warning("the catalog went on without segment=%s topic=%s: it is dropped", segment.uuid, topic.name)
            return segments.dropped(state, "the catalog went on without it")
        self.context.metrics.segment(offloaded.roll_reason, topic.name, offloaded.size)
        log.info(
            "offloaded topic=%s segment=%s start=%s end=%s entries=%d bytes=%d reason=%s",
            topic.name, offloaded.uuid, offloaded.start, offloaded.end, offloaded.entries, offloaded.size, offloaded.roll_reason,
        )  # fmt: skip
        topic.wanted_bytes = 0
        state = segments.offloaded(state)
        if not segment.parts and segment.upload is not None:
            state = replace(state, abandoned=(*state.abandoned, segments.unused(segment)))
        return state

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
        return self.context.journal.topics.get(name) or TopicState(name)

    def _record(self, state: TopicState) -> None:
        if state != self.state(state.topic):
            self.context.journal.record([state])

    def _release_retired(self) -> None:
        for topic in list(self.roster.topics.values()):
            self.roster.retire_if_done(topic, self.state(topic.name))

    def _abort_abandoned(self, now: int) -> None:
        """Abort uploads that must never be completed; one that cannot be aborted now is tried again later."""
        if now < self._abort_again_at:
            return
        self._abort_again_at = now + ABORT_EVERY_MS
        states = [s for s in self.context.journal.topics.values() if s.abandoned]
        kept = [replace(s, abandoned=tuple(a for a in s.abandoned if not self._ended(a))) for s in states]
        self.context.journal.record([new for new, old in zip(kept, states, strict=True) if new != old])

    def _ended(self, abandoned: Abandoned) -> bool:
        """Whether nothing is left to abort. An object that is already there is left alone: a scan reports it."""
        return abandoned.upload is None or self._abort(abandoned.upload)

    def _abort(self, upload: str) -> bool:
        try:
            self.context.store.abort(upload)
        except (RetryableError, OutcomeUnknownError) as error:
            log.info("cannot abort an abandoned upload yet: %s", error)
            return False
        return True
