"""The application on a Spark standalone cluster: workers that are killed, that join, that lack our package; and what
Spark writes down."""

from __future__ import annotations

import itertools
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dev.embedded.standalone import PulsarStandalone
from integration.application import RunningApplication
from integration.produce import produce_mixed
from integration.spark import patiently, session
from integration.spark_cluster import SparkCluster, Worker
from integration.world import World, keep_everything
from offloader import spark_python
from offloader.model import TopicName
from offloader.offload.worker.secrets import AUTH_PARAMS
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

TOKEN = "token:eyJ-of-the-executors"
DRIVERS_TOKEN = "token:eyJ-of-the-driver"
# Nothing begins before both workers have their executors: the first of them could do everything alone.
TOGETHER = {
    "spark.cores.max": "4",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "1200s",
}
READING = {"spark.executor.memory": "512m", **TOGETHER}
BARE = "WITHOUT_THE_PACKAGE"
FIT_AT_LAST = 1_200.0  # seconds after which it hangs: topics that failed on unfit machines wait up to five minutes
KILLED_AGAIN = 60.0  # seconds after which it is taken for granted that the signal came between two tasks
SMALL = {
    "maxOffloadSegmentSizeInBytes": "2M", "maxOffloadSegmentRolloverTimeInSeconds": "10s", "partSizeInBytes": "200K",
    "blockSizeInBytes": "50K", "indexStepInBytes": "10K",
}  # fmt: skip
_names = itertools.count()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of executors: on a machine with `BARE` in its environment one that has PyArrow but not our package."""
    site = Path(pa.__file__).parents[1]
    path = tmp_path_factory.mktemp("python") / "python"
    bare = f"env PYTHONPATH={site} {getattr(sys, '_base_executable', sys.executable)} -S"
    path.write_text(f'#!/bin/sh\n[ -n "${BARE}" ] && exec {bare} "$@"\nexec {spark_python.beside()} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master without workers yet."""
    with SparkCluster(tmp_path / "spark") as cluster:
        yield cluster


@pytest.fixture
def world(pulsar: PulsarStandalone, cluster: SparkCluster, python: Path, tmp_path: Path) -> Iterator[World]:
    namespace = pulsar.create_namespace(f"public/spark-{next(_names)}")
    keep_everything(pulsar, namespace)
    storage = StoreSettings((tmp_path / "archive").as_uri())
    spark = {"master": cluster.master, "trigger": "500ms", "conf": settings(python, tmp_path)}
    with World(pulsar, storage, tmp_path / "world", [namespace], policies=SMALL, spark=spark) as world:
        yield world


def settings(python: Path, folder: Path) -> dict[str, Any]:
    """As an operator would write them, but for loopback and for what is small here."""
    events = folder / "events"
    events.mkdir()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.pyspark.python": str(python),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",  # or nothing could be found in it
        "spark.eventLog.dir": events.as_uri(),
    }


def produced(world: World, pulsar: PulsarStandalone, topics: int = 4, messages: int = 300) -> list[TopicName]:
    names = [TopicName.parse(f"{world.namespaces[0]}/orders-{number}") for number in range(topics)]
    for number, topic in enumerate(names):
        produce_mixed(pulsar.service_url, str(topic), seed=number, messages=messages, largest=100_000)
    world.see()
    return names


