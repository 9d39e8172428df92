"""`slots`: topics that are delivered at mixed speeds, offloaded by a Spark cluster's executors with 1, 2 and 4
slots."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Report
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster
from integration.spark_cluster import SparkCluster
from offloader.errors import FatalError
from offloader.model import KIB, MIB

SLOTS = (1, 2, 4)
THREADS = 2  # a task
SECONDS = 10  # that each topic takes at its own speed
SPEEDS = {"slow": (4, 400 * KIB), "medium": (4, MIB), "fast": (4, 3 * MIB)}  # name: topics, bytes a second
PLANNED = re.compile(r"planned plan=\d+")
OFFLOADED = re.compile(r"offloaded topic=")


@dataclass(frozen=True, slots=True)
class _Run:
    """One number of slots: seconds from the first plan to the last commit."""

    slots: int
    seconds: float


def run(options: Options) -> Report:
    with Cluster(options.folder / "pulsar-slots") as cluster:
        namespace = cluster.namespace("public/slots")
        for name, (topics, speed) in SPEEDS.items():
            for number in range(topics):
                cluster.fill(f"persistent://{namespace}/{name}-{number}", SECONDS * speed, batched=True)
        runs = [_measured(cluster, namespace, options.folder / f"slots-{slots}", slots) for slots in SLOTS]
    for found in runs:
        options.say(f"slots: {found.slots}: {found.seconds:.1f} s")
    return _report(runs)


def _measured(cluster: Cluster, namespace: str, folder: Path, slots: int) -> _Run:
    faults = [
        {"role": "worker", "source": "bytes_per_second", "topic": f"/{name}-", "value": speed}
        for name, (_, speed) in SPEEDS.items()
    ]
    with SparkCluster(folder / "spark") as spark:
        spark.add(slots)
        conf = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.cores.max": str(slots),
        }
        section = {"master": spark.master, "trigger": "500ms", "conf": conf}
        offloading = Offloading(
            cluster,
            namespace,
            folder / "offloading",
            spark=json.dumps(section),
            limits=f"threadsPerTask: {THREADS}",
            faults=faults,
        )
        offloading.until_caught_up()
    begun = [at for at, line in offloading.lines() if PLANNED.match(line)]
    ended = [at for at, line in offloading.lines() if OFFLOADED.match(line)]
    if not begun or not ended:
        raise FatalError(f"nothing was offloaded, see {offloading.log}")
    return _Run(slots, ended[-1] - begun[0])


def _report(runs: list[_Run]) -> Report:
    base = runs[0].seconds
    figures = [Figure(f"{r.slots} slots", r.seconds, "s", base / r.seconds, "the speed of 1 slot") for r in runs]
    figures.append(Figure("a topic alone, as it is delivered", SECONDS, "s", base / SECONDS, "the speed of 1 slot"))
    topics = sum(count for count, _ in SPEEDS.values())
    title = f"{topics} topics, each {SECONDS} s of {', '.join(f'{speed // KIB} KiB/s' for _, speed in SPEEDS.values())}"
    notes = (
        f"{THREADS} threads a task; one slot of two or more is the slow lane's, which has threads of its own",
        "bound by the speed at which topics are delivered, and by threads: topics over threads, times a topic's time",
    )
    return Report("slots", title, figures, notes)
