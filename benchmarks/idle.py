"""`idle`: what topics that nobody writes to cost, once each of them has one message that is offloaded."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import processes
from benchmarks.figures import Figure, Report
from benchmarks.offloading import Offloading, wait_until
from benchmarks.options import Options
from benchmarks.pulsar import Cluster

TARGET = 0.05  # cores, all processes together
SETTLE_SECONDS = 30  # quiet topics are looked at less and less often
CATCH_UP_SECONDS = 600.0
PRODUCERS = 8


def run(options: Options) -> Report:
    with Cluster(options.folder / "pulsar-idle") as cluster:
        namespace = cluster.namespace("public/idle")
        _one_message_each(cluster, namespace, options.idle_topics)
        options.say(f"idle: {options.idle_topics} topics have a message")
        offloading = Offloading(cluster, namespace, options.folder / "idle", trigger="5s", roll="10s")
        with offloading.running(level="INFO") as process:
            done = lambda: _offloaded(offloading.log) >= options.idle_topics  # noqa: E731
            begun = time.monotonic()
            wait_until(done, "caught up", CATCH_UP_SECONDS, process)
            options.say(f"idle: caught up after {time.monotonic() - begun:.0f} s")
            time.sleep(SETTLE_SECONDS)
            before, broker_before = processes.cpu_seconds(process.pid), _broker(cluster)
            begun = time.monotonic()
            time.sleep(options.idle_seconds)
            used, broker = processes.cpu_seconds(process.pid), _broker(cluster) - broker_before
            seconds = time.monotonic() - begun
            used.subtract(before)
    return _report(options, used, broker, seconds)


def _report(options: Options, used: Counter[str], broker: float, seconds: float) -> Report:
    figures = [Figure(role, used[role] / seconds, "cores", used[role] / sum(used.values()), "all") for role in sorted(used)]
    share = sum(used.values()) / seconds
    figures.append(Figure("all", share, "cores", share, "one core", f"< {TARGET}", share < TARGET))
    figures.append(Figure("(the broker, for comparison)", broker / seconds, "cores"))
    title = f"{options.idle_topics} topics without traffic, CPU over {options.idle_seconds} s"
    return Report("idle", title, figures, (f"begins {SETTLE_SECONDS} s after the last of them was offloaded; spark.trigger 5 s",))


def _one_message_each(cluster: Cluster, namespace: str, topics: int) -> None:
    client = cluster.client()

    def produce(number: int) -> None:
        producer = client.create_producer(f"persistent://{namespace}/topic-{number}", batching_enabled=False)
        producer.send(b"one message")
        producer.close()

    with ThreadPoolExecutor(PRODUCERS) as pool:
        for done in pool.map(produce, range(topics)):
            assert done is None
    client.close()


def _offloaded(log: Path) -> int:
    return log.read_bytes().count(b'"offloaded topic=')


def _broker(cluster: Cluster) -> float:
    return sum(processes.cpu_seconds(cluster.standalone.pid).values())
