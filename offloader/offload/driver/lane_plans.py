"""One plan a lane: decides on the topics that are free, publishes what is to be read, and takes the receipts back."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.model import Lane, Receipt, TopicName
from offloader.offload.core import planner
from offloader.offload.core.changes import DueTimes
from offloader.offload.core.decisions import Copy, Decision, DecisionLimits, Hold, Seal
from offloader.offload.core.facets import Rest
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.plans import Plan, uploads_due
from offloader.offload.core.plans import plan as make_plan
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.topic import Topic, source_of
from offloader.offload.driver import committing, observed, reconciling
from offloader.offload.driver.context import Context
from offloader.offload.driver.inquiries import pursue
from offloader.offload.driver.polling import have_looked_up, look, notice_disconnected
from offloader.offload.driver.receiving import take_receipts, tell_of_abandoned
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.sealing import Sealing
from offloader.offload.driver.undelivered import explain_old_tails, explained_at
from offloader.offload.driver.uploads import Copying, UploadStarter
from offloader.offload.driver.work import WorkKind, only_foreseen
from offloader.offload.spark.plan_server import PlanServer

log = logging.getLogger(__name__)

LONGEST_REST_MS = 60_000  # so often a topic is looked at, whatever is known of it: as often as it is asked for its end


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

    def is_of(self, batch: LaneBatch) -> bool:
        """Whether Spark made the batch of this plan, not of an earlier one. Each query begins with an empty batch."""
        return any((r.id.run, r.id.plan) == (self.plan.run, self.plan.number) for r in batch.receipts)


class LanePlans:
    """`limits`: what one micro-batch of each lane may hold; may be replaced at any time. `due_at`: when the first topic
    that is held back may go on. All in the driver's thread, but for `drain`."""

    def __init__(
        self,
        context: Context,
        registry: TopicRegistry,
        server: PlanServer,
        limits: Mapping[Lane, LaneLimits],
        rates: RateLimits,
    ) -> None:
        self.server = server
        self.limits = limits
        self.rates = rates
        self.due_at: float = 0
        self._context = context
        self._registry = registry
        self._uploads = UploadStarter(context)
        self._copying = Copying(context)
        self._sealing = Sealing(context)
        self._outstanding: dict[Lane, _Outstanding] = {}
        self._number = 0
        self._slow_rests_until = 0
        self._agenda = context.changes.agenda()
        self._polls = context.changes.agenda(polls=True)
        self._holds = DueTimes()  # what holds back topics that rest
        self._draining = threading.Event()
        self._idle = threading.Event()  # no plan of the fast lane is outstanding
        self._idle.set()

    def outstanding(self, lane: Lane) -> bool:
        """Whether a plan of the lane is out whose receipts are not in yet."""
        return lane in self._outstanding

    def under_way(self) -> dict[Lane, tuple[int, int]]:
        """The lanes whose plans are out: since when, and with how many slices."""
        return {lane: (out.since, len(out.plan.slices)) for lane, out in self._outstanding.items()}

    def drain(self, timeout: float) -> None:
        """Publish no more plans; wait up to `timeout` seconds for the fast lane's. From any thread."""
        self._draining.set()
        self._idle.wait(timeout)

    def ended(self) -> None:
        """Nobody takes receipts any more."""
        self._idle.set()

    def take_done(self) -> None:
        """Take the work that is done, and journal what came of it, before anything is decided about its topics."""
        self._context.work.take()
        self._copying.collect()
        self._sealing.collect()
        self._uploads.collect()

    # Receipts

    def take(self, batch: LaneBatch) -> None:
        """Journal what a batch's receipts say. Raises where the journal is not reachable: take it again then."""
        context = self._context
        received = take_receipts(
            context, self._registry.topics, self.rates, self.limits[Lane.FAST], self.server.run, batch.receipts
        )
        out = self._outstanding.get(batch.lane)
        ours = out if out is not None and out.is_of(batch) else None
        if not batch.accounted:
            batch.accounted = True
            for effect in received.effects:
                effect()
            if ours is not None:  # whatever the journal does now, Spark has done its part
                context.metrics.health.batch_ended(batch.lane)
        context.journal.record(received.states.values())
        if ours is not None:
            self._batch_ended(batch, ours)

    def _batch_ended(self, batch: LaneBatch, outstanding: _Outstanding) -> None:
        """Its duration counts from the plan's publication."""
        now, plan = self._context.clock_ms(), outstanding.plan
        took = now - outstanding.since
        self._context.metrics.batch(batch.lane, took / 1000, len(batch.receipts))
        longest = max((r.elapsed_ms for r in batch.receipts), default=0)
        size = sum(r.read_bytes for r in batch.receipts)
        log.debug(
            "batch plan=%d lane=%s slices=%d bytes=%d took=%d ms longest slice=%d ms",
            plan.number, batch.lane, len(batch.receipts), size, took, longest,
        )  # fmt: skip
        del self._outstanding[batch.lane]
        if batch.lane is Lane.SLOW:
            self._slow_rests_until = now + longest
        self.server.withdraw(plan)
        for work in plan.slices:
            topic = self._registry.topics.get(work.id.topic)
            if topic is not None:
                topic.planned = replace(topic.planned, travels=False)
        if batch.lane is Lane.FAST:
            self._idle.set()

    # Planning

    def plan(self) -> None:
        """Look at the topics that are free, decide on them, and publish a plan for each lane that is free."""
        context, held = self._context, self._registry.topics
        if self._draining.is_set():
            return
        for topic in self._awake():
            topic.source = source_of(context.state(topic.name), topic.rules)
            topic.rest = None
        notice_disconnected(context, held)
        look(context, self._polls, held, self._is_free)
        self.take_done()
        topics = self._awake()
        for topic in topics:
            topic.rest = None
        explain_old_tails(context, topics, context.clock_ms())
        self.take_done()
        self._pursue()
        as_recorded = reconciling.check_all(context, self._registry, topics, self._sealing)
        self.take_done()
        ready = [t for t in topics if held.get(t.name) is t and t.readable and not context.busy(t)]
        decisions = self._begin_uploads(self._decide(ready, as_recorded), as_recorded)
        self.due_at = self._due_at(decisions, topics)
        for decision in decisions:
            if isinstance(decision.step, Seal):
                self._sealing.start(decision.topic, decision.step.state)
            elif isinstance(decision.step, Copy):
                self._copying.start(decision.topic, decision.step)
            if decision.search is not None:
                have_looked_up(context, decision.topic, decision.search)
        self._publish(decisions)

    def _is_free(self, topic: Topic) -> bool:
        """Whether something may be decided on the topic now."""
        busy_lane = Lane.FAST in self._outstanding and topic.learnt.speed.lane in self._outstanding
        return not (topic.planned.travels or busy_lane)

    def _pursue(self) -> None:
        """Ask what became of topics that do not answer as the ones that we know, also of those that travel."""
        held = self._registry.topics
        topics = self._agenda.take(held, self._context.clock_ms())
        pursue(self._context, [topic for topic in topics if topic.in_question], held)

    def _awake(self) -> list[Topic]:
        """The free topics without those that rest: of 10,000 topics few."""
        states, now = self._context.journal.topics, self._context.clock_ms()
        awake = []
        for topic in self._agenda.take(self._registry.topics, now):
            if topic.rest is not None and topic.rests(states.get(topic.name), now):
                self._agenda.rest(topic.name, topic.rest.ends_at)
            elif self._is_free(topic):
                awake.append(topic)
        return awake

    def _decide(self, topics: Iterable[Topic], as_recorded: Container[TopicName]) -> list[Decision]:
        """One decision a topic; what they change is journaled before anything acts on it. `as_recorded`: those whose
        catalogs have all of them; others do not rest."""
        context, now = self._context, self._context.clock_ms()
        decisions, changed = [], []
        for topic in topics:
            before = self._state(topic)
            if before is None:
                continue
            try:
                observed.decided_on(topic)
                with only_foreseen:
                    decision = planner.decide(topic, before, self._decision_limits(topic, now), now, context.new_uuid)
                decisions.append(decision)
                if decision.state != before:
                    changed.append(decision.state)
                self._measure_throttling(topic, decision, now)
                if topic.name in as_recorded and not committing.settle(topic):
                    topic.rest = _rest(topic, context.journal.topics.get(topic.name), decision, now)
                    self._holds.put(topic.name, topic.rest.due_at if topic.rest else None)
                for gone in decision.state.abandoned[len(before.abandoned) :]:
                    tell_of_abandoned(context, topic.name, gone.reason)
            except OffloadError as error:
                context.record(context.failed(before, error))
        context.journal.record(changed)
        return decisions

    def _state(self, topic: Topic) -> TopicState | None:
        """The topic's journal state; None: what is known of the topic adds up to nothing that could be decided on."""
        state = self._context.state(topic.name)
        try:
            with only_foreseen:
                topic.pending(state)
        except OffloadError as error:
            committing.in_doubt(self._context, topic, error)
            return None
        return state

    def _decision_limits(self, topic: Topic, now: int) -> DecisionLimits:
        return DecisionLimits(self.limits[Lane.FAST], self.limits[Lane.SLOW], *self.rates.allowance(topic.name, now))

    def _measure_throttling(self, topic: Topic, decision: Decision, now: int) -> None:
        since = topic.planned.throttled_since
        if isinstance(decision.step, Hold) and decision.step.reason == planner.RATE_LIMIT:
            topic.planned = replace(topic.planned, throttled_since=since or now)
        elif since:
            self._context.metrics.throttled(topic.name, (now - since) / 1000)
            topic.planned = replace(topic.planned, throttled_since=0)

    def _due_at(self, decisions: Iterable[Decision], topics: Iterable[Topic]) -> float:
        """When the first of those that are held back, now or since an earlier round, may go on. `topics`: those that do
        not rest."""
        steps = (step for decision in decisions for step in decision.steps)
        times = [step.until for step in steps if isinstance(step, Hold)]
        times += [topic.inquiry.subscription.again_at for topic in topics if topic.inquiry and topic.in_question]
        self._holds.take(self._context.clock_ms())  # these do not rest any more
        times.append(self._holds.first())
        return min((at for at in times if at is not None), default=math.inf)

    def _begin_uploads(self, decisions: list[Decision], as_recorded: Container[TopicName]) -> list[Decision]:
        """Have uploads begun. Where the store has answered at once, the topic is decided anew; others wait."""
        free = Lane.FAST not in self._outstanding
        begins = uploads_due(decisions, self.limits[Lane.FAST], free=free)
        if not begins:
            return decisions
        for topic, uuids in begins.items():
            self._uploads.start(topic, uuids)
        self.take_done()
        others, work = [d for d in decisions if d.topic.name not in begins], self._context.work
        begun = [self._registry.topics[topic] for topic in begins if not work.has(WorkKind.BEGIN, topic)]
        return others + self._decide(begun, as_recorded)

    def _publish(self, decisions: list[Decision]) -> None:
        for lane in Lane:
            if lane not in self._outstanding and not self._rests(lane):
                plan = make_plan(self.server.run, self._number + 1, lane, decisions, self.limits[lane])
                if plan.tasks:
                    self._hand_out(plan)

    def _rests(self, lane: Lane) -> bool:
        """A slow slice that has held the only slot lets the others have it for as long, while they want it."""
        shared = lane is Lane.SLOW and self.limits[lane].longest_ms is not None
        return shared and Lane.FAST in self._outstanding and self._context.clock_ms() < self._slow_rests_until

    def _hand_out(self, plan: Plan) -> None:
        now = self._context.clock_ms()
        self._number = plan.number
        self._outstanding[plan.lane] = _Outstanding(plan, now)
        if plan.lane is Lane.FAST:
            self._idle.clear()
        for work in plan.slices:
            topic = self._registry.topics[work.id.topic]
            topic.planned = replace(topic.planned, at=now, travels=True)
        self._context.metrics.health.batch_began(plan.lane, plan.longest_ms / 1000)
        self.server.publish(plan)
        log.debug(
            "planned plan=%d lane=%s at=%d slices=%d tasks=%d topics=%s", plan.number, plan.lane, now,
            len(plan.slices), len(plan.tasks), ",".join(str(work.id.topic) for work in plan.slices),
        )  # fmt: skip


def _rest(topic: Topic, state: TopicState | None, decision: Decision, now: int) -> Rest | None:
    """None: there is something to do, or there will be once the new state is journaled. `state`: the journal's."""
    holds = [step for step in decision.steps if isinstance(step, Hold)]
    changes = decision.state != (state or TopicState(topic.name))
    if changes or len(holds) < len(decision.steps) or decision.search is not None:
        return None
    due_at = min((hold.until for hold in holds if hold.until is not None), default=None)
    ends = (now + LONGEST_REST_MS, due_at, explained_at(topic))
    return Rest(state, min(end for end in ends if end is not None), due_at)
