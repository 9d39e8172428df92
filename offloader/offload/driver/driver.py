"""The one process that decides: rounds of looking, deciding, journaling, and publishing plans; receipts come back
between them.

Everything here runs in one thread (`run`), which owns all topics. It never waits but for the journal: whatever else may
take long is posted as work, and its result is taken in a later round. Other threads only put receipts into its inbox,
or wake it. Batches run beside that, one of each lane at a time.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from offloader.errors import OffloadError, RetryableError
from offloader.metadata.state import TopicState
from offloader.model import Lane, Receipt, TopicName
from offloader.offload.core import planner
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.planner import Begin, Decision, Hold, Plan, Seal, TopicView
from offloader.offload.core.rates import RateLimits
from offloader.offload.driver import acknowledging, committing, reconciling
from offloader.offload.driver.compacting import Compacting
from offloader.offload.driver.context import Context
from offloader.offload.driver.foreseen import only_foreseen
from offloader.offload.driver.polling import look
from offloader.offload.driver.receiving import receive, tell_of_abandoned
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.sealing import AbandonedUploads, Sealing
from offloader.offload.driver.status import TopicStatus, TopicStatuses
from offloader.offload.driver.topic import Topic, source_of
from offloader.offload.driver.undelivered import explain_old_tails
from offloader.offload.driver.uploads import SegmentUploads
from offloader.offload.driver.work import WorkKind
from offloader.offload.spark.plan_server import PlanServer

log = logging.getLogger(__name__)

BUSY_WAIT = 0.25  # seconds between rounds while something is under way


@dataclass
class LaneBatch:
    """What a lane's foreachBatch delivered, and the event that lets Spark go on."""

    lane: Lane
    receipts: list[Receipt]
    accounted: bool = False  # it is received again while the journal is not reachable
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class _Outstanding:
    """A plan whose receipts are not in yet."""

    plan: Plan
    since: int


