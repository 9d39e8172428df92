"""`history`: what a start, a writer and a reader's plan cost beside old segments. No Pulsar, no network: requests,
bytes, CPU and memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import cast

from benchmarks.figures import Figure, Report
from benchmarks.long_store import MINUTE, LongStore, LongTopic
from benchmarks.options import Options
from offloader.archive.records import LazyTopicRecords
from offloader.archive.selection import Selection
from offloader.archive.spark.planning import topic_plans, topic_splits
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import CatalogHead
from offloader.model import MIB, TopicName
from offloader.ports.object_store import ObjectStore

LENGTHS = (1_000, 30_000, 1_000_000)
TOPICS, EACH = 1_000, 1_000
HOUR = 60 * MINUTE
PART, PARTS = 8 * MIB, 128


def run(options: Options) -> Report:
    figures: list[Figure] = []
    for number in LENGTHS:
        figures += _one_topic(number)
        options.say(f"history: {number} segments done")
    figures += _many_topics()
    notes = (
        "a segment of 1 GiB a minute, 128 parts; objects are made by the product's code when they are asked for "
        "first, which is not counted",
        "seconds are those of the CPU: a store's answers take theirs, some of them one after the other",
        f"{TOPICS} topics of {EACH} segments: segments of one part, since only starts are measured",
    )
    return Report("history", "one hour out of many segments, and starts beside them", figures, notes)


def _one_topic(number: int) -> list[Figure]:
    store = LongStore(LongTopic(TopicName("public", "default", "long"), number, PARTS, PART))
    name = f"{number:,} segments"
    hour = number * 2 // 3 * MINUTE
    head = _measured(store, lambda: _catalogs(store).head(TopicName("public", "default", "long")))
    plan = _measured(store, lambda: _plan(store, Selection(published_from=hour, published_to=hour + HOUR - 1)))
    return [
        Figure(f"{name}: start, requests", head.requests, ""),
        Figure(f"{name}: start, read", head.bytes / 1000, "kB"),
        Figure(f"{name}: start, memory kept", head.kept / 1000, "kB"),
        Figure(f"{name}: plan of one hour, requests", plan.requests, ""),
        Figure(f"{name}: plan of one hour, read", plan.bytes / 1e6, "MB", target="< 20", met=plan.bytes < 20e6),
        Figure(f"{name}: plan of one hour", plan.seconds, "s", target="< 2", met=plan.seconds < 2),
    ]


def _many_topics() -> list[Figure]:
    topics = [LongTopic(TopicName("public", "default", f"t{n}"), EACH, 1, PART) for n in range(TOPICS)]
    store = LongStore(*topics)

    def heads() -> dict[TopicName, CatalogHead]:
        catalogs = _catalogs(store)
        return {each.topic: catalogs.head(each.topic) for each in topics}

    found = _measured(store, heads)
    name = f"{TOPICS:,} topics of {EACH:,}"
    return [
        Figure(f"{name}: start, requests a topic", found.requests / TOPICS, ""),
        Figure(f"{name}: start, read a topic", found.bytes / 1000 / TOPICS, "kB"),
        Figure(f"{name}: start", found.seconds, "s"),
        Figure(f"{name}: start, memory kept a topic", found.kept / 1000 / TOPICS, "kB"),
    ]


class _Measured:
    def __init__(self, store: LongStore, work: Callable[[], object]) -> None:
        begun = time.process_time()
        store.requests = store.bytes = 0
        self.result = work()
        self.seconds = time.process_time() - begun
        self.requests, self.bytes = store.requests, store.bytes
        self.kept = 0


def _measured(store: LongStore, work: Callable[[], object]) -> _Measured:
    """The second time, when the store has made its objects; memory is counted in a third."""
    work()
    found = _Measured(store, work)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = work()
    found.kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return found


def _catalogs(store: LongStore) -> Catalogs:
    return Catalogs(cast("ObjectStore", store), "app")


def _plan(store: LongStore, selection: Selection) -> int:
    """As Spark's source plans it, chunked messages included."""
    records = LazyTopicRecords(_catalogs(store).history(TopicName("public", "default", "long")))
    return sum(len(topic_splits(planned, 128 * MIB)) for planned in topic_plans(records, selection))
