"""`application`: Pulsar to local disk through Spark, beside our own reader alone and beside pulsar-client's ways to
read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from benchmarks import clients
from benchmarks.figures import Figure, Report, median_ratio, rates
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster, client_rate, raw_reader, stored
from offloader.errors import FatalError
from offloader.model import MIB
from offloader.ports.admin import TopicInfo

RAW = "our reader alone"
TARGET = 0.7


def run(options: Options) -> Report:
    figures: list[Figure] = []
    notes: list[str] = []
    with Cluster(options.folder / "pulsar") as cluster:
        for kind, size in (("batches", options.batched_bytes), ("unbatched", options.unbatched_bytes)):
            if size:
                found, note = _one_kind(options, cluster, kind, size)
                figures += found
                notes.append(note)
    return Report("application", "Pulsar to local disk, of the same topic and by the same broker", figures, notes)


def _one_kind(options: Options, cluster: Cluster, kind: str, size: int) -> tuple[list[Figure], str]:
    namespace = cluster.namespace(f"public/{kind}")
    topic = f"persistent://{namespace}/topic"
    info = cluster.fill(topic, size, batched=kind == "batches")
    options.say(
        f"application: {kind}: {stored(info) / MIB:.0f} MiB in {sum(n for n, _ in info.sizes.values())} entries"
    )
    raw_reader(cluster, topic, info)  # the broker's caches and compiled code are warm for everyone
    base, whole = f"{RAW}, {kind}", f"application, {kind}"
    works: dict[str, Callable[[int], float]] = {
        base: lambda _: raw_reader(cluster, topic, info),
        whole: lambda n: _offload(options, cluster, namespace, f"{kind}-{n}"),
    }
    for name, way in clients.WAYS.items():
        works[f"pulsar-client {name}, {kind}"] = partial(_read_by_client, cluster, topic, info, way)
    measured: dict[str, list[float]] = {name: [] for name in works}
    for number in range(options.rounds):
        for name in list(works) if number % 2 == 0 else reversed(works):
            measured[name].append(works[name](number))
            options.say(f"application: round {number + 1}: {name}: {measured[name][-1]:.0f} MB/s")
    targets = {whole: (f">= {TARGET}", TARGET)} if kind == "batches" else {}
    return rates(measured, base, targets=targets), _against_clients(measured, whole, kind)


def _read_by_client(cluster: Cluster, topic: str, info: TopicInfo, way: clients.Client, _: int) -> float:
    return client_rate(cluster, topic, info, way)


def _against_clients(measured: dict[str, list[float]], whole: str, kind: str) -> str:
    others = [(n, median_ratio(measured[whole], v)) for n, v in measured.items() if n.startswith("pulsar-client")]
    return f"{kind}: the application is " + ", ".join(
        f"{r:.2f} times as fast as {n.partition(',')[0]}" for n, r in others
    )


def _offload(options: Options, cluster: Cluster, namespace: str, name: str) -> float:
    """MB/s once Spark has started: from the first batch's receipts to the last one's."""
    offloading = Offloading(cluster, namespace, options.folder / name)
    offloading.until_caught_up()
    batches = offloading.batches()
    for b in batches:
        options.say(f"  {b.size / MIB:.0f} MiB, batch {b.took:.2f} s, longest slice {b.longest:.2f} s")
    shutil.rmtree(offloading.archive)
    _unsubscribe(cluster, namespace)
    if len(batches) < 2:
        raise FatalError(
            "everything came in one batch, nothing is left to measure: use a larger topic (--batched, --unbatched)"
        )
    return sum(b.size for b in batches[1:]) / (batches[-1].at - batches[0].at) / 1e6


def _unsubscribe(cluster: Cluster, namespace: str) -> None:
    """The next run begins at the topic's begin again."""
    for topic in cluster.admin.topics(namespace):
        cluster.standalone.admin("DELETE", f"{topic.rest_path}/subscription/__offloader?force=true")
