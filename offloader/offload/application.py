"""`offloader run`: builds everything, runs the driver's thread beside Spark's query, stops cleanly."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offloader.bookkeeper.connect import check_installed, instance_id
from offloader.bridge.driver.spark import PieceJobs
from offloader.config import Config
from offloader.errors import AuthorizationFailedError, ConfigError, OvertakenError
from offloader.metadata.heartbeats import Heartbeats
from offloader.metadata.root import open_root
from offloader.metrics import Metrics
from offloader.metrics.health import LONGEST_START, START
from offloader.offload import settings as derived
from offloader.offload.caught_up import CaughtUp, CaughtUpState
from offloader.offload.driver.context import SteadyClock
from offloader.offload.driver.driver import Driver
from offloader.offload.fleet import Fleet
from offloader.offload.live.page import Running, site
from offloader.offload.live.view import LiveView
from offloader.offload.seat import Reached, Seat, new_uuid
from offloader.offload.spark import session as spark_side
from offloader.offload.spark.supervised import SupervisedQuery
from offloader.offload.standing_in import StandingIn
from offloader.offload.worker.entry_sources import UNWRAPPED, Wrapper
from offloader.offload.worker.secrets import without_secrets
from offloader.pages.access import PageAccess
from offloader.pages.site import Site
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.exactness import EXPOSING, check_exactness
from offloader.runtime.connections import Dependencies, Runtime, bookkeeper_settings, pulsar_settings
from offloader.storage.metered import MeteredStore
from offloader.version import installed

log = logging.getLogger(__name__)

WATCH_EVERY = 0.2  # seconds between looks at the query and the driver
LOOK_AGAIN = 10.0  # seconds between looks at whether our shard may come back


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
        dependencies: Dependencies | None = None,
    ) -> None:
        self.config = config
        self._dependencies = dependencies
        self._wrapper = wrapper
        self._workers = workers
        self._until_caught_up = until_caught_up
        self._timeout = timeout
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._clock_ms = SteadyClock()
        self.driver: Driver | None = None
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
            runtime = stack.enter_context(Runtime(self.config, self._dependencies))
            metrics, cluster = self._reach(runtime, stack)
            public, secrets = without_secrets(pulsar_settings(self.config), runtime.storage)
            if spark_side.is_local(self.config.spark.master):
                os.environ.update(secrets)  # before the JVM starts: its Python processes inherit it
            session = spark_side.session(self.config.spark, self.config.application)
            stack.callback(_quietly(session.stop))
            checkpoint = stack.enter_context(_checkpoint(self.config.spark.checkpoint))
            slots = spark_side.Slots(session)
            fleet = self._fleet(runtime.store)
            reached = Reached(
                runtime=runtime,
                cluster=cluster,
                session=session,
                slots=slots,
                pieces=PieceJobs(session, public, slots.number),
                public=public,
                checkpoint=checkpoint,
                clock_ms=self._clock_ms,
                workers=self._workers,
                agrees=_nobody if fleet is None else fleet.agrees,
                clocks=derived.clocks(runtime),
                until_caught_up=self._until_caught_up,
            )
            if fleet is not None and not self._may_return(fleet, metrics):
                return 0
            # Only now, when nothing of ours can be missing any more: this ends the process that has the journal.
            seat = Seat(self.config, reached, metrics, self._fail)
            with metrics.health.waiting(START, LONGEST_START):  # a shard may have waited for its turn before
                self.driver = driver = seat.open(stack)
            if fleet is not None:
                fleet.joins(fleet.deal.index, seat.rounds)
                standing_in = StandingIn(self.config, reached, metrics, fleet)
                stack.callback(standing_in.stop)
                standing_in.start()
            outcome = self._watch(seat, driver, reached)
        if self._failure is not None:
            raise self._told(self._failure)
        return outcome

    def _fleet(self, store: ObjectStore) -> Fleet | None:
        """The shards of the application; None: there are none, or each runs up to the ends that its topics have."""
        shards = self.config.shards
        if shards is None or self._until_caught_up:
            return None
        deal = derived.deal(self.config)
        heartbeats = Heartbeats(store, deal.application)
        return Fleet(heartbeats, deal, shards.take_over_after_ms, self._clock_ms, new_uuid())

    def _may_return(self, fleet: Fleet, metrics: Metrics) -> bool:
        """Wait until our shard may come back to us. False: we are to stop."""
        while not fleet.may_return():
            metrics.health.tick()
            if self._stop.wait(min(fleet.look_ms / 1000, LOOK_AGAIN)):
                return False
        return True

    def _told(self, failure: BaseException) -> BaseException:
        """The failure, as its reader is to act on it."""
        if isinstance(failure, OvertakenError) and self.config.shards is not None:
            index = derived.deal(self.config).index
            return OvertakenError(
                f"shard {index} is run by another process now: it was started a second time, or had shown no sign of "
                "life and another shard runs it; started again, it takes its topics back"
            )
        return failure

    def _reach(self, runtime: Runtime, stack: ExitStack) -> tuple[Metrics, str]:
        """What can be refused without harm to a process of the same name that is at work."""
        bookies = bookkeeper_settings(self.config)
        if bookies is not None:
            check_installed()
        _check_brokers(runtime.admin, vouched=self.config.pulsar.entries_are_exact)
        metrics = stack.enter_context(closing(Metrics.start(self.config.metrics, self._site)))
        if metrics.server is not None:
            log.info("how it stands is shown at %s/", metrics.server.url)
        runtime.store = MeteredStore(self._wrapper.store(runtime.store), metrics.store_request)
        bookkeeper = "" if bookies is None else instance_id(bookies)
        root = open_root(runtime.store, runtime.admin.cluster(), runtime.dependencies.new_token, bookkeeper=bookkeeper)
        return metrics, root.cluster

    def _site(self, metrics: Metrics) -> Site:
        """The page beside the metrics."""
        token = self.config.metrics.page_token
        access = PageAccess(token.get_secret_value() if token is not None else "")
        name, clock = self.config.application, self._clock_ms
        return site(Running(name, installed(), metrics, self._view, self._ending, clock), access)

    def _view(self) -> LiveView | None:
        return self.driver.view if self.driver is not None else None

    def _ending(self) -> str:
        """Why it stops; empty: it does not."""
        if self._failure is not None:
            return f"It ends: {self._failure}"
        return "It stops, as asked, after the present batch." if self._stop.is_set() else ""

    def _fail(self, error: BaseException) -> None:
        """End with this error, unless another one was first."""
        self._failure = self._failure or error
        self._stop.set()
        if self.driver is not None:
            self.driver.stop()

    def _watch(self, seat: Seat, driver: Driver, reached: Reached) -> int:
        """Keep each lane's query running until it is time to stop. Returns the exit code."""
        caught_up = CaughtUp(driver, self._clock_ms(), self._timeout) if self._until_caught_up else None
        queries = seat.queries(driver)
        self.ready.set()
        code = 0
        while not self._stop.wait(WATCH_EVERY):
            for query in queries.values():
                query.keep_running()
            if reached.slots.changed():
                driver.plans.limits = derived.lanes(self.config, reached.slots.number)
            outcome = caught_up.look(self._clock_ms()) if caught_up else CaughtUpState.NOT_YET
            if caught_up and outcome is not CaughtUpState.NOT_YET:
                self.unfinished = caught_up.unfinished()
                code = 0 if outcome is CaughtUpState.CAUGHT_UP else 2
                break
        self._end(driver, queries.values(), reached.session)
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


def _nobody(_: str) -> bool:
    """There are no other shards, or we pass nothing on to them."""
    return False


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


def _check_brokers(admin: Admin, *, vouched: bool) -> None:
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