class Driver:
    """Plans, takes receipts, seals, acknowledges. `registry` says which topics there are. `lanes`: what one micro-batch
    of each may hold; may be replaced at any time."""

    def __init__(
        self,
        context: Context,
        registry: TopicRegistry,
        plans: PlanServer,
        lanes: Mapping[Lane, LaneLimits],
        requests: RequestHandler,
        rates: RateLimits,
        poll_ms: int,
    ) -> None:
        self.context = context
        self.registry = registry
        self.plans = plans
        self.lanes = lanes
        self._requests = requests
        self._rates = rates
        self._poll_ms = poll_ms
        self._inbox: queue.Queue[LaneBatch | None] = queue.Queue()  # None: there is something to look at
        self._batches_in: deque[LaneBatch] = deque()
        context.work.wake = lambda: self._inbox.put(None)
        self._uploads = SegmentUploads(context)
        self._sealing = Sealing(context)
        self._abandoned = AbandonedUploads(context)
        self._compacting = Compacting(context)
        self._outstanding: dict[Lane, _Outstanding] = {}
        self._number = 0
        self._stopping = threading.Event()
        self._draining = threading.Event()
        self._idle = threading.Event()  # no plan of the fast lane is outstanding
        self._idle.set()
        self._checked_at = 0
        self._batches: Counter[Lane] = Counter()
        self._statuses = TopicStatuses(context)
        self._slow_rests_until = 0
        self._due_at = 0  # when a topic that is held back may go on
        self._trouble = 0  # rounds in a row that could not be ended

    # The application's side

    def deliver(self, lane: Lane, receipts: list[Receipt]) -> LaneBatch:
        """Hand over what came of a lane's plan. The batch is done once the receipts are journaled."""
        batch = LaneBatch(lane, receipts)
        self._inbox.put(batch)
        return batch

    def commit(self, lane: Lane, receipts: list[Receipt]) -> None:
        """Called by foreachBatch: returns once the receipts are journaled (or the driver stops)."""
        batch = self.deliver(lane, receipts)
        while not batch.done.wait(BUSY_WAIT) and not self._stopping.is_set():
            pass

    def stop(self) -> None:
        """End `run` after its present round."""
        self._stopping.set()
        self._inbox.put(None)

    def run(self) -> None:
        """Rounds until stopped. Raises OvertakenError and other errors that end the application."""
        try:
            while not self._stopping.is_set():
                self._rest(self.turn())
        finally:
            self._idle.set()  # nobody takes what is outstanding any more

    def _rest(self, seconds: float) -> None:
        with self.context.metrics.health.waiting("pause", seconds):
            if self._trouble:
                self._stopping.wait(seconds)  # what is done meanwhile cannot be journaled either
            else:
                self._wait(seconds)

    def turn(self) -> float:
        """One round; what can be retried is, at a later one. Returns the seconds after which the next one is due, if
        nothing wakes us."""
        began = self.context.clock_ms()
        try:
            self.round()
        except RetryableError as error:
            self._trouble += 1
            self.context.metrics.health.checked("store", str(error))
            log.warning("waiting, nothing is lost (%d): %s", self._trouble, error, extra={"see": "waiting"})
            return min(2.0 ** (self._trouble - 1), 30.0)
        finally:
            self.context.metrics.round((self.context.clock_ms() - began) / 1000)
        self._trouble = 0
        self.context.metrics.health.checked("store")
        return self._pause()

    def batches_since_restart(self, lane: Lane) -> int:
        """How many batches of the lane were committed since the last call."""
        return self._batches.pop(lane, 0)

    def finish_batch(self, timeout: float) -> None:
        """Publish no more plans; wait for the fast lane's outstanding one, but no longer than `timeout` seconds. A slow
        slice may take minutes: what it has read is read again."""
        self._draining.set()
        self._idle.wait(timeout)

    # One round

    def round(self) -> None:
        """Everything that is due now. Safe to call at any time from the driver's thread."""
        context = self.context
        now = context.clock_ms()
        context.metrics.health.tick()
        if now - self._checked_at >= self._poll_ms or Lane.FAST not in self._outstanding:
            context.journal.check_not_overtaken()
            self._checked_at = now
        self._take_receipts()
        self._take_done()
        self.registry.update()
        self._requests.serve(self.registry, now)
        self._release_retired()
        acknowledging.acknowledge_all(context, self.registry.topics.values())
        self._abandoned.abort(now)
        self._compacting.look(self.registry.topics.values())
        self._statuses.tell(self.registry.topics.values(), now)
        self._take_done()
        if not self._draining.is_set():
            self._plan()

    def _take_done(self) -> None:
        """Take what is done, and journal what came of it: a topic is not decided on in between."""
        self.context.work.take()
        self._sealing.collect()
        self._uploads.collect()

    def _wait(self, seconds: float) -> None:
        """Until something is in or done, or for so long."""
        try:
            batch = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return
        if batch is not None:
            self._batches_in.append(batch)

    def _pause(self) -> float:
        """Seconds until the next round. A round looks at every topic: idle ones do not need it four times a second."""
        if Lane.FAST in self._outstanding or not self.registry.settled or self._requests.busy:
            return BUSY_WAIT
        return max(BUSY_WAIT, min(self._due_at - self.context.clock_ms(), self._poll_ms) / 1000)

    # Receipts

    def _take_receipts(self) -> None:
        for _ in range(self._inbox.qsize()):
            batch = self._inbox.get()
            if batch is not None:
                self._batches_in.append(batch)
        while self._batches_in:
            self._take(self._batches_in[0])
            self._batches_in.popleft()

    def _take(self, batch: LaneBatch) -> None:
        received = receive(
            self.context, self.registry.topics, self._rates, self.lanes[Lane.FAST], self.plans.run, batch.receipts
        )
        outstanding = self._outstanding.get(batch.lane)
        ours = outstanding if outstanding is not None and _is_of(batch, outstanding.plan) else None
        if not batch.accounted:
            batch.accounted = True
            received.account()
            if ours is not None:  # whatever the journal does now, Spark has done its part
                self.context.metrics.health.batch_ended(batch.lane)
        self.context.journal.record(received.states.values())  # where it is not reachable the batch is received again
        if ours is not None:
            self._batch_ended(batch, ours, self.context.clock_ms())
        self._batches[batch.lane] += 1
        batch.done.set()

    def _batch_ended(self, batch: LaneBatch, outstanding: _Outstanding, now: int) -> None:
        """Its duration counts from the plan's publication."""
        took = now - outstanding.since
        self.context.metrics.batch(batch.lane, took / 1000, len(batch.receipts))
        longest = max((r.elapsed_ms for r in batch.receipts), default=0)
        size = sum(r.read_bytes for r in batch.receipts)
        log.debug(
            "batch plan=%d lane=%s slices=%d bytes=%d took=%d ms longest slice=%d ms",
            outstanding.plan.number, batch.lane, len(batch.receipts), size, took, longest,
        )  # fmt: skip
        del self._outstanding[batch.lane]
        if batch.lane is Lane.SLOW:
            self._slow_rests_until = now + longest
        self.plans.withdraw(outstanding.plan)
        for work in outstanding.plan.slices:
            topic = self.registry.topics.get(work.id.topic)
            if topic is not None:
                topic.planned = replace(topic.planned, travels=False)
        if batch.lane is Lane.FAST:
            self._idle.set()

    # Planning

    def _plan(self) -> None:
        """Where only the slow lane is free, its topics alone are decided on."""
        context = self.context
        topics = [topic for topic in self.registry.topics.values() if not topic.planned.travels]
        if Lane.FAST in self._outstanding:
            topics = [topic for topic in topics if topic.learnt.speed.lane not in self._outstanding]
            if not topics:
                return
        for topic in topics:
            topic.source = source_of(self.state(topic.name), topic.rules)
        look(context, topics, self._looked)
        self._take_done()
        explain_old_tails(context, topics, context.clock_ms())
        self._take_done()
        reconciling.check_all(context, self.registry, topics, self._sealing)
        self._take_done()
        decisions = self._decide(topic.name for topic in topics if self._may_be_decided(topic))
        decisions = self._begin_uploads(decisions)
        holds = [d.step.until for d in decisions if isinstance(d.step, Hold) and d.step.until is not None]
        self._due_at = min(holds, default=context.clock_ms() + self._poll_ms)
        for decision in decisions:
            if isinstance(decision.step, Seal):
                self._sealing.start(self.registry.topics[decision.state.topic], decision.step.state)
        self._publish(decisions)

    def _may_be_decided(self, topic: Topic) -> bool:
        ours = self.registry.topics.get(topic.name) is topic
        return ours and topic.readable and not self.context.busy(topic)

    def _looked(self, topic: Topic, error: OffloadError | None) -> None:
        if error is not None:
            reconciling.could_not_look(topic, error)

    def _decide(self, names: Iterable[TopicName]) -> list[Decision]:
        """One decision a topic; what they change is journaled before anything acts on it."""
        now = self.context.clock_ms()
        decisions = []
        for name in list(names):
            topic = self.registry.topics[name]
            view = self._view(topic, now)
            if view is None:
                continue
            try:
                with only_foreseen():
                    decisions.append(planner.decide(view, now, self.context.new_uuid))
                self._measure_throttling(topic, decisions[-1], now)
                self._tell_of_abandoned(decisions[-1])
            except OffloadError as error:
                self.context.record(self.context.failed(view.state, error))
        self.context.journal.record([d.state for d in decisions if d.state != d.view.state])
        return decisions

    def _view(self, topic: Topic, now: int) -> TopicView | None:
        """None: what is known of the topic adds up to nothing that could be decided on."""
        allowance, allowed_at = self._rates.allowance(topic.name, now)
        try:
            with only_foreseen():
                return topic.view(self.state(topic.name), self.lanes[Lane.SLOW], allowance, allowed_at)
        except OffloadError as error:
            committing.in_doubt(self.context, topic, error)
            return None

    def _measure_throttling(self, topic: Topic, decision: Decision, now: int) -> None:
        since = topic.planned.throttled_since
        if isinstance(decision.step, Hold) and decision.step.reason == planner.RATE_LIMIT:
            topic.planned = replace(topic.planned, throttled_since=since or now)
        elif since:
            self.context.metrics.throttled(topic.name, (now - since) / 1000)
            topic.planned = replace(topic.planned, throttled_since=0)

    def _tell_of_abandoned(self, decision: Decision) -> None:
        for gone in decision.state.abandoned[len(decision.view.state.abandoned) :]:
            tell_of_abandoned(self.context, decision.state.topic, gone.reason)

    def _begin_uploads(self, decisions: list[Decision]) -> list[Decision]:
        """Have uploads begun; the decisions with new ones for those that have begun already."""
        context, begins = self.context, [(d.state.topic, d.step.uuid) for d in decisions if isinstance(d.step, Begin)]
        if not begins:
            return decisions
        for topic, uuid in begins:
            self._uploads.start(topic, uuid)
        self._take_done()
        others = [d for d in decisions if not isinstance(d.step, Begin)]
        return others + self._decide(topic for topic, _ in begins if not context.work.has(WorkKind.BEGIN, topic))

    def _publish(self, decisions: list[Decision]) -> None:
        for lane in Lane:
            if lane not in self._outstanding and not self._rests(lane):
                plan = planner.plan(self.plans.run, self._number + 1, lane, decisions, self.lanes[lane])
                if plan.tasks:
                    self._hand_out(plan)

    def _rests(self, lane: Lane) -> bool:
        """A slow slice that has held the only slot lets the others have it for as long, while they want it."""
        shared = lane is Lane.SLOW and self.lanes[lane].longest_ms is not None
        return shared and Lane.FAST in self._outstanding and self.context.clock_ms() < self._slow_rests_until

    def _hand_out(self, plan: Plan) -> None:
        now = self.context.clock_ms()
        self._number = plan.number
        self._outstanding[plan.lane] = _Outstanding(plan, now)
        if plan.lane is Lane.FAST:
            self._idle.clear()
        for work in plan.slices:
            topic = self.registry.topics[work.id.topic]
            topic.planned = replace(topic.planned, at=now, travels=True)
        self.context.metrics.health.batch_began(plan.lane, plan.longest_ms / 1000)
        self.plans.publish(plan)
        log.debug(
            "planned plan=%d lane=%s at=%d slices=%d tasks=%d topics=%s", plan.number, plan.lane, now,
            len(plan.slices), len(plan.tasks), ",".join(str(work.id.topic) for work in plan.slices),
        )  # fmt: skip

    # How things stand

    @property
    def statuses(self) -> tuple[TopicStatus, ...]:
        """One line a topic, at most `STATE_EVERY_MS` old. From any thread."""
        return self._statuses.statuses

    # Small things

    def state(self, name: TopicName) -> TopicState:
        """The topic's journal state."""
        return self.context.state(name)

    def _release_retired(self) -> None:
        for topic in list(self.registry.topics.values()):
            self.registry.retire_if_done(topic, self.state(topic.name))


def _is_of(batch: LaneBatch, plan: Plan) -> bool:
    """Whether the batch is what Spark made of this plan: not of an earlier one, nor the empty one with which each query
    begins."""
    return any((r.id.run, r.id.plan) == (plan.run, plan.number) for r in batch.receipts)
