"""The whole application but Spark: the real driver, worker, journal and catalog over an in-memory Pulsar and store.

A seeded scheduler decides what happens next: produce, run a batch, lose a task, run a zombie, kill the driver, break a
call. Time is the test's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from offloader.bookkeeper.filling import FilledSource
from offloader.bridge.driver.feature import BridgeFeature
from offloader.bridge.driver.parts import BridgeParts
from offloader.config import Config
from offloader.config.bridging import Bridge
from offloader.errors import ConfigError, RetryableError
from offloader.lifecycle.clocks import Clocks
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import ALONE, Deal
from offloader.metadata.journal import Journal
from offloader.metadata.state import Releasing
from offloader.metrics import Metrics
from offloader.model import Lane, Receipt, Slice, Source, TopicName
from offloader.offload.core import planner
from offloader.offload.core.changes import TopicAgenda
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.plans import Plan
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.topic import Topic
from offloader.offload.driver import lane_plans, reconciling, retiring, topic_status
from offloader.offload.driver.acknowledging import acknowledged
from offloader.offload.driver.context import Context
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.lane_plans import LanePlans
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.topic_copies import TopicCopying
from offloader.offload.driver.work import Work, WorkKind
from offloader.offload.worker.slice_worker import died, refused, run_slice
from offloader.ports.entry_source import EntrySource
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.fakes.cluster import MemoryCluster
from tests.in_turn import InTurn
from tests.invariants import PaceLog

CONFIG = """
application: sim
pulsar: {{serviceUrl: "pulsar://localhost:6650", adminUrl: "http://localhost:8080", source: {source},
          metadataServiceUri: {uri}}}
storage: {{root: "file:///unused"}}
discoveryInterval: 1s
policies:
  enabled: {enabled}
  startAfterOffloaded: {after}
  maxOffloadSegmentSizeInBytes: {max_size}
  maxOffloadSegmentRolloverTimeInSeconds: {roll}
  partSizeInBytes: {part}
  blockSizeInBytes: 4096
  indexStepInBytes: 4096
  failOnDataLoss: {fail}
  pinHoldsLastEntry: {hold}
{retention}namespaces: {{public/default: {{{switch}topics: {{"persistent://public/default/t": {{policies: {rate}}}}}}}}}
"""


@cache
def parsed(text: str) -> Config:
    """Drivers are started often, and YAML takes its time."""
    return Config.parse(text, {})


MOST_WAKES = 20
RETENTION_MS = 20_000


class NoPlans:
    """Stands for the plan server: keeps each lane's newest plan, and tells of each."""

    def __init__(self, run: str, tell: Callable[[Plan], None]) -> None:
        self.run = run
        self.newest: dict[Lane, Plan] = {}
        self._tell = tell

    def publish(self, plan: Plan) -> None:
        self.newest[plan.lane] = plan
        self._tell(plan)

    def withdraw(self, plan: Plan) -> None:
        pass


class CheckedPlans(LanePlans):
    """Whoever rests would have nothing to do if it were looked at."""

    def _awake(self) -> list[Topic]:
        awake = super()._awake()
        now, looked_at = self._context.clock_ms(), {topic.name for topic in awake}
        for topic in self._registry.topics.values():
            if not self._is_free(topic):
                continue
            assert topic.rest is not None or topic.name in looked_at, f"{topic.name} neither rests nor is looked at"
            if topic.rest is not None and topic.name not in looked_at and now < topic.rest.ends_at:
                before, limits = self._state(topic), self._decision_limits(topic, now)
                assert before is not None, f"{topic.name} rests and nothing can be decided on it"
                decision = planner.decide(topic, before, limits, now, lambda: "nobody needs one")
                assert lane_plans._rest(topic, before, decision, now), f"{topic.name} rests and has {decision.steps}"
                state = decision.state
                is_sealed = state.open is not None and state.open.sealed is not None  # its catalog is the sealer's
                assert is_sealed or reconciling._closed_ledger(topic) is None
        return awake


