"""How fast a closed ledger is bridged: built by copies inside the store or through us, and read back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import TypeVar, cast
from uuid import UUID

from benchmarks import minio
from benchmarks.counted import CountedStore
from benchmarks.figures import Figure, Report, rates
from benchmarks.options import Options
from offloader.bridge.building import BuildSettings, BuiltLedger, LedgerBuilder
from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.objects import remove_objects
from offloader.bridge.transfer import BridgeStores, PieceThreads
from offloader.errors import IntegrityError
from offloader.metadata.layout import data_key
from offloader.model import GIB, KIB, MIB, SegmentLayout
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_ranges
from offloader.storage.forwarding import Verb
from offloader.storage.memory import MemoryStore
from offloader.storage.open import open_store
from tests.archive.support import TOPIC, Archive, message
from tests.format.support import Stored

T = TypeVar("T")

SEGMENT = 256 * MIB
MOST = GIB
LEDGER = 7
THREADS = 4


class _Bucket(CountedStore):
    """`wrote`: seconds from an upload's beginning to its end."""

    wrote = 0.0
    _begun = 0.0

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if verb == "begin":
            self._begun = time.perf_counter()
        answer = super()._call(verb, key, work)
        if verb == "commit":
            self.wrote = time.perf_counter() - self._begun
        return answer


@dataclass(frozen=True, slots=True)
class _Kind:
    """A ledger in an archive; `name`: of its entries."""

    name: str
    stores: BridgeStores
    counted: tuple[CountedStore, _Bucket]
    ledger: BridgedLedger
    segments: tuple[str, ...]


def run(options: Options) -> Report:
    """A ledger of `--batched` MiB, at most 1 GiB, in segments of 256 MiB, on one MinIO: of entries of 100 KiB, and an
    eighth of it of 1 KiB."""
    size = min(options.batched_bytes, MOST)
    figures: list[Figure] = []
    with minio.running(options.folder / "s3-bridge") as server:
        bucket = server.bucket_beside()
        for name, entry_size, total in (("100 KiB", 100 * KIB, size), ("1 KiB", KIB, size // 8)):
            options.say(f"bridging: a ledger of entries of {name}")
            archive = open_store(server.settings(server.fresh_root()))
            kind = _written(name, archive, open_store(bucket), entry_size, total)
            figures += _measured(kind, options)
            archive.close()
            kind.stores.bucket.close()
    notes = (
        f"{THREADS} threads of one process. Built: sources looked up, parts written, committed, the object read back "
        "whole and each block and entry of it looked at, the index written and read back.",
        "Read alone: the same bytes, by one thread, looked at by nobody.",
    )
    return Report("bridging", "a closed ledger becomes an object that brokers read, on MinIO", figures, notes)


def _measured(kind: _Kind, options: Options) -> list[Figure]:
    read, copied, sent = (
        f"read alone, {kind.name}",
        f"built by copy, {kind.name}",
        f"built through us, {kind.name}",
    )
    measured: dict[str, list[float]] = {read: [], copied: [], sent: []}
    measured |= {f"{name}: the writing alone": [] for name in (copied, sent)}
    asked: dict[str, Counter[str]] = {}
    cpu: dict[str, list[float]] = {copied: [], sent: [], read: []}
    for number in range(options.rounds):
        ways = [(read, True), (copied, True), (sent, False)]
        for name, copies in ways if number % 2 else reversed(ways):
            for store in kind.counted:
                store.asked.clear()
            begun, begun_cpu = time.perf_counter(), time.process_time()
            size = _read(kind) if name == read else _build(kind, copies=copies)
            measured[name].append(size / 1e6 / (time.perf_counter() - begun))
            cpu[name].append((time.process_time() - begun_cpu) * GIB / size)
            asked[name] = kind.counted[0].asked + kind.counted[1].asked
            if name != read:
                measured[f"{name}: the writing alone"].append(size / 1e6 / kind.counted[1].wrote)
                remove_objects(kind.stores.bucket, [kind.ledger])
    figures = rates(measured, read)
    for name in (copied, sent):
        requests = asked[name].total() + asked[name]["commit"]  # and what is there now
        writes = sum(asked[name][verb] for verb in ("begin", "copy_part", "put_part", "commit", "put"))
        per_gib = GIB / kind.ledger.size
        figures.append(Figure(f"{name}: CPU of ours a GiB", median(cpu[name]), "s"))
        figures.append(Figure(f"{name}: requests a GiB", requests * per_gib, ""))
        figures.append(Figure(f"{name}: of which writes and copies", writes * per_gib, ""))
    return figures


def _read(kind: _Kind) -> int:
    return sum(_size_read(kind.stores.archive, key) for key in kind.segments)


def _size_read(store: ObjectStore, key: str) -> int:
    found = store.stat(key)
    if found is None:
        raise IntegrityError(f"{key} is gone")
    return sum(len(chunk) for chunk in read_ranges(store, key, 0, found.size, 8 * MIB))


def _build(kind: _Kind, *, copies: bool) -> int:
    builder = LedgerBuilder(kind.stores, workers=PieceThreads(THREADS), settings=BuildSettings("benchmark"))
    if not copies:
        builder.copies_refused()
    found = builder.build(TOPIC, kind.ledger)
    if not isinstance(found, BuiltLedger):
        raise IntegrityError(f"{found} was not built")
    return found.ledger.size


def _written(name: str, archive: ObjectStore, bucket: ObjectStore, entry_size: int, total: int) -> _Kind:
    """The archive of one ledger, as the application writes it, and a ledger behind it, so that it is closed."""
    counted = CountedStore(archive), _Bucket(bucket)
    made = Archive(store=cast("MemoryStore", archive))
    made.claim(LEDGER)
    payload = Random(1).randbytes(entry_size - 64).hex()[: entry_size - 64]
    data = message(payload)
    count = max(total // len(data), 1)
    step = max(min(SEGMENT, total // 2) // len(data), 1)
    for first in range(0, count, step):
        entries = [Stored(LEDGER, entry, data) for entry in range(first, min(first + step, count))]
        made.add(entries, cuts=SegmentLayout())
    keys = tuple(data_key(TOPIC, one.uuid) for one in made.catalog.segments)
    size = sum(one.size for one in made.catalog.segments)
    ledger = BridgedLedger(LEDGER, count - 1, count * len(data), str(UUID(int=entry_size)))
    return _Kind(name, BridgeStores(*counted), counted, replace(ledger, size=size), keys)
