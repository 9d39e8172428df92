"""`offloader run`: builds everything, runs the driver's thread beside Spark's query, stops cleanly."""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from offloader.bookkeeper.connect import check_installed
from offloader.config import Config
from offloader.errors import AuthorizationFailedError, ConfigError
from offloader.lifecycle.ledgers.stock_copies import stock_store
from offloader.lifecycle.retention.handing_over import HandingOver
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.catalog import Catalogs
from offloader.metadata.journal import CALLS_OF_A_WAIT, Journal
from offloader.metadata.root import open_root
from offloader.metrics import Metrics
from offloader.model import Lane
from offloader.offload import settings as derived
from offloader.offload.bridge_parts import BridgeReach
from offloader.offload.caught_up import CaughtUp, CaughtUpState
from offloader.offload.copying import copying_of
from offloader.offload.core.rates import RateLimits
from offloader.offload.driver.bridging import Bridging
from offloader.offload.driver.context import Context, SteadyClock
from offloader.offload.driver.driver import Driver
from offloader.offload.driver.lane_plans import LanePlans
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.driver.retaining import Retaining
from offloader.offload.driver.work import Pool, Work
from offloader.offload.lifecycle_tasks import LifecycleParts, lifecycle_tasks
from offloader.offload.lifecycle_thread import LifecycleThread
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.executor import worker_function
from offloader.offload.spark.piece_jobs import PieceJobs
from offloader.offload.spark.plan_server import PlanServer
from offloader.offload.spark.supervised import SupervisedQuery
from offloader.offload.worker.entry_sources import UNWRAPPED, Wrapper
from offloader.offload.worker.secrets import Public, without_secrets
from offloader.offload.worker.tasks import WorkerSettings
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.exactness import EXPOSING, check_exactness
from offloader.pulsar.pin import BrokerPins
from offloader.storage.buckets import Buckets
from offloader.storage.metered import MeteredStore
from offloader.storage.open import open_store

log = logging.getLogger(__name__)

WATCH_EVERY = 0.2  # seconds between looks at the query and the driver