class ServedRequests:
    """The handler of requests, from when a simulation serves them."""

    def __init__(self) -> None:
        self.handler: RequestHandler | None = None

    @property
    def busy(self) -> bool:
        return self.handler is not None and self.handler.busy

    def serve(self, registry: TopicRegistry, now: int) -> None:
        if self.handler is not None:
            self.handler.serve(registry, now)


@dataclass
class Clock:
    now: int = 1_700_000_000_000

    def __call__(self) -> int:
        self.now += 1
        return self.now


class Ticking:
    """A worker's clock: an empty read costs a tick, so that waiting slices come to their end."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.now = 0

    def __call__(self) -> int:
        self.now += self.step
        return self.now


def is_on(agenda: TopicAgenda, name: TopicName) -> bool:
    return agenda._names is None or name in agenda._names


@dataclass
class Simulation:
    seed: int
    max_size: int = 64 * 1024
    part: int = 8 * 1024
    roll: str = "60s"
    fail_on_data_loss: bool = True
    pin_holds_last_entry: bool = True
    enabled: bool = True
    namespace_off: bool = False  # by the file
    retention: str = ""  # fields of a policy
    grace_ms: int = 60_000
    start_after_offloaded: bool = False
    rate: int | None = None
    source: Source = Source.BROKER  # what the configuration comes to
    entries_per_ledger: int | None = 20
    store: ObjectStore | None = None
    stock: ObjectStore | None = None
    application: str = "sim"
    limits: LaneLimits = field(default_factory=lambda: LaneLimits(tasks=2, threads=2, byte_budget=40 * 1024))
    slow: LaneLimits = field(
        default_factory=lambda: LaneLimits(
            tasks=1, threads=4, byte_budget=40 * 1024, time_budget_ms=300_000, hard_limit_ms=900_000, queue_factor=1
        )
    )
    cluster_of: Simulation | None = None
    urgent: bool = False
    checked: bool = True
    deal: Deal = ALONE
    host_ahead_ms: int = 0
    broker_ahead_ms: int = 0
    own_clock: bool = True  # of store and broker

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.cluster: MemoryCluster = self.cluster_of.cluster if self.cluster_of else self.made_cluster()
        self.clock: Clock = self.cluster_of.clock if self.cluster_of else Clock()
        self.store = self.store or MemoryStore(MemoryBacking(clock_ms=lambda: self.clock.now))
        self.zombies: list[Slice] = []
        self.kills = 0
        self.dropped = 0
        self.pace = PaceLog(self.limits.time_budget_ms + self.limits.hard_limit_ms)
        self.start()

    def made_cluster(self) -> MemoryCluster:
        return MemoryCluster(seed=self.seed, entries_per_ledger=self.entries_per_ledger)

    def uuid(self) -> str:
        h = f"{self.rng.getrandbits(128):032x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def start(self) -> None:
        text = CONFIG.format(
            max_size=self.max_size,
            part=self.part,
            roll=self.roll,
            fail=str(self.fail_on_data_loss).lower(),
            hold=str(self.pin_holds_last_entry).lower(),
            enabled=str(self.enabled).lower(),
            switch="enabled: false, " if self.namespace_off else "",
            after=str(self.start_after_offloaded).lower(),
            source="bookkeeper" if self.source is Source.BOOKKEEPER else "broker",
            uri="zk://localhost:2181/ledgers" if self.source.complete else "null",
            retention="".join(f"  {line}\n" for line in self.retention.splitlines()),
            rate="{}" if self.rate is None else f"{{maxBytesPerSecond: {self.rate}}}",
        )
        self.config = parsed(text)
        self.pins = self.cluster.pins()
        self.journal = Journal.open(self.store, self.application, self.uuid)
        self.executors: dict[WorkKind, Executor] = dict.fromkeys(WorkKind, InTurn())
        self.served: Any = ServedRequests()
        self.copying: list[TopicCopying] = []
        self.context = Context(
            application=self.application,
            cluster=self.cluster.name,
            subscription="__offloader",
            store=self.store,
            journal=self.journal,
            catalogs=Catalogs(self.store, self.application),
            admin=self.cluster.admin,
            pins=self.pins,
            source=self.cluster.source,
            policies=self.config.policies,
            metrics=Metrics(),
            work=Work(self.executors, self.clock),
            clock_ms=self.clock,
            new_uuid=self.uuid,
            jitter=self.rng.random,
            stock=self.stock,
            deal=self.deal,
        )
        rates = RateLimits()
        self.registry = TopicRegistry(self.context, rates, 1_000, [])
        self.plans = NoPlans(self.uuid(), self.planned)
        plans = (CheckedPlans if self.checked else LanePlans)(
            self.context, self.registry, self.plans, {Lane.FAST: self.limits, Lane.SLOW: self.slow}, rates
        )
        self.retaining = Retaining(self.context, self.grace_ms, RETENTION_MS, self.clocks())
        self.bridging = BridgeFeature(self.context, self.bridge_settings(), self.bridge_parts(), urgent=self.urgent)
        self.passing_on = PassingOn(self.context, self.registry, self.agrees)
        self.driver = Driver(
            self.context,
            self.registry,
            plans,
            self.served,
            self.retaining,
            [self.bridging],
            1,
            self.copying,
            self.passing_on,
        )

    def clocks(self) -> Clocks:
        """The host's may be wrong, the broker's and the store's are right."""
        right = lambda: self.clock.now  # noqa: E731
        return Clocks(
            host_ms=lambda: self.clock.now + self.host_ahead_ms,
            store_ms=right,
            broker_ms=lambda: self.clock.now + self.broker_ahead_ms,
            store_is_independent=self.own_clock,
            broker_is_independent=self.own_clock,
            steady_ms=right,
        )

    def agrees(self, name: str) -> bool:
        """Whether another shard is there."""
        return True

    def bridge_settings(self) -> Bridge:
        return self.config.bridge

    def bridge_parts(self) -> BridgeParts | None:
        """What makes ledgers readable for brokers."""
        return None

    def kill(self) -> None:
        """The driver is gone in mid-air; another one starts."""
        self.kills += 1
        for plan in self.plans.newest.values():
            self.zombies.extend(plan.slices)
        self.pins.close()
        self.journal.close()
        self.start()

    def close(self) -> None:
        self.pins.close()
        self.journal.close()

    def round(self) -> None:
        """Rounds as the driver's loop runs them, while what was posted wakes it: what can be retried is, at the next
        one."""
        try:
            self.driver.round()
            for _ in range(MOST_WAKES):
                self.check_resting()
                if self.driver._inbox.empty():
                    return
                self.driver.round()
        except RetryableError:
            self.clock.now += 1_000

    def check_resting(self) -> None:
        """Each step of a round would have nothing to do for the topics that are not on its agenda."""
        if not self.checked:
            return
        self.context.changes.hand_out()
        for name, topic in self.registry.topics.items():
            if not is_on(self.driver._acknowledging, name):
                assert acknowledged(self.context, topic), f"{name} is not acknowledged, and rests"
            if not is_on(self.driver.statuses._agenda, name):
                basis = topic_status._basis(topic, self.journal.topics.get(name))
                assert self.driver.statuses._told[name].basis == basis, f"the line of {name} is an old one"
            if not is_on(self.registry._leaving, name):
                assert not retiring.may_leave(self.context, topic), f"{name} is to be let go of, and rests"
        missing = {name for name in self.registry.found.policies if name not in self.registry.topics}
        assert missing <= set(self.registry._without_topic()), f"{missing} are not adopted, and nobody looks at them"

    def rounds(self, count: int, step_ms: int = 1_000) -> None:
        """So many rounds, each with its batch."""
        for _ in range(count):
            self.clock.now += step_ms
            self.round()
            self.batch()

    def until_believed(self) -> None:
        """So many looks that what is seen all the time is believed."""
        self.rounds(12, step_ms=11_000)

    def release(self, topic: TopicName) -> None:
        """Somebody asks for it."""
        self.context.record(replace(self.driver.state(topic), releasing=Releasing.REQUEST))
        if topic in self.registry.topics:
            retiring.requested(self.context, self.registry.topics[topic])

    def serve_requests(self, trigger_ms: int = 1) -> None:
        """Requests are answered from now on, by this process."""
        self.served.handler = RequestHandler(self.context, trigger_ms, self.retaining, self.bridging)

    def forget_failure(self, topic: TopicName) -> None:
        self.journal.record([replace(self.driver.state(topic), failure=None)])

    def planned(self, plan: Plan) -> None:
        for work in plan.slices:
            failure = self.journal.topics[work.id.topic].failure_of(work.id.uuid)
            if failure is not None:
                self.pace.failed(work.id.topic, failure.retry_at)
            self.pace.planned(work.id.topic, self.clock.now)

    def batch(self, *, deaths: float = 0.0) -> int:
        """Run the published plans and commit their receipts. Returns the number of slices."""
        return sum(self.batch_of(lane, deaths) for lane in Lane)

    def batch_of(self, lane: Lane, deaths: float = 0.0) -> int:
        plan = self.plans.newest.pop(lane, None)
        if plan is None:
            return 0
        receipts: list[Receipt] = []
        for task in plan.tasks:
            dies = self.rng.random() < deaths
            for work in task:
                if dies:
                    self.zombies.append(work)
                    if self.rng.random() < 0.5:
                        self.run(work)
                    receipts.append(died(work))
                else:
                    receipts.append(self.run(work))
        if lane is Lane.FAST:
            self.pace.batch(max(receipt.elapsed_ms for receipt in receipts))
        self.driver.deliver(lane, receipts)
        self.driver._take_receipts()
        return len(plan.slices)

    def switch(self, source: Source) -> None:
        """The application ends and is started again with another source."""
        self.source = source
        self.kill()

    def run(self, work: Slice) -> Receipt:
        if work.source.complete and not self.source.complete:
            return refused(work, ConfigError("pulsar.metadataServiceUri: is not set any more"))
        seconds = Ticking(1)
        sources: dict[Source, EntrySource] = {
            Source.BROKER: self.cluster.source,
            Source.BROKER_WITH_BOOKIES: FilledSource(self.cluster.source, self.cluster.stored, lambda: seconds() / 10),
            Source.BOOKKEEPER: self.cluster.stored,
        }
        return run_slice(work, sources[work.source], self.store, Ticking(50))

    def zombie(self) -> None:
        """A slice of an earlier time runs (again); sometimes its receipt arrives."""
        if not self.zombies:
            return
        work = self.rng.choice(self.zombies)
        receipt = self.run(work)
        if self.rng.random() < 0.5:
            self.driver.deliver(work.id.lane, [receipt])
            self.driver._take_receipts()

    def settle(self, rounds: int = 3_000, step_ms: int = 30_000) -> None:
        """Rounds and batches until nothing is open; fails when that takes too long."""
        for _ in range(rounds):
            self.clock.now += step_ms
            self.round()
            self.batch()
            if self.at_rest():
                return
        states = {str(t): s for t, s in self.journal.topics.items()}
        raise AssertionError(
            f"seed {self.seed}: no rest after {rounds} rounds: {states} refused={self.registry.refused}"
        )

    def at_rest(self) -> bool:
        if any(s.unfinished for s in self.journal.topics.values()):
            return False
        for topic in self.registry.topics.values():
            end = topic.catalog.end
            if not acknowledged(self.context, topic) or topic.inquiry is not None:
                return False
            all_of_it = topic.rules.source is Source.BOOKKEEPER
            truth = [
                (e.ledger, e.entry)
                for e in self.cluster.entries(topic.name)
                if e.created == topic.info.created and (e.delivered or all_of_it)
            ]
            if truth and (end is None or (end.ledger, end.entry) < max(truth)):
                return False
        return bool(self.registry.topics)

    def produce(self, topic: TopicName, count: int, largest: int = 3000) -> None:
        for _ in range(count):
            size = self.rng.choice([0, 1, 100, 1000, largest])
            self.cluster.produce(topic, (b"\0" + self.rng.randbytes(size))[:size])
