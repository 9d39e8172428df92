"""`idle`: what topics that nobody writes to cost, once each of them has one message that is offloaded."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks import processes
from benchmarks.figures import Figure, Report
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster

TARGET = 0.05  # cores, all processes together
SETTLE_SECONDS = 90  # until Spark is up and all topics are adopted
PRODUCERS = 8


def run(options: Options) -> Report:
    with Cluster(options.folder / "pulsar-idle") as cluster:
        namespace = cluster.namespace("public/idle")
        _one_message_each(cluster, namespace, options.idle_topics)
        options.say(f"idle: {options.idle_topics} topics have a message")
        offloading = Offloading(cluster, namespace, options.folder / "idle", trigger="5s")
        begun = time.monotonic()
        offloading.until_caught_up()
        options.say(f"idle: caught up after {time.monotonic() - begun:.0f} s")
        broker = cluster.standalone.pid
        with offloading.running(level="WARNING") as process:
            time.sleep(SETTLE_SECONDS)
            before, broker_before = processes.cpu_seconds(process.pid), processes.cpu_seconds(broker)
            begun = time.monotonic()
            time.sleep(options.idle_seconds)
            used = processes.cpu_between(before, processes.cpu_seconds(process.pid))
            used_by_broker = processes.cpu_between(broker_before, processes.cpu_seconds(broker))
            seconds = time.monotonic() - begun
    return _report(options, used, sum(used_by_broker.values()), seconds)


def _report(options: Options, used: dict[str, float], broker: float, seconds: float) -> Report:
    share = sum(used.values()) / seconds
    figures = [
        Figure(role, used[role] / seconds, "cores", used[role] / sum(used.values()), "all") for role in sorted(used)
    ]
    figures.append(Figure("all", share, "cores", share, "one core", f"< {TARGET}", share < TARGET))
    figures.append(Figure("(the broker, for comparison)", broker / seconds, "cores"))
    title = f"{options.idle_topics} topics without traffic, CPU over {options.idle_seconds} s"
    return Report(
        "idle", title, figures, (f"begins {SETTLE_SECONDS} s after a start; spark.trigger 5 s, metrics port closed",)
    )


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
