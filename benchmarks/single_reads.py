"""Single entries from random places: how many requests, how many bytes, how long."""

from __future__ import annotations

import random
import statistics
import time

from benchmarks.figures import Figure
from offloader import Archive
from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange
from offloader.archive.reading.plan import plan
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.errors import DamagedObjectError
from offloader.model import KIB, Position, TopicName
from offloader.storage.settings import StoreSettings

READS = 200
MOST_REQUESTS = 2
MOST_BYTES = 512 * KIB


def single_reads(root: str, endpoint: str, topic: TopicName, kind: str) -> list[Figure]:
    """Read entries from places drawn by lot, each by a reader of its own; their segments' indexes are in the cache."""
    with Archive(root, endpoint=endpoint) as archive:
        view = archive.topic(topic).snapshot
    choice = random.Random(1)
    runs = [(p.incarnation, run) for p in plan(view) if isinstance(p, ObjectRange) for run in p.runs if run.gap is None]
    stores = Stores(StoreSettings(root, endpoint))
    measured = []
    for number in range(READS + len(view.catalog.segments)):
        incarnation, run = choice.choices(runs, [r.span for _, r in runs])[0]
        at = Position(incarnation, run.ledger, choice.randint(run.first, run.last))
        if number < len(view.catalog.segments):
            at = view.catalog.segments[number].start
        reader = PlannedReader(stores)
        begun = time.perf_counter()
        entries = sum(
            item.count for item in reader.read(plan(view, Selection(at, at))) if not isinstance(item, Missing)
        )
        measured.append((reader.stats.requests, reader.stats.bytes_read, time.perf_counter() - begun))
        if entries != 1:
            raise DamagedObjectError(f"{topic}: {entries} entries were read at {at}")
    stores.close()
    warm = measured[len(view.catalog.segments) :]
    requests, most = max(m[0] for m in warm), max(m[1] for m in warm)
    met = requests <= MOST_REQUESTS and most <= MOST_BYTES
    target = f"<= {MOST_REQUESTS} requests, <= {MOST_BYTES // KIB} KiB"
    name = f"a random entry, {kind}"
    return [
        Figure(f"{name}: most bytes, in {requests} request(s)", most / KIB, "KiB", None, "", target, met),
        Figure(f"{name}: median time", statistics.median(m[2] for m in warm) * 1000, "ms"),
    ]
