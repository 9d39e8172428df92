"""`shards-simulated`: many topics over eight shards, Pulsar and the store in memory, time simulated: what a start
costs, what each shard holds in memory, how many requests an idle hour makes, and what it costs to run another's topics.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.counted import CountedStore
from benchmarks.figures import Figure, Report
from benchmarks.options import Options
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import Deal
from offloader.metadata.heartbeats import Heartbeats
from offloader.model import MIB, TopicName
from offloader.offload.driver.request_handler import RequestHandler
from offloader.offload.fleet import Fleet
from offloader.ports.object_store import Stat
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.in_turn import in_turn
from tests.offload.simulation import Simulation

SHARDS = 8
NAMESPACES = 100
IDLE_SECONDS = 60
STEP_MS = 5_000
DISCOVERY_MS = 60_000
AFTER_MS = 120_000
DEAD = 3


class IndexedStore(MemoryStore):
    """Lists what lies below a folder without looking at everything else: a listing of a topic costs the same among any
    number of them. Nothing here is uploaded in parts."""

    def __init__(self) -> None:
        super().__init__(MemoryBacking())
        self._below: dict[str, set[str]] = {}

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        for folder in _folders(key):
            self._below.setdefault(folder, set()).add(key)
        return super().put(key, data, meta=meta, if_absent=if_absent, as_upload=as_upload)

    def delete(self, keys: Iterable[str]) -> None:
        listed = list(keys)
        super().delete(listed)
        for key in listed:
            for folder in _folders(key):
                self._below.get(folder, set()).discard(key)

    def list(self, prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        folder = next((one for one in _folders(f"{prefix}x")), None)
        if folder is None or not prefix.startswith(folder):
            return super().list(prefix, start_after)
        there = self._below.get(folder, set())
        found = sorted(key for key in there if key > start_after and key.startswith(prefix))
        return iter([(key, self.backing.objects[key].stat.size) for key in found])


def _folders(key: str) -> Iterator[str]:
    """Of three levels, and of two: a topic's, and an application's of its claims."""
    pieces = key.split("/")
    yield from ("/".join(pieces[:depth]) + "/" for depth in (3, 2) if len(pieces) > depth)


class Shard:
    """One of them, with a count of its requests."""

    def __init__(self, index: int, store: MemoryStore, first: Simulation | None) -> None:
        self.deal = Deal("sim", index, SHARDS)
        self.store = CountedStore(store)
        self.simulation = Simulation(
            index, roll="600s", application=self.deal.name, store=self.store, deal=self.deal, cluster_of=first,
            checked=False,
        )  # fmt: skip
        driver, found = self.simulation.driver, self.simulation.registry.found
        requests = RequestHandler(self.simulation.context, STEP_MS, self.simulation.retaining, self.simulation.bridging)
        # At the pace of the product; the simulation hurries.
        found._interval_ms, driver._poll_ms, driver._requests = DISCOVERY_MS, STEP_MS, requests  # noqa: SLF001

    def round(self) -> None:
        self.simulation.round()
        self.simulation.batch()


def run(options: Options) -> Report:
    with in_turn("metadata.catalog", "offload.driver.discovery"):
        return _run(options)


def _run(options: Options) -> Report:
    store = IndexedStore()
    lead = Shard(0, store, None)
    cluster, clock = lead.simulation.cluster, lead.simulation.clock
    for number in range(options.simulated_topics):
        cluster.create(TopicName.parse(f"public/ns{number % NAMESPACES}/topic-{number}"))
    shards = [lead, *(Shard(index, store, lead.simulation) for index in range(1, SHARDS))]
    before = _memory()
    starts = [_adopts(shard, options) for shard in shards]
    grown = (_memory() - before) / SHARDS / MIB
    asked = sum(start.total() - start["CPU ms"] for start in starts) / options.simulated_topics
    figures = [
        *_spread("topics of a shard", [len(shard.simulation.registry.topics) for shard in shards], "topics"),
        *_spread("first start: CPU, claims included", [start["CPU ms"] / 1_000 for start in starts], "s"),
        Figure("first start: requests, a topic", asked, ""),
        Figure("memory of a shard, with its journal, catalogs and claims in the store", grown, "MiB"),
    ]
    fleets = [Fleet(Heartbeats(s.store, "sim"), s.deal, AFTER_MS, clock, f"run-{s.deal.index}") for s in shards]
    for shard, fleet in zip(shards, fleets, strict=True):
        fleet.joins(shard.deal.index, lambda: clock.now)
    figures += _idle(shards, fleets)
    options.say("shards-simulated: idle time is over")
    figures += _takeover(shards, fleets, store, options)
    return Report(
        "shards-simulated",
        f"{options.simulated_topics} topics over {SHARDS} shards, all in one process",
        figures,
        ("a listing counts as one request, whatever it gives: on S3 a thousand keys are one",),
    )


def _adopts(shard: Shard, options: Options) -> Counter[str]:
    """Rounds until it has all of its topics; what that cost."""
    began = time.process_time()
    for _ in range(10):
        shard.simulation.clock.now += 1_000
        shard.round()
        if shard.simulation.registry.settled:
            break
    assert shard.simulation.registry.settled, shard.simulation.registry.refused
    cost = Counter(shard.store.asked)
    cost["CPU ms"] = int((time.process_time() - began) * 1_000)
    options.say(f"shards-simulated: {shard.deal.name} has {len(shard.simulation.registry.topics)} topics: {dict(cost)}")
    return cost


def _idle(shards: list[Shard], fleets: list[Fleet]) -> Iterator[Figure]:
    clock = shards[0].simulation.clock
    for shard in shards:
        shard.store.asked.clear()
    began = time.process_time()
    for step in range(0, IDLE_SECONDS * 1_000, STEP_MS):
        clock.now += STEP_MS
        for shard, fleet in zip(shards, fleets, strict=True):
            shard.round()
            if step % fleet.look_ms == 0:
                assert fleet.look() == []
    yield Figure("idle: CPU of a shard", (time.process_time() - began) / SHARDS / IDLE_SECONDS, "cores")
    asked = sum((shard.store.asked for shard in shards), Counter[str]())
    for verb, number in sorted(asked.items()):
        yield Figure(f"idle: {verb} of a shard", number / SHARDS * 3_600 / IDLE_SECONDS, "an hour")


def _takeover(shards: list[Shard], fleets: list[Fleet], store: MemoryStore, options: Options) -> Iterator[Figure]:
    """One process is gone."""
    clock, dead = shards[0].simulation.clock, shards[DEAD]
    dead.simulation.pins.close()
    began = clock.now
    due: dict[int, list[int]] = {}
    while not due:
        clock.now += fleets[0].look_ms
        living = [fleet for fleet in fleets if fleet.deal.index != DEAD]
        due = {fleet.deal.index: found for fleet in living if (found := fleet.look())}
    assert due == {DEAD + 1: [DEAD]}
    yield Figure("until the next one runs a shard whose process is gone", (clock.now - began) / 1_000, "s")
    stand_in = Shard(DEAD, store, shards[0].simulation)
    cost = _adopts(stand_in, options)
    count = len(stand_in.simulation.registry.topics)
    assert count == len(Catalogs(store, dead.deal.name).claimed())
    yield Figure("CPU of adopting its topics", cost["CPU ms"] / 1_000, "s")
    yield Figure("requests of that, a topic", (cost.total() - cost["CPU ms"]) / count, "")


def _spread(name: str, values: Sequence[float], unit: str) -> Iterator[Figure]:
    yield Figure(f"{name}, least", min(values), unit)
    yield Figure(f"{name}, most", max(values), unit)


def _memory() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
