"""One shard that a process runs: its journal, its driver, and Spark's queries for it. A process runs its own, and
others as long as theirs do not."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache, partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from offloader.bridge.driver.feature import BridgeFeature
from offloader.bridge.driver.parts import BridgeReach
from offloader.bridge.driver.spark import PieceJobs
from offloader.config import Config
from offloader.lifecycle.clocks import Clocks
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import CALLS_OF_A_WAIT, Journal
from offloader.metrics import Metrics
from offloader.model import Lane
from offloader.offload import settings as derived
from offloader.offload.core.rates import RateLimits
from offloader.offload.driver.context import Context
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.lane_plans import LanePlans
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.topic_copies import CursorCopying, FactsCopying, TopicCopying
from offloader.offload.driver.work import Pool, Work
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.offload.lifecycle_thread import LifecycleThread
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.executor import worker_function
from offloader.offload.spark.plan_server import PlanServer
from offloader.offload.spark.supervised import SupervisedQuery
from offloader.offload.worker.entry_sources import Wrapper
from offloader.offload.worker.secrets import Public
from offloader.offload.worker.tasks import WorkerSettings
from offloader.pulsar.pin import BrokerPins
from offloader.runtime.connections import Runtime, bookkeeper_settings, pulsar_settings
from offloader.runtime.deletion import names_of, stored_topics

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reached:
    """What all shards of a process share. `runtime`: lends its store and its admin client. `agrees`: whether the shard
    of a name lives, and deals as we do. `clocks`: what ages are computed with. `workers`: what tests wrap around what
    executors reach."""

    runtime: Runtime
    cluster: str
    session: SparkSession
    slots: spark_side.Slots
    pieces: PieceJobs
    public: Public
    checkpoint: str
    clock_ms: Callable[[], int]
    workers: Wrapper
    agrees: Callable[[str], bool]
    clocks: Clocks
    until_caught_up: bool = False


class Seat:
    """`config`: that of the shard. `failed`: hears of what ended its driver, or what it does beside."""

    def __init__(
        self, config: Config, reached: Reached, metrics: Metrics, failed: Callable[[BaseException], None]
    ) -> None:
        self.config = config
        self.driver: Driver | None = None
        self.passing_on: PassingOn | None = None
        self._reached = reached
        self._metrics = metrics
        self._failed = failed

    def open(self, stack: ExitStack) -> Driver:
        """Take the journal, and begin. Whatever ran the shard before meets a fence. `stack`: gets what ends it."""
        runtime = self._reached.runtime.child(self.config)
        driver = self._build_driver(stack, runtime)
        lifecycle = self._build_lifecycle(stack, runtime, driver.context.journal)
        self.driver = driver
        thread = threading.Thread(target=self._drive, args=(driver,), name="driver")
        thread.start()
        stack.callback(thread.join)
        stack.callback(driver.stop)
        if lifecycle is not None:
            lifecycle.start()
        return driver

    def rounds(self) -> int:
        """How often the driver's loop has turned."""
        return 0 if self.driver is None else self.driver.turns

    def queries(self, driver: Driver) -> dict[Lane, SupervisedQuery]:
        """Spark's query for each lane, begun."""
        return {
            lane: SupervisedQuery(partial(self._start_query, driver, lane), partial(driver.batches_since_restart, lane))
            for lane in Lane
        }

    def _start_query(self, driver: Driver, lane: Lane) -> StreamingQuery:
        config, reached = self.config, self._reached
        folder = f"{reached.checkpoint}/{new_uuid()}"
        threads = driver.plans.limits[lane].threads
        stock = config.lifecycle.stock_bucket
        workers = WorkerSettings(reached.public, bookkeeper_settings(config), threads, reached.workers, stock)
        work, commit = worker_function(workers), partial(driver.journal_receipts, lane)
        wait = config.spark.trigger_ms / 1000
        return spark_side.start_query(reached.session, driver.plans.server, lane, work, commit, folder, wait)

    def _build_driver(self, stack: ExitStack, runtime: Runtime) -> Driver:
        config, reached, metrics, store = self.config, self._reached, self._metrics, runtime.store
        waiting = partial(metrics.health.waiting, "journal", CALLS_OF_A_WAIT * store.longest_call)
        journal = stack.enter_context(Journal.open(store, config.application, new_uuid, metrics.journaled, waiting))
        stack.callback(runtime.close)  # before the journal is closed
        pins = runtime.closing(BrokerPins(pulsar_settings(config), check_journal=journal.check_from_beside))
        pools = {kind: Pool(threads, kind) for kind, threads in derived.threads(config).items()}
        for pool in pools.values():
            stack.callback(pool.shutdown)
        context = Context(
            application=config.application,
            cluster=reached.cluster,
            subscription=config.pulsar.subscription,
            store=store,
            journal=journal,
            catalogs=Catalogs(store, config.application),
            admin=runtime.admin,
            pins=pins,
            source=runtime.source,
            policies=config.policies,
            metrics=metrics,
            work=Work(pools, reached.clock_ms),
            clock_ms=reached.clock_ms,
            new_uuid=new_uuid,
            jitter=random.random,
            stock=runtime.stock_bucket if config.lifecycle.stock_bucket else None,
            deal=derived.deal(config),
        )
        rates = RateLimits()
        registry = TopicRegistry(
            context, rates, config.discovery_interval_ms, config.namespaces, until_caught_up=reached.until_caught_up
        )
        server = stack.enter_context(closing(PlanServer(run=new_uuid())))
        plans = LanePlans(context, registry, server, derived.lanes(config, reached.slots.number), rates)
        lifecycle = config.lifecycle
        reach = BridgeReach(runtime, reached.pieces, reached.cluster)
        grace, interval = lifecycle.archive_grace_ms, lifecycle.deletion_interval_ms
        retaining = Retaining(context, grace, interval, reached.clocks)
        bridging = BridgeFeature(context, config.bridge, reach.parts(new_uuid), urgent=reached.until_caught_up)
        requests = RequestHandler(context, config.spark.trigger_ms, retaining, bridging)
        copying = copying_of(context, runtime)
        # Also where there are no others (any more): what the journal says to be on its way has to arrive.
        self.passing_on = PassingOn(context, registry, reached.agrees, requests.is_asked)
        return Driver(
            context, registry, plans, requests, retaining, [bridging], config.spark.trigger_ms, copying, self.passing_on
        )

    def _build_lifecycle(self, stack: ExitStack, runtime: Runtime, journal: Journal) -> LifecycleThread | None:
        """What is done once for the whole cluster, shard 0 does, whoever runs that. None where nothing of it is
        switched on."""
        if derived.deal(self.config).index != 0:
            return None
        reached = self._reached
        parts = LifecycleParts(runtime, journal, self._metrics, reached.cluster, reached.clocks)
        tasks = lifecycle_tasks(parts, lambda: thread.stopping, stack)
        if not tasks:
            return None
        thread = LifecycleThread(tasks, self._failed)
        stack.callback(thread.stop)
        return thread

    def _drive(self, driver: Driver) -> None:
        try:
            driver.run()
        except BaseException as error:  # noqa: BLE001 (handed to whoever runs the shard)
            self._failed(error)


def new_uuid() -> str:
    """A random one."""
    return str(uuid.uuid4())


def copying_of(context: Context, runtime: Runtime) -> tuple[TopicCopying, ...]:
    """What is copied of topics besides their entries: schemas of every topic; subscriptions where a policy says so."""
    facts = FactsCopying(context, runtime.statistics)
    if not context.policies.any_says("archive_cursors"):
        return (facts,)
    # Opened by the first look: the application starts, and copies nothing yet, where it cannot be reached.
    stored = cache(partial(stored_topics, runtime)) if runtime.has_bookkeeper else None
    return facts, CursorCopying(context, LiveCursors(runtime.statistics, stored, cache(partial(names_of, runtime))))
