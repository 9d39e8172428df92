"""The Spark side of the application: the session, and each lane's query in three stages."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from offloader import spark_python
from offloader.config.running import Spark
from offloader.java import check_user, find_java
from offloader.model import Lane, Receipt
from offloader.offload.spark import plan_source
from offloader.offload.spark.executor import SCHEMA, receipt_of
from offloader.offload.spark.plan_server import PlanServer

log = logging.getLogger(__name__)

TASK_ATTEMPTS = 4
COUNT_SLOTS_EVERY = 5.0  # seconds
PYTHON_DAEMON = "offloader.offload.spark.python_daemon"
_LOCAL = re.compile(r"local(?:\[(?P<cores>[0-9]+|\*)(?:\s*,\s*(?P<attempts>[0-9]+))?\])?")
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing"

# Every setting that differs from Spark's own default, and why.
SETTINGS = {
    "spark.task.maxFailures": str(TASK_ATTEMPTS),  # a task that dies is tried again, and then only says so
    "spark.speculation": "false",  # two attempts at once would upload the same parts twice
    # Stopping a query overflows the default stack (Spark 4.3.0). The JVM only passes plans and receipts on: compiling
    # them well costs more than it gains. Measured with the quick compiler alone: half the CPU, half the time to start
    # and of each batch.
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.python.worker.reuse": "true",
    # The checkpoint is local and thrown away at each start: a plain rename is enough.
    "spark.sql.streaming.checkpointFileManagerClass": f"{CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def master_with_attempts(master: str) -> str:
    """`local[N]` becomes `local[N+1,4]`: one more slot, for the slow lane, which mostly waits; four attempts a task."""
    local = _LOCAL.fullmatch(master)
    if local is None:
        return master
    cores = (os.cpu_count() or 1) if local["cores"] == "*" else int(local["cores"] or 1)
    return f"local[{cores + 1},{local['attempts'] or TASK_ATTEMPTS}]"


class Slots:
    """How many tasks Spark runs at once: a cluster's executors come and go."""

    def __init__(self, spark: SparkSession, clock: Callable[[], float] = time.monotonic) -> None:
        self._context = spark.sparkContext._jsc.sc()  # noqa: SLF001 (PySpark has no name of its own for it)
        self._clock = clock
        self.number = self._count()

    def changed(self) -> bool:
        """Whether there are more or fewer of them; asked for every few seconds at most."""
        if self._clock() - self._counted_at < COUNT_SLOTS_EVERY:
            return False
        before = self.number
        with suppress(Py4JError, ConnectionError):  # the JVM may be gone: whoever watches the queries says so
            self.number = self._count()
        return self.number != before

    def _count(self) -> int:
        self._counted_at = self._clock()
        profile = self._context.resourceProfileManager().defaultResourceProfile()
        return int(self._context.maxNumConcurrentTasks(profile))


def session(settings: Spark, application: str) -> SparkSession:
    """The application's Spark session. Raises FatalError where Java is missing or wrong, or would not start."""
    java = find_java()
    check_user()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _executors_python(settings)
    builder = SparkSession.builder.master(master_with_attempts(settings.master)).appName(f"offloader {application}")
    options = SETTINGS | ({"spark.python.daemon.module": PYTHON_DAEMON} if is_local(settings.master) else {})
    if not settings.master.startswith("local"):
        options = {k: v for k, v in options.items() if not k.startswith("spark.driver.")}
    options |= settings.conf
    for key, value in options.items():
        builder = builder.config(key, value)
    with _own_interrupt_handler():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    cloudpickle.register_pickle_by_value(plan_source)  # type: ignore[no-untyped-call]
    spark.dataSource.register(plan_source.PlanSource)
    return spark


def is_local(master: str) -> bool:
    """Whether executors run in our own JVM, so that their environment is ours."""
    return _LOCAL.fullmatch(master) is not None


def _executors_python(settings: Spark) -> str:
    """On a cluster it may be another path than ours: `spark.pyspark.python`, or Spark's variable."""
    if is_local(settings.master):
        return spark_python.beside()
    return settings.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """PySpark puts a handler of its own on Ctrl-C, which would end us in mid-batch: ours comes back."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def start_query(
    spark: SparkSession,
    plans: PlanServer,
    lane: Lane,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    commit: Callable[[list[Receipt]], None],
    checkpoint: str,
    wait_seconds: float,
) -> StreamingQuery:
    """planner -> worker -> committer, for one lane. `commit` is called with each batch's receipts, once per batch."""
    address = f"{checkpoint}-plans"
    plans.address.write(address)
    slices = (
        spark.readStream.format(plan_source.FORMAT)
        .option("plans", address)
        .option("run", plans.run)
        .option("lane", lane)
        .option("wait", str(wait_seconds))
        .load()
    )
    receipts = slices.mapInArrow(work, SCHEMA)
    return (
        receipts.writeStream.foreachBatch(_committer(commit))
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )


def _committer(commit: Callable[[list[Receipt]], None]) -> Callable[[DataFrame, int], None]:
    told: set[str] = set()  # once for each machine: their topics' failures are logged each time

    def committer(batch: DataFrame, number: int) -> None:  # noqa: ARG001 (Spark's signature)
        rows = batch.collect()  # the one action of this batch
        for unfit in sorted({row.unfit for row in rows if row.unfit} - told):
            log.warning("an executor cannot run slices: %s", unfit, extra={"see": "executor-unfit"})
            told.add(unfit)
        commit([receipt_of(row.receipt, row.slice, row.unfit) for row in rows])

    return committer