class Application:
    """One run of the application. Tests wrap what it reaches (`wrapper`), and what its workers reach (`workers`)."""

    def __init__(
        self,
        config: Config,
        *,
        until_caught_up: bool = False,
        timeout: float | None = None,
        wrapper: Wrapper = UNWRAPPED,
        workers: Wrapper = UNWRAPPED,
    ) -> None:
        self.config = config
        self._wrapper = wrapper
        self._workers = workers
        self._until_caught_up = until_caught_up
        self._timeout = timeout
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._clock_ms = SteadyClock()
        self.driver: Driver | None = None
        self._lifecycle: LifecycleThread | None = None
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.unfinished: list[str] = []

    def stop(self) -> None:
        """Ask `run` to end after the present batch."""
        self._stop.set()

    def run(self) -> int:
        """Until stopped: 0; until caught up: 0, or 2 when `unfinished` names topics. Raises OffloadError."""
        with ExitStack() as stack:
            stack.callback(self.ended.set)
            edges = self._reach(stack)
            public, secrets = without_secrets(derived.pulsar(self.config), derived.store(self.config))
            if spark_side.is_local(self.config.spark.master):
                os.environ.update(secrets)  # before the JVM starts: its Python processes inherit it
            session = spark_side.session(self.config.spark, self.config.application)
            stack.callback(_quietly(session.stop))
            checkpoint = stack.enter_context(_checkpoint(self.config.spark.checkpoint))
            # Only now, when nothing of ours can be missing any more: this ends the process that has the journal.
            slots = spark_side.Slots(session)
            workers = PieceJobs(session, public, slots.number)
            driver = self._build_driver(stack, workers, slots.number, *edges)
            self.driver = driver
            thread = threading.Thread(target=self._drive, args=(driver,), name="driver")
            thread.start()
            stack.callback(thread.join)
            stack.callback(driver.stop)
            if self._lifecycle is not None:
                self._lifecycle.start()
            outcome = self._watch(driver, session, slots, checkpoint, public)
        if self._failure is not None:
            raise self._failure
        return outcome

    def _reach(self, stack: ExitStack) -> tuple[AdminClient, Metrics, ObjectStore, str]:
        """What can be refused without harm to a process of the same name that is at work."""
        config = self.config
        if derived.bookkeeper(config) is not None:
            check_installed()
        admin = stack.enter_context(closing(AdminClient(derived.pulsar(config))))
        _check_brokers(admin, vouched=config.pulsar.entries_are_exact)
        metrics = stack.enter_context(closing(Metrics.start(config.metrics)))
        store = MeteredStore(self._wrapper.store(open_store(derived.store(config))), metrics.store_request)
        stack.callback(store.close)
        root = open_root(store, admin.cluster(), _new_uuid)
        return admin, metrics, store, root.cluster

    def _build_driver(
        self,
        stack: ExitStack,
        workers: PieceJobs,
        slots: int,
        admin: AdminClient,
        metrics: Metrics,
        store: ObjectStore,
        cluster: str,
    ) -> Driver:
        config = self.config
        waiting = partial(metrics.health.waiting, "journal", CALLS_OF_A_WAIT * store.longest_call)
        journal = stack.enter_context(Journal.open(store, config.application, _new_uuid, metrics.journaled, waiting))
        self._lifecycle = self._build_lifecycle(stack, LifecycleParts(config, admin, store, journal, metrics, cluster))
        pins = stack.enter_context(closing(BrokerPins(derived.pulsar(config))))
        source = stack.enter_context(closing(BrokerSource(derived.pulsar(config))))
        pools = {kind: Pool(threads, kind) for kind, threads in derived.threads(config).items()}
        for pool in pools.values():
            stack.callback(pool.shutdown)
        context = Context(
            application=config.application,
            cluster=cluster,
            subscription=config.pulsar.subscription,
            store=store,
            journal=journal,
            catalogs=Catalogs(store, config.application),
            admin=admin,
            pins=pins,
            source=source,
            policies=config.policies,
            metrics=metrics,
            work=Work(pools, self._clock_ms),
            clock_ms=self._clock_ms,
            new_uuid=_new_uuid,
            jitter=random.random,
            stock=self._stock(stack),
            deal=derived.deal(config),
        )
        rates = RateLimits()
        registry = TopicRegistry(
            context, rates, config.discovery_interval_ms, config.namespaces, until_caught_up=self._until_caught_up
        )
        server = stack.enter_context(closing(PlanServer(run=_new_uuid())))
        plans = LanePlans(context, registry, server, derived.lanes(config, slots), rates)
        lifecycle = config.lifecycle
        reach = BridgeReach(config, admin, store, source, workers, cluster, stack)
        handing_over = None
        if not config.bridge.keep_segments:
            buckets = stack.enter_context(closing(Buckets(derived.store(config))))
            handing_over = HandingOver(
                BridgeReader(store), buckets.open, lambda topic: admin.topic_info(topic).ledgers, reach.own_copies
            )
        retaining = Retaining(context, lifecycle.archive_grace_ms, lifecycle.deletion_interval_ms, handing_over)
        bridging = Bridging(context, config.bridge, reach.parts(_new_uuid), urgent=self._until_caught_up)
        requests = RequestHandler(context, config.spark.trigger_ms, retaining, bridging)
        copying = copying_of(context, config, stack)
        return Driver(context, registry, plans, requests, retaining, bridging, config.spark.trigger_ms, copying)

    def _stock(self, stack: ExitStack) -> ObjectStore | None:
        """The bucket of Pulsar's own offloader, where the configuration names it."""
        bucket = self.config.lifecycle.stock_bucket
        if not bucket:
            return None
        return stack.enter_context(closing(open_store(stock_store(bucket, derived.store(self.config)), read_only=True)))

    def _build_lifecycle(self, stack: ExitStack, parts: LifecycleParts) -> LifecycleThread | None:
        """None where nothing of it is switched on."""
        tasks = lifecycle_tasks(parts, lambda: thread.stopping, stack)
        if not tasks:
            return None
        thread = LifecycleThread(tasks, self._fail)
        stack.callback(thread.stop)
        return thread

    def _drive(self, driver: Driver) -> None:
        try:
            driver.run()
        except BaseException as error:  # noqa: BLE001 (handed to the main thread, which raises it)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End with this error, unless another one was first."""
        self._failure = self._failure or error
        self._stop.set()
        if self.driver is not None:
            self.driver.stop()

    def _watch(
        self, driver: Driver, session: SparkSession, slots: spark_side.Slots, checkpoint: str, public: Public
    ) -> int:
        """Keep each lane's query running until it is time to stop. Returns the exit code."""
        config = self.config
        wait = config.spark.trigger_ms / 1000
        caught_up = CaughtUp(driver, self._clock_ms(), self._timeout) if self._until_caught_up else None

        def start(lane: Lane) -> StreamingQuery:
            folder = f"{checkpoint}/{_new_uuid()}"
            threads = driver.plans.limits[lane].threads
            stock = config.lifecycle.stock_bucket
            workers = WorkerSettings(public, derived.bookkeeper(config), threads, self._workers, stock)
            work, commit = worker_function(workers), partial(driver.journal_receipts, lane)
            return spark_side.start_query(session, driver.plans.server, lane, work, commit, folder, wait)

        queries = {
            lane: SupervisedQuery(partial(start, lane), partial(driver.batches_since_restart, lane)) for lane in Lane
        }
        self.ready.set()
        code = 0
        while not self._stop.wait(WATCH_EVERY):
            for query in queries.values():
                query.keep_running()
            if slots.changed():
                driver.plans.limits = derived.lanes(config, slots.number)
            outcome = caught_up.look(self._clock_ms()) if caught_up else CaughtUpState.NOT_YET
            if caught_up and outcome is not CaughtUpState.NOT_YET:
                self.unfinished = caught_up.unfinished()
                code = 0 if outcome is CaughtUpState.CAUGHT_UP else 2
                break
        self._end(driver, queries.values(), session)
        return code

    def _end(self, driver: Driver, queries: Iterable[SupervisedQuery], session: SparkSession) -> None:
        """Stop between batches if that is possible soon: Spark then ends without a stack trace."""
        driver.plans.drain(timeout=self.config.limits.slice.time_budget_ms / 1000 + 10)
        driver.stop()
        driver.plans.server.close()
        # Spark warns of jobs that it means to cancel and that are done.
        _quietly(lambda: session.sparkContext.setLogLevel("ERROR"))()
        for query in queries:
            query.stop()


