"""`shards`: idle topics over two processes: until each has its half, what they cost, and how long it takes until one of
them has all, once the other is killed."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks import processes
from benchmarks.figures import Figure, Report
from benchmarks.options import Options
from benchmarks.pulsar import Cluster
from integration.launcher import program
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import shard_name
from offloader.model import MIB
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings
from tests.storage.servers import free_port

TAKE_OVER_AFTER = 30  # seconds
LONGEST = 3_600.0
NAMESPACE = "public/shards"
CONFIG = """
application: archive
shards: {{count: 2, index: {index}, takeOverAfter: {after}s}}
pulsar: {{serviceUrl: "{service}", adminUrl: "{admin}"}}
storage: {{root: "{root}"}}
spark: {{trigger: 5s}}
metrics: {{port: {port}}}
namespaces: {{{namespace}: {{enabled: true}}}}
"""


@dataclass
class Shard:
    """One process."""

    index: int
    folder: Path
    text: str
    port: int
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "offloader.yaml"
        config.write_text(self.text)
        with (self.folder / "log").open("ab") as log:
            command = [*program(), "--config", str(config), "--log-level", "WARNING"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(120)

    def series(self) -> Iterator[tuple[str, str, float]]:
        """(name, labels, value) of what it says of itself; nothing where it does not answer."""
        try:
            text = httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10).text
        except httpx.TransportError:
            return
        for line in text.splitlines():
            if not line.startswith("#"):
                key, _, value = line.rpartition(" ")
                name, _, labels = key.partition("{")
                yield name, labels, float(value)

    def topics(self, *, others: bool = False) -> int:
        """How many topics it has, of its own shard or of others that it runs."""
        found = (
            v for name, labels, v in self.series() if name == "offloader_topics" and ("shard=" in labels) == others
        )
        return int(sum(found))

    def requests(self) -> Counter[str]:
        told: Counter[str] = Counter()
        for name, labels, value in self.series():
            if name == "offloader_store_requests_total" and "shard=" not in labels:
                told[labels.partition('verb="')[2].partition('"')[0]] += int(value)
        return told


def run(options: Options) -> Report:
    figures: list[Figure] = []
    with Cluster(options.folder / "pulsar-shards") as cluster:
        namespace, count = cluster.namespace(NAMESPACE), options.shard_topics
        cluster.standalone.admin("PUT", f"persistent/{namespace}/t/partitions", count)
        options.say(f"shards: {count} topics are there")
        root = (options.folder / "shards" / "archive").resolve()
        with _shards(cluster, options.folder / "shards", root) as (first, second):
            begun = time.monotonic()
            first.start()
            second.start()
            _until(lambda: first.topics() + second.topics() >= count, options, lambda: _told(first, second))
            figures.append(Figure("until each has its part", time.monotonic() - begun, "s"))
            with closing(open_store(StoreSettings(root.as_uri()))) as store:
                parts = [len(Catalogs(store, shard_name("archive", index)).claimed()) for index in range(2)]
            figures += [Figure(f"topics of shard {index}", float(part), "topics") for index, part in enumerate(parts)]
            time.sleep(60)
            figures += _idle(options, first, second)
            second.process.kill()
            begun = time.monotonic()
            _until(lambda: first.topics(others=True) > 0, options, lambda: _told(first, second))
            figures.append(Figure("kill -9 of shard 1, until shard 0 runs it", time.monotonic() - begun, "s"))
            _until(lambda: first.topics(others=True) >= parts[1], options, lambda: _told(first, second))
            figures.append(Figure("until shard 0 has all of its topics", time.monotonic() - begun, "s"))
            figures.append(Figure("memory of shard 0 with both", _memory(first), "MiB"))
            second.start()
            begun = time.monotonic()
            _until(lambda: second.topics() >= parts[1], options, lambda: _told(first, second))
            figures.append(Figure("shard 1 is back, until it has its topics again", time.monotonic() - begun, "s"))
    return Report(
        "shards",
        f"{options.shard_topics} topics without messages over two shards",
        figures,
        (f"takeOverAfter {TAKE_OVER_AFTER} s, a folder as store; broker, bookie and both processes share the machine",),
    )


def _idle(options: Options, *shards: Shard) -> Iterator[Figure]:
    before = [(shard.requests(), processes.cpu_seconds(shard.process.pid)) for shard in shards]
    time.sleep(options.idle_seconds)
    for shard, (asked, cpu) in zip(shards, before, strict=True):
        used = sum(processes.cpu_between(cpu, processes.cpu_seconds(shard.process.pid)).values())
        more = shard.requests()
        more.subtract(asked)
        hour = 3_600 / options.idle_seconds
        yield Figure(f"idle: CPU of shard {shard.index}", used / options.idle_seconds, "cores")
        yield Figure(f"idle: memory of shard {shard.index}", _memory(shard), "MiB")
        for verb in sorted(+more):
            yield Figure(f"idle: {verb} of shard {shard.index}", more[verb] * hour, "an hour")


def _memory(shard: Shard) -> float:
    return sum(processes.memory(shard.process.pid).values()) / MIB


def _told(*shards: Shard) -> str:
    return ", ".join(f"shard {s.index}: {s.topics()} + {s.topics(others=True)} topics" for s in shards)


def _until(condition: Callable[[], bool], options: Options, told: Callable[[], str]) -> None:
    begun = said = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - said > 20:
            said = now
            options.say(f"shards: {now - begun:.0f} s, {told()}")
        assert now - begun < LONGEST, told()
        time.sleep(2)  # to ask costs a process something


@contextmanager
def _shards(cluster: Cluster, folder: Path, root: Path) -> Iterator[list[Shard]]:
    made = []
    for index in range(2):
        port = free_port()
        text = CONFIG.format(
            index=index,
            after=TAKE_OVER_AFTER,
            service=cluster.standalone.service_url,
            admin=cluster.standalone.admin_url,
            root=root.as_uri(),
            port=port,
            namespace=NAMESPACE,
        )
        made.append(Shard(index, folder / str(index), text, port))
    try:
        yield made
    finally:
        for shard in made:
            if hasattr(shard, "process"):
                shard.end()
