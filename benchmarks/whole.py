"""`offload` and `offload-batches`: a whole topic of single messages, or of batches, into an S3 server, beside what the
stock broker's own offloader does for the same topic.

Both are running and warm: the broker, and an application that reads from the bookie (of batches also one that reads
from the broker). The topic is terminated, so that nothing is waited for. Ours is measured from its claim on the topic
to the commit of its last entry, the broker's from the call that triggers it to the status that says it is done. The
stock offloader is faster when the machine is busy: each round gives it an idle and a busy run, each with a topic of its
own, and takes the better.
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
from typing import NamedTuple

from benchmarks import minio
from benchmarks.figures import Figure, Report, rates
from benchmarks.offloading import Offloading
from benchmarks.options import Options
from benchmarks.pulsar import Cluster
from benchmarks.stock import close_ledgers, offload_by_the_broker
from dev.embedded.settings import OffloaderSettings
from offloader.errors import FatalError
from offloader.model import MIB, Source, TopicName
from offloader.ports.admin import TopicInfo
from tests.storage.servers import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, S3Server

TARGET, TARGET_OF_BATCHES = 3.0, 1.0
WARM_UP = 128 * MIB
SECONDS = 600.0
STOCK = "stock broker, the better of idle and busy"
OURS = {Source.BOOKKEEPER: "ours, from the bookie", Source.BROKER: "ours, from the broker"}
_CLAIM = re.compile(r"claim topic=(\S+) ")
_OFFLOADED = re.compile(r"offloaded topic=(\S+) .* end=(\S+) ")


def run(options: Options) -> Report:
    """Single messages."""
    figures = _measured(options, "offload", (Source.BOOKKEEPER,), TARGET, batched=False)
    return Report("offload", "a whole topic of single 1 KiB messages to one S3 server", figures, _notes(options))


def run_batches(options: Options) -> Report:
    """Batches of 100."""
    figures = _measured(options, "batches", (Source.BROKER, Source.BOOKKEEPER), TARGET_OF_BATCHES, batched=True)
    title = "a whole topic of batches of 100 x 1 KiB to one S3 server"
    return Report("offload-batches", title, figures, _notes(options))


def _measured(
    options: Options, name: str, sources: tuple[Source, ...], target: float, *, batched: bool
) -> list[Figure]:
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_REGION=REGION)
    figures: list[Figure] = []
    for source in sources:
        folder = options.folder / f"{name}-{source.name.lower()}"
        with minio.running(folder / "s3") as server:
            stock = OffloaderSettings(server.url, BUCKET, ACCESS_KEY, SECRET_KEY, REGION)
            with Cluster(folder / "pulsar", offloader=stock, zookeeper=True) as cluster:
                measured = _rounds(options, cluster, server, source, batched=batched)
        figures += rates(measured, STOCK, "entries/s", {OURS[source]: (f">= {target}", target)})
    return figures


def _notes(options: Options) -> tuple[str, ...]:
    size = options.unbatched_bytes // MIB
    return (
        f"{options.rounds} rounds, two topics of {size} MiB each; {os.cpu_count()} cores for everything, S3 server "
        "and broker included",
        f"payload_signing {options.payload_signing}; auto signs what goes over http://, but no parts",
    )


class _Whole(NamedTuple):
    """A topic that ends: `before` are the ledgers that the stock offloader takes, `behind` the entry that follows
    them."""

    name: TopicName
    before: TopicInfo
    behind: tuple[int, int]

    @property
    def entries(self) -> int:
        return sum(count for count, _ in self.before.sizes.values())


def _rounds(
    options: Options, cluster: Cluster, server: S3Server, source: Source, *, batched: bool
) -> dict[str, list[float]]:
    storage = f'root: "{server.fresh_root()}", endpoint: "{server.url}", region: {REGION}'
    storage += f", options: {{payload_signing: {options.payload_signing}}}"
    offloading = Offloading(cluster, "", options.folder / f"warm-{source.name}", storage=storage, source=source)
    measured: dict[str, list[float]] = {OURS[source]: [], STOCK: []}
    with offloading.running():
        warm_up = _topic(cluster, "warm-up", WARM_UP, batched=batched)
        _ours(cluster, offloading, warm_up)
        _stock(cluster, warm_up)
        for number in range(options.rounds):
            idle, busy = (
                _topic(cluster, f"{word}-{number}", options.unbatched_bytes, batched=batched)
                for word in ("idle", "busy")
            )
            ours = [_ours(cluster, offloading, topic) for topic in (idle, busy)]
            theirs = [_stock(cluster, idle)]
            with _busy():
                theirs.append(_stock(cluster, busy))
            measured[OURS[source]].append(statistics.mean(ours))
            measured[STOCK].append(max(theirs))
            options.say(
                f"offload: round {number + 1}: {OURS[source]} {_speeds(ours)}, stock idle and busy {_speeds(theirs)} "
                "entries/s"
            )
    return measured


def _speeds(values: list[float]) -> str:
    return " and ".join(f"{value:,.0f}" for value in values)


def _topic(cluster: Cluster, name: str, size: int, *, batched: bool) -> _Whole:
    topic = TopicName.parse(f"persistent://{cluster.namespace(f'public/{name}')}/topic")
    cluster.fill(str(topic), size, batched=batched)
    ended = _Whole(topic, *close_ledgers(cluster, str(topic)))
    cluster.standalone.admin("POST", f"{topic.rest_path}/terminate")
    return ended


def _stock(cluster: Cluster, topic: _Whole) -> float:
    """Entries a second."""
    return topic.entries / offload_by_the_broker(cluster, str(topic.name), topic.before, topic.behind)


def _ours(cluster: Cluster, offloading: Offloading, topic: _Whole) -> float:
    """Entries a second, from the claim to the commit of the last entry."""
    cluster.standalone.admin("PUT", f"namespaces/{topic.name.namespace}/property/offloader.enabled/true")
    begun = _logged(offloading, lambda line: (m := _CLAIM.match(line)) is not None and m[1] == str(topic.name))
    last = f"{topic.behind[0]}:{topic.behind[1]}"
    ended = _logged(
        offloading, lambda line: (m := _OFFLOADED.match(line)) is not None and m.groups() == (str(topic.name), last)
    )
    return topic.entries / (ended - begun)


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
