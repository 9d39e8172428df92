"""One start of the application in a process of the world: what `offloader.offload.application` builds, with the world's
edges."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import count
from typing import ParamSpec, cast

import httpx

from offloader.bridge.driver.feature import BridgeFeature
from offloader.config import Config
from offloader.config.bridging import Bridge
from offloader.config.policies import Policies
from offloader.errors import OffloadError, OvertakenError
from offloader.lifecycle.clocks import Clocks
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import CALLS_OF_A_WAIT, Journal
from offloader.metrics import Metrics
from offloader.model import Lane, Receipt, Slice
from offloader.offload import settings as derived
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.plans import Plan
from offloader.offload.core.rates import RateLimits
from offloader.offload.driver.context import Context, SteadyClock
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.lane_plans import LanePlans
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.work import THREADS, Pool, Work
from offloader.offload.worker import tasks
from offloader.offload.worker.entry_sources import EntrySources
from offloader.offload.worker.secrets import Public
from offloader.offload.worker.slice_worker import died
from offloader.offload.worker.tasks import WorkerSettings
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings
from tests.bridge.driver.simulation import ReadablePolicies
from tests.invariants import PaceLog
from tests.world.bridges import Bridges
from tests.world.brokers import Brokers
from tests.world.clients import Window, WorldPins, WorldSource
from tests.world.ingress import INGRESS, SETTINGS, Ingress
from tests.world.scheduler import MS, Killed, Process, Scheduler
from tests.world.spark import Executor, JobFailedError, Plans, Spark
from tests.world.stores import RETRY_DEADLINE, Bucket

P = ParamSpec("P")

NO_SOCKETS = httpx.BaseTransport()
LONGEST_ROUND_MS = 100  # nothing in it may wait
ROUND_SECONDS = 0.02  # of the processor, for each
RETRY_DEADLINE_MS = int(RETRY_DEADLINE * 1_000)

CONFIG = """
application: {application}
pulsar: {{serviceUrl: "pulsar://{host}:6650", adminUrl: "http://{host}:8080"}}
storage: {{root: "file:///unused"}}
policies:
  enabled: true
  maxOffloadSegmentSizeInBytes: {max_size}
  maxOffloadSegmentRolloverTimeInSeconds: {roll}
  partSizeInBytes: {part}
  blockSizeInBytes: 4096
  indexStepInBytes: 4096
  failOnDataLoss: {fail}
"""
SHARDS = """
shards: {{count: {count}, takeOverAfter: {after}}}
"""


@cache
def parsed(text: str) -> Config:
    """Applications are started often, and YAML takes its time."""
    return Config.parse(text, {})


RETENTION_MS = 60_000


@dataclass(frozen=True)
class Setup:
    """How the application is configured."""

    application: str = "app"
    max_size: int = 64 * 1024
    part: int = 8 * 1024
    roll: str = "20s"
    fail_on_data_loss: bool = True
    poll_ms: int = 1_000
    discovery_ms: int = 10_000
    executors: int = 2
    slots: int = 1
    byte_budget: int = 40 * 1024
    readable: bool = False  # by stock brokers
    shards: int = 0  # how many the application has; 0: it has none
    shard: int = 0
    take_over_after: str = "30s"

    @cached_property
    def lanes(self) -> Mapping[Lane, LaneLimits]:
        """What the product makes of the configuration and Spark's slots, with budgets for a small world."""
        lanes = derived.lanes(self.config(), self.executors * self.slots)
        return {lane: replace(limits, byte_budget=self.byte_budget) for lane, limits in lanes.items()}

    def config(self) -> Config:
        """The configuration file's meaning."""
        shards = SHARDS.format(count=self.shards, after=self.take_over_after) if self.shards else ""
        config = parsed(
            shards
            + CONFIG.format(
                application=self.application,
                host=INGRESS,
                max_size=self.max_size,
                roll=self.roll,
                part=self.part,
                fail=str(self.fail_on_data_loss).lower(),
            )
        )
        return derived.of_shard(config, self.shard)


class Edges:
    """How one process reaches the world."""

    def __init__(self, bucket: Bucket, brokers: Brokers, ingress: Ingress) -> None:
        self.store = bucket.store()
        self.rest = ingress.reached_by(RestClient(SETTINGS, transport=NO_SOCKETS))
        self.window = Window()
        self.source = WorldSource(brokers, self.rest, self.window)


@dataclass
class Observed:
    """What a start of the application shows of itself. `rounds`: how long each took, in milliseconds; `own`: the
    longest of them, without what it waited for the journal, and while the process stood still."""

    pace: PaceLog
    rounds: list[float] = field(default_factory=list)
    own: float = 0.0