def test_topics_are_offloaded_and_read_back_by_two_workers_and_spark_writes_down_no_credential(
    world: World, cluster: SparkCluster, pulsar: PulsarStandalone, tmp_path: Path
) -> None:
    """The executors' token is their machines', and not the driver's."""
    workers = [cluster.add(**{AUTH_PARAMS: TOKEN}) for _ in range(2)]
    world.connection |= {"authPlugin": "token", "authParams": DRIVERS_TOKEN}
    world.spark["conf"] |= TOGETHER
    topics = produced(world, pulsar)
    application = world.catch_up(FIT_AT_LAST)
    truths = world.check(timeout=3.0)
    assert all(worker.tasks() for worker in workers)

    before = [worker.tasks() for worker in workers]
    options = {
        "root": world.storage.root,
        "namespace": world.namespaces[0],
        "format": "entries",
        "maxPartitionBytes": "500K",
    }
    with session("reading back", cluster.master, **READING) as spark:
        found = patiently(spark.read.format("pulsar-archive").options(**options).load)
        counts = {row["topic"]: row["count"] for row in patiently(found.groupBy("topic").count().collect)}
    assert counts == {str(topic): len(truths[topic].entries) for topic in topics}
    assert all(worker.tasks() > tasks for worker, tasks in zip(workers, before, strict=True))

    written = [path for folder in (tmp_path / "events", cluster.folder) for path in folder.rglob("*") if path.is_file()]
    assert any("events" in path.parts and b"MapInArrow" in path.read_bytes() for path in written)
    for path in [*written, application.log]:
        content = path.read_bytes()
        assert TOKEN.encode() not in content, path
        assert DRIVERS_TOKEN.encode() not in content, path


def test_executors_that_are_killed_in_the_middle_of_slices_lose_nothing(
    world: World, cluster: SparkCluster, pulsar: PulsarStandalone
) -> None:
    faults = [{"role": "worker", "source": "bytes_per_second", "topic": "", "value": 100_000}]
    workers = [cluster.add() for _ in range(2)]
    produced(world, pulsar)
    application = world.new_application(faults=faults).start().wait_ready()
    for worker in workers:
        kill_at_work(application, worker)
    application.until(world.at_rest, "at rest", FIT_AT_LAST)
    assert application.stop() == 0
    world.check(timeout=3.0)


def kill_at_work(application: RunningApplication, worker: Worker) -> None:
    """Kill its executors until a task is told to have died of it: one may end between our look and the signal."""
    before, again = deaths(application), 0.0

    def died() -> bool:
        nonlocal again
        if time.monotonic() > again and worker.busy() and worker.kill_executors():
            again = time.monotonic() + KILLED_AGAIN
        return deaths(application) > before

    application.until(died, "told that a task died", FIT_AT_LAST)


def deaths(application: RunningApplication) -> int:
    """Of how many slices it was told that their task died."""
    return sum("the task that read this slice died" in line for line in application.log_lines())


@pytest.mark.soak
def test_machines_that_lack_something_are_told_of_in_one_line_each_and_one_that_joins_does_their_work(
    world: World, cluster: SparkCluster, pulsar: PulsarStandalone
) -> None:
    world.connection |= {"authPlugin": "token", "authParams": DRIVERS_TOKEN}
    produced(world, pulsar, topics=2)
    lacking = [cluster.add(**{BARE: "yes", AUTH_PARAMS: TOKEN})]
    application = world.new_application().start().wait_ready()
    unfit = "an executor cannot run slices: "
    application.until(lambda: application.logged(unfit), "told of a machine without our package", FIT_AT_LAST)
    lacking.append(cluster.add())
    application.until(
        lambda: application.logged(f"environment has no {AUTH_PARAMS}"),
        "told of a machine without a credential",
        FIT_AT_LAST,
    )
    joined = cluster.add(**{AUTH_PARAMS: TOKEN})
    for worker in lacking:
        worker.end()  # Spark deals out tasks at random: topics that wait for minutes would meet these again and again
    application.until(joined.tasks, "using the worker that joined", FIT_AT_LAST)
    application.until(world.at_rest, "at rest", FIT_AT_LAST)
    assert application.stop() == 0
    said = {line.partition(unfit)[2] for line in application.log_lines() if f" WARNING session {unfit}" in line}
    assert len(said) == 1
    assert said.pop().endswith(": No module named 'offloader'; see docs/running.md#executor-unfit")
    world.check(timeout=3.0)
