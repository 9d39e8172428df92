"""`bookkeeper`: a topic straight from its bookie, beside the same topic through the broker; our readers alone."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.figures import Figure, Report, rates
from benchmarks.options import Options
from benchmarks.pulsar import Cluster, raw_reader, stored, stored_reader
from offloader.model import MIB

TARGETS = {"batches": 1.5, "unbatched": 4.0}


def run(options: Options) -> Report:
    figures: list[Figure] = []
    with Cluster(options.folder / "pulsar-bookkeeper", zookeeper=True) as cluster:
        for kind, size in (("batches", options.batched_bytes), ("unbatched", options.unbatched_bytes)):
            if size:
                figures += _one_kind(options, cluster, kind, size)
    notes = ("broker and bookie are one process; every digest is checked on the way from the bookie",)
    return Report("bookkeeper", "all of a topic, read by our two readers in turn", figures, notes)


def _one_kind(options: Options, cluster: Cluster, kind: str, size: int) -> list[Figure]:
    topic = f"persistent://{cluster.namespace(f'public/{kind}')}/topic"
    info = cluster.fill(topic, size, batched=kind == "batches")
    entries = sum(count for count, _ in info.sizes.values())
    options.say(f"bookkeeper: {kind}: {stored(info) / MIB:.0f} MiB in {entries} entries")
    base, direct = f"source broker, {kind}", f"source bookkeeper, {kind}"
    works: dict[str, Callable[[], float]] = {
        base: lambda: raw_reader(cluster, topic, info),
        direct: lambda: stored_reader(cluster, topic, info),
    }
    measured: dict[str, list[float]] = {name: [] for name in works}
    for number in range(options.rounds + 1):
        for name in list(works) if number % 2 else reversed(works):
            speed = works[name]()
            options.say(
                f"bookkeeper: round {number}: {name}: {speed:.0f} MB/s, {speed * 1e6 * entries / stored(info):,.0f} "
                "entries/s"
            )
            if number:  # the first round warms up
                measured[name].append(speed)
    return rates(measured, base, targets={direct: (f">= {TARGETS[kind]}", TARGETS[kind])})