class Start:
    """One process of the application, from its start to its end. `code`: how it ended; None: it runs, or was killed."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        setup: Setup,
        bucket: Bucket,
        brokers: Brokers,
        ingress: Ingress,
        bridges: Bridges,
        process: Process | None = None,
    ) -> None:
        self.process = process or Process(name)
        self._bridges = bridges
        self.setup = setup
        self.code: int | None = None
        self.ready = False
        self.driver: Driver | None = None
        self.registry: TopicRegistry | None = None
        self.context: Context | None = None
        self.error: BaseException | None = None
        fast = setup.lanes[Lane.FAST]
        self.seen = Observed(PaceLog(fast.time_budget_ms + fast.hard_limit_ms + RETRY_DEADLINE_MS))
        self._scheduler = scheduler
        self._bucket = bucket
        self._brokers = brokers
        self._ingress = ingress
        self._random = random.Random(scheduler.rng.getrandbits(64))
        self._stop = threading.Event()
        self.spark: Spark | None = None
        self.pins: WorldPins | None = None
        self._waited_for_journal = 0
        self.windows: list[Window] = []
        self.actor = scheduler.spawn("main", self.process, self._main)

    def stop(self) -> None:
        """As SIGTERM."""
        self._stop.set()

    def check(self) -> None:
        """Its rounds were short but for the journal, and each of its executors held no more than its threads may."""
        assert self.seen.own <= LONGEST_ROUND_MS, (
            f"a round of {self.process.name} took {self.seen.own:.0f} ms, not for the journal"
        )
        threads = self.setup.slots * max(lane.threads for lane in self.setup.lanes.values())
        largest = max(lane.read_ahead for lane in self.setup.lanes.values())
        for window in self.windows:
            held = (
                f"an executor of {self.process.name} held {window.most_readers} readers with {window.most_bytes} bytes"
            )
            assert window.most_readers <= threads, held
            assert window.most_bytes <= threads * largest, held

    def uuid(self) -> str:
        h = f"{self._random.getrandbits(128):032x}"
        return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"

    def _main(self) -> None:
        try:
            self._run()
            self.code = 0
        except OvertakenError as error:
            self.code, self.error = 3, error
        except OffloadError as error:
            self.code, self.error = 1, error
        except Killed:
            self._scheduler.log(f"{self.process.name} was killed")
            raise
        self._scheduler.log(
            f"{self.process.name} ends with {self.code} {type(self.error).__name__ if self.error else ''}"
        )
        self._ended()

    def _ended(self) -> None:
        self._scheduler.kill(self.process)

    def _passing_on(self, context: Context, registry: TopicRegistry, requests: RequestHandler) -> PassingOn | None:
        """What gives topics to other shards."""
        return None

    def _run(self) -> None:
        driver = self._build_driver()
        self.driver = driver
        failures: list[BaseException] = []

        def drive() -> None:
            try:
                driver.run()
            except Exception as error:  # noqa: BLE001 (raised in the main thread, as the application does)
                failures.append(error)
                self._stop.set()
                driver.stop()

        thread = threading.Thread(target=drive, name="driver")
        thread.start()
        for lane in Lane:
            threading.Thread(target=self._query, args=(lane,), name=f"query-{lane}").start()
        self.ready = True
        self._stop.wait()
        if not failures:
            driver.plans.drain(timeout=15)
        driver.stop()
        thread.join()
        if failures:
            raise failures[0]

    def _build_driver(self) -> Driver:
        edges = Edges(self._bucket, self._brokers, self._ingress)
        admin = AdminClient(SETTINGS, transport=NO_SOCKETS)
        self._ingress.reached_by(admin.rest)
        setup, config = self.setup, self.setup.config()
        cluster = admin.cluster()
        metrics = Metrics(clock=lambda: time.monotonic())
        waiting = partial(metrics.health.waiting, "journal", CALLS_OF_A_WAIT * edges.store.longest_call)
        journal = Journal.open(edges.store, config.application, self.uuid, metrics.journaled, waiting)
        self.pins = WorldPins(self._brokers)
        clock_ms = SteadyClock()
        self.context = context = Context(
            application=config.application,
            cluster=cluster,
            subscription="__offloader",
            store=edges.store,
            journal=journal,
            catalogs=Catalogs(edges.store, config.application),
            admin=admin,
            pins=self.pins,
            source=edges.source,
            policies=cast("Policies", ReadablePolicies(config.policies, setup)),
            metrics=metrics,
            work=Work({kind: Pool(threads, kind) for kind, threads in THREADS.items()}, clock_ms),
            clock_ms=clock_ms,
            new_uuid=self.uuid,
            jitter=self._random.random,
            deal=derived.deal(config),
        )
        rates = RateLimits()
        self.registry = TopicRegistry(context, rates, setup.discovery_ms, config.namespaces)
        self.plans = Plans(self.uuid(), self._planned)
        self.spark = Spark(self._scheduler, self._executor, setup.executors)
        retaining = Retaining(context, RETENTION_MS, RETENTION_MS, Clocks())
        parts = self._bridges.parts(edges.store, self.uuid) if setup.readable else None
        bridging = BridgeFeature(context, Bridge.model_validate({"minInterval": "20s", "maxInterval": "1m"}), parts)
        requests = RequestHandler(context, setup.poll_ms, retaining, bridging)
        plans = LanePlans(context, self.registry, self.plans, setup.lanes, rates)
        passing_on = self._passing_on(context, self.registry, requests)
        driver = Driver(
            context, self.registry, plans, requests, retaining, [bridging], setup.poll_ms, passing_on=passing_on,
            cpu_seconds=partial(next, count(step=ROUND_SECONDS)),
        )  # fmt: skip
        return self._watched(driver)

    def _watched(self, driver: Driver) -> Driver:
        """Measure how long each round takes."""
        plain, journal = driver.round, driver.context.journal
        journal.record = self._timed(journal.record)
        journal.check_not_overtaken = self._timed(journal.check_not_overtaken)

        def round_() -> None:
            began, excused = self._scheduler.now, self._excused()
            try:
                plain()
            finally:
                took = self._scheduler.now - began
                self.seen.rounds.append(took / MS)
                self.seen.own = max(self.seen.own, (took - self._excused() + excused) / MS)

        driver.round = round_
        return driver

    def _excused(self) -> int:
        """How long the driver has waited for the journal, also while another thread wrote it, and its process stood
        still."""
        return self._waited_for_journal + self.process.stood_still

    def _timed(self, call: Callable[P, None]) -> Callable[P, None]:
        """A call of the journal, and how long the driver has waited for it."""

        def timed(*args: P.args, **kwargs: P.kwargs) -> None:
            began = self._scheduler.now
            try:
                call(*args, **kwargs)
            finally:
                waited = self._scheduler.now - began
                if waited and threading.current_thread().name == "driver":
                    self._waited_for_journal += waited

        return timed

    def _executor(self, name: str) -> Executor:
        edges = Edges(self._bucket, self._brokers, self._ingress)
        self.windows.append(edges.window)

        def work(slices: list[Slice], attempt: int) -> list[Receipt]:
            if attempt:
                return [died(work) for work in slices]
            threads = self.setup.lanes[slices[0].id.lane].threads
            public = Public(PulsarSettings(application=f"{name}-{id(slices)}"), StoreSettings(""), ())
            settings = WorkerSettings(public, None, threads)
            reached = (public, None, settings.wrapper, settings.stock)
            tasks._open[reached] = (cast("EntrySources", _Only(edges.source)), edges.store)
            try:
                return list(tasks.run_slices(slices, settings))
            finally:
                tasks._open.pop(reached, None)

        return Executor(Process(f"{self.process.name}-{name}"), self.setup.slots, work)

    def _planned(self, plan: Plan) -> None:
        assert self.context is not None
        now = self.context.clock_ms()
        topics = ",".join(str(s.id.topic) for s in plan.slices)
        self._scheduler.log(f"{self.process.name} plan {plan.number} {plan.lane}: {topics}")
        for work in plan.slices:
            failure = self.context.state(work.id.topic).failure_of(work.id.uuid)
            if failure is not None:
                self.seen.pace.failed(work.id.topic, failure.retry_at)
            self.seen.pace.planned(work.id.topic, now)

    def _query(self, lane: Lane) -> None:
        """Spark's stream execution thread of a lane. One that dies is started again, and runs the same plan again."""
        assert self.spark is not None
        assert self.driver is not None
        after = 0
        while not self._stop.is_set():
            plan = self.plans.newer(lane, after, 5.0)
            if plan is None:
                continue
            try:
                receipts = self.spark.run_job(plan.tasks)
            except JobFailedError:
                self._scheduler.log(f"{self.process.name} query of the {lane} lane died")
                after = 0
                continue
            if receipts and lane is Lane.FAST:
                self.seen.pace.batch(max(r.elapsed_ms for r in receipts))
            self.driver.journal_receipts(lane, receipts)


class _Only:
    """One source for every slice."""

    def __init__(self, source: WorldSource) -> None:
        self._source = source

    def of(self, work: Slice) -> WorldSource:
        return self._source