def _quietly(action: Callable[[], object]) -> Callable[[], None]:
    """The action; an error of Spark's while it shuts down is logged, not raised over what really happened."""

    def run() -> None:
        try:
            action()
        except (PySparkException, Py4JError, ConnectionError) as error:
            log.debug("while stopping Spark: %s", error)

    return run


@contextmanager
def _checkpoint(folder: str | None) -> Iterator[str]:
    """A new, empty, local folder: the journal is the authority, Spark's checkpoint is not."""
    try:
        path = tempfile.mkdtemp(prefix="offloader-checkpoint-", dir=folder)
    except OSError as error:
        where = folder or "the temporary folder"
        raise ConfigError(
            f"spark.checkpoint: {where}: no folder can be made there ({error.strerror}); create it, or name another"
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def stop_on_signals(application: Application) -> Iterator[None]:
    """SIGTERM and SIGINT stop the application cleanly; a second one is left to Python."""

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (Python's signature)
        signal.signal(number, signal.SIG_DFL)
        application.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_brokers(admin: AdminClient, *, vouched: bool) -> None:
    try:
        configuration = admin.runtime_configuration()
    except AuthorizationFailedError as error:
        if vouched:
            return
        raise AuthorizationFailedError(
            f"whether brokers deliver entries byte for byte cannot be asked ({error}): use a super user's role, or "
            f"make sure of {EXPOSING}=true in broker.conf and set pulsar.entriesAreExact: true"
        ) from error
    check_exactness(configuration)


def _new_uuid() -> str:
    return str(uuid.uuid4())
