"""`offload`: a whole topic of single messages into an S3 server, beside what the stock broker's own offloader does for the same topic.

Both are running and warm: the broker, and an application that reads from the bookie. Ours is measured from its claim on the topic to
the commit of its last entry, the broker's from the call that triggers it to the status that says it is done. The stock offloader is
faster when the machine is busy: each round gives it an idle and a busy run, each with a topic of its own, and takes the better.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from benchmarks import minio
from benchmarks.figures import Report, rates
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster
from benchmarks.stock import offload_by_the_broker
from offloader.embedded.settings import OffloaderSettings
from offloader.errors import FatalError
from offloader.metadata import requests
from offloader.metadata.requests import Request, RequestKind
from offloader.model import MIB, Position, Source, TopicName
from offloader.storage.base import ObjectStore
from offloader.storage.open import StoreSettings, open_store
from tests.storage.servers import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

TARGET = 3.0
WARM_UP = 16 * MIB
SECONDS = 600.0
OURS, STOCK = "ours, from the bookie", "stock broker, the better of idle and busy"
_CLAIM = re.compile(r"claim topic=(\S+) ")
_OFFLOADED = re.compile(r"offloaded topic=(\S+) .* end=(\S+) ")


def run(options: Options) -> Report:
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_REGION=REGION)
    with minio.running(options.folder / "s3-offload") as server:
        stock = OffloaderSettings(server.url, BUCKET, ACCESS_KEY, SECRET_KEY, REGION)
        with Cluster(options.folder / "pulsar-offload", offloader=stock, zookeeper=True) as cluster:
            measured = _rounds(options, cluster, server)
    figures = rates(measured, STOCK, "entries/s", {OURS: (f">= {TARGET}", TARGET)})
    return Report("offload", "a whole topic of single 1 KiB messages to one S3 server", figures, _notes(options))


def _notes(options: Options) -> tuple[str, ...]:
    size = options.unbatched_bytes // MIB
    return (
        f"{options.rounds} rounds, two topics of {size} MiB each; {os.cpu_count()} cores for everything, S3 server and broker included",
    )


def _rounds(options: Options, cluster: Cluster, server: S3Server) -> dict[str, list[float]]:
    root = server.fresh_root()
    storage = f'root: "{root}", endpoint: "{server.url}", region: {REGION}'
    offloading = Offloading(cluster, "", options.folder / "warm", storage=storage, source=Source.BOOKKEEPER)
    store = open_store(StoreSettings(root, server.url, REGION))
    measured: dict[str, list[float]] = {OURS: [], STOCK: []}
    with offloading.running():
        _offload(cluster, offloading, store, _topic(cluster, "warm-up", WARM_UP))
        for number in range(options.rounds):
            idle, busy = (_topic(cluster, f"{word}-{number}", options.unbatched_bytes) for word in ("idle", "busy"))
            ours = [_offload(cluster, offloading, store, topic) for topic in (idle, busy)]
            theirs = [_stock(cluster, idle)]
            with _busy():
                theirs.append(_stock(cluster, busy))
            measured[OURS].append(statistics.mean(ours))
            measured[STOCK].append(max(theirs))
            options.say(f"offload: round {number + 1}: ours {_speeds(ours)}, stock idle and busy {_speeds(theirs)} entries/s")
    store.close()
    return measured


def _speeds(values: list[float]) -> str:
    return " and ".join(f"{value:,.0f}" for value in values)


def _topic(cluster: Cluster, name: str, size: int) -> TopicName:
    topic = TopicName.parse(f"persistent://{cluster.namespace(f'public/{name}')}/topic")
    cluster.fill(str(topic), size, batched=False)
    return topic


def _entries(cluster: Cluster, topic: TopicName) -> int:
    return sum(count for count, _ in cluster.admin.topic_info(topic).sizes.values())


def _stock(cluster: Cluster, topic: TopicName) -> float:
    info, seconds = offload_by_the_broker(cluster, str(topic))
    return sum(count for count, _ in info.sizes.values()) / seconds


def _offload(cluster: Cluster, offloading: Offloading, store: ObjectStore, topic: TopicName) -> float:
    """Entries a second. The segment is asked to end with the topic, or it would wait for more."""
    last, entries = cluster.admin.topic_info(topic).last_confirmed, _entries(cluster, topic)
    if last is None:
        raise FatalError(f"{topic} is empty")
    cluster.standalone.admin("PUT", f"namespaces/{topic.namespace}/property/offloader.enabled/true")
    begun = _logged(offloading, lambda line: (m := _CLAIM.match(line)) is not None and m[1] == str(topic))
    close = Request(RequestKind.CLOSE, topic, time.time_ns() // 1_000_000, "benchmark", Position(0, *last))
    requests.submit(store, offloading.application, close, lambda: str(uuid4()))
    end = f"{last[0]}:{last[1]}"
    ended = _logged(offloading, lambda line: (m := _OFFLOADED.match(line)) is not None and m.groups() == (str(topic), end))
    return entries / (ended - begun)


def _logged(offloading: Offloading, matches: Callable[[str], bool]) -> float:
    """When the application says so, in seconds of the wall clock."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for at, message in offloading.lines():
            if matches(message):
                return at
        time.sleep(0.5)
    raise FatalError(f"the application did not get there within {SECONDS:.0f} s, see {offloading.log}")


@contextmanager
def _busy() -> Iterator[None]:
    """Somebody else uses a core."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()
