"""`reading`: an archived topic from S3 by our readers, beside a stock consumer that gets it through a stock broker with
its own offloader."""

from __future__ import annotations

import os
import statistics

from benchmarks import minio
from benchmarks.figures import Figure, Report, median_ratio, rates
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import MESSAGE, Cluster, stored
from benchmarks.readers import Reading, Way, together
from benchmarks.single_reads import single_reads
from benchmarks.stock import close_ledgers, offload_by_the_broker
from dev.embedded.settings import OffloaderSettings
from offloader.errors import DamagedObjectError
from offloader.model import MIB, TopicName
from tests.storage.servers import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

ENTRIES_TARGET = 3.0
MESSAGES_TARGET = 1.5
TWO_READERS_TARGET = 0.9
STOCK = ("client-reader", "client-batch-receive")
RAW = "raw-gets"  # what the S3 server gives whoever does nothing with it
OURS = (
    "python-entry-batches",
    "python-entries",
    "python-batches",
    "python-messages",
    "spark-entries",
    "spark-messages",
)


def run(options: Options) -> Report:
    figures: list[Figure] = []
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_REGION=REGION)
    with minio.running(options.folder / "s3") as server:
        ledgers = {"managedLedgerMaxSizePerLedgerMbytes": "256", "managedLedgerMaxEntriesPerLedger": "1000000000"}
        stock = OffloaderSettings(server.url, BUCKET, ACCESS_KEY, SECRET_KEY, REGION)
        with Cluster(options.folder / "pulsar-reading", configuration=ledgers, offloader=stock) as cluster:
            for kind, size in (("batches", options.batched_bytes), ("unbatched", options.unbatched_bytes)):
                if size:
                    figures += _one_kind(options, cluster, server, kind, size)
    notes = (
        "the stock consumer is pulsar-client, the faster of its Reader and its batch_receive in each round",
        (
            f"Spark: local[2], the second pass of a session; {os.cpu_count()} cores for everything, S3 server and "
            "broker included"
        ),
    )
    return Report("reading", "one topic from one S3 server, all of it", figures, notes)


def _one_kind(options: Options, cluster: Cluster, server: S3Server, kind: str, size: int) -> list[Figure]:
    namespace = cluster.namespace(f"public/{kind}")
    topic = f"persistent://{namespace}/topic"
    cluster.fill(topic, size, batched=kind == "batches")
    root = server.fresh_root()
    storage = f'root: "{root}", endpoint: "{server.url}", region: {REGION}'
    Offloading(cluster, namespace, options.folder / kind, storage=storage).until_caught_up()
    info, behind = close_ledgers(cluster, topic)
    offload_by_the_broker(cluster, topic, info, behind)
    service = cluster.standalone.service_url
    ways = {name: Way(name, topic, root, server.url, service, size // MESSAGE) for name in (*STOCK, RAW, *OURS)}
    measured = _rounds(options, ways, kind)
    base = f"stock consumer, {kind}"
    bytes_ = stored(info)
    stock = [max(pair) for pair in zip(*(_speeds(measured[name], bytes_) for name in STOCK), strict=True)]
    raw = {f"{RAW}, {kind}": _speeds(measured[RAW], bytes_)}
    speeds = {base: stock, **raw, **{f"{name}, {kind}": _speeds(measured[name], bytes_) for name in OURS}}
    targets = {
        name: (f">= {least}", least)
        for name, least in (
            (n, ENTRIES_TARGET if "entr" in n else MESSAGES_TARGET) for n in speeds if n != base and n not in raw
        )
    }
    found = rates(speeds, base, targets=targets)
    found.append(
        _two_readers(
            options, ways["python-entry-batches"], _speeds(measured["python-entry-batches"], bytes_), bytes_, kind
        )
    )
    found.append(_memory(measured["python-entries"], kind))
    return found + single_reads(root, server.url, TopicName.parse(topic), kind)


def _rounds(options: Options, ways: dict[str, Way], kind: str) -> dict[str, list[Reading]]:
    measured: dict[str, list[Reading]] = {name: [] for name in ways}
    for number in range(options.rounds):
        for name in list(ways) if number % 2 == 0 else reversed(ways):
            got = ways[name].read()
            measured[name].append(got)
            rate = got.count / got.seconds
            options.say(
                f"reading: {kind}: round {number + 1}: {name}: {got.size / got.seconds / 1e6:.0f} MB/s, {rate:,.0f} "
                "a second"
            )
    for of_entries in (False, True):
        counts = {
            name: got[0].count for name, got in measured.items() if name != RAW and ("entr" in name) == of_entries
        }
        if len(set(counts.values())) > 1:
            raise DamagedObjectError(f"the readers do not agree on how much there is: {counts}")
    return measured


def _speeds(readings: list[Reading], size: int) -> list[float]:
    """MB/s, of the topic's bytes as BookKeeper counts them, whatever a reader makes of them."""
    return [size / r.seconds / 1e6 for r in readings]


def _two_readers(options: Options, way: Way, alone: list[float], size: int, kind: str) -> Figure:
    both = []
    for _ in range(options.rounds):
        readings = together([way, way])
        both.append(2 * size / max(r.seconds for r in readings) / 1e6)
    ratio = median_ratio(both, [2 * speed for speed in alone])
    target = f">= {TWO_READERS_TARGET} where cores allow"
    return Figure(
        f"two python-entry-batches at once, {kind}", statistics.median(both), "MB/s", ratio, "twice one", target
    )


def _memory(readings: list[Reading], kind: str) -> Figure:
    return Figure(f"python-entries, {kind}: most memory", max(r.peak for r in readings) / MIB, "MiB")
