"""The Spark side of the application: the session, and the query whose three stages are visible in one line each."""

from __future__ import annotations

import os
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from offloader.config.running import Spark
from offloader.java import find_java
from offloader.model import Receipt
from offloader.streaming import datasource
from offloader.streaming.plan_server import PlanServer
from offloader.streaming.tasks import RECEIPT_SCHEMA, WorkerSettings, worker_function

TASK_ATTEMPTS = 4
PACKAGE = "org.apache.spark.sql.execution.streaming.checkpointing"

# Every setting that differs from Spark's own default, and why.
SETTINGS = {
    "spark.task.maxFailures": str(TASK_ATTEMPTS),  # a task that dies is tried again, and then only says so
    "spark.speculation": "false",  # two attempts at once would upload the same parts twice
    # Stopping a query overflows the default stack (Spark 4.3.0). The JVM only passes plans and receipts on: compiling them well costs
    # more than it gains. Measured with the quick compiler alone: half the CPU, half the time to start and of each batch.
    "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.python.worker.reuse": "true",
    # The checkpoint is local and thrown away at each start: a plain rename is enough.
    "spark.sql.streaming.checkpointFileManagerClass": f"{PACKAGE}.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def master_with_attempts(master: str) -> str:
    """`local[N]` allows one attempt a task; `local[N,4]` allows four."""
    return re.sub(r"^local\[(\d+|\*)\]$", rf"local[\1,{TASK_ATTEMPTS}]", "local[1]" if master == "local" else master)


def cores(master: str) -> int:
    """How many tasks run at once with a local master; 2 where the cluster decides."""
    match = re.match(r"local\[(\d+|\*)", master)
    if match is None:
        return 1 if master == "local" else 2
    return (os.cpu_count() or 1) if match.group(1) == "*" else int(match.group(1))


def session(settings: Spark, application: str) -> SparkSession:
    """The application's Spark session. Raises FatalError where Java is missing or wrong."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master_with_attempts(settings.master)).appName(f"offloader {application}")
    options = SETTINGS | settings.conf
    if not settings.master.startswith("local"):
        options = {k: v for k, v in options.items() if not k.startswith("spark.driver.")} | settings.conf
    for key, value in options.items():
        builder = builder.config(key, value)
    with _own_interrupt_handler():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    spark.dataSource.register(datasource.PlanSource)
    return spark


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
    workers: WorkerSettings,
    commit: Callable[[list[Receipt]], None],
    checkpoint: str,
    wait_seconds: float,
) -> StreamingQuery:
    """planner -> worker -> committer. `commit` is called with each batch's receipts, once per batch."""
    address = plans.address
    slices = (
        spark.readStream.format(datasource.FORMAT)
        .option("host", address.host)
        .option("port", str(address.port))
        .option("key", address.key.hex())
        .option("run", plans.run)
        .option("wait", str(wait_seconds))
        .load()
    )
    receipts = slices.mapInArrow(worker_function(workers), RECEIPT_SCHEMA)
    return (
        receipts.writeStream.foreachBatch(_committer(commit))
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )


def _committer(commit: Callable[[list[Receipt]], None]) -> Callable[[DataFrame, int], None]:
    def committer(batch: DataFrame, number: int) -> None:  # noqa: ARG001 (Spark's signature)
        rows = batch.collect()  # the one action of this batch
        commit([pickle.loads(row.receipt) for row in rows])  # noqa: S301 (our own workers')

    return committer
