"""A Spark task on an executor: the slices of one partition, worked through by a small pool of threads.

Connections and store clients are kept per process and settings, because Spark reuses its Python workers but pins none of them.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext

from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.errors import OffloadError
from offloader.model import Receipt, Slice
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.base import ObjectStore
from offloader.storage.open import StoreSettings, open_store
from offloader.streaming.reading import Sources
from offloader.streaming.worker import died, refused, run_slice
from offloader.streaming.wrapping import wrapped_store

RECEIPT_SCHEMA = "receipt binary"
RECEIPT_ARROW_SCHEMA = pa.schema([("receipt", pa.binary())])


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What an executor needs to reach Pulsar, its bookies and the store."""

    pulsar: PulsarSettings
    bookkeeper: BookKeeperSettings | None
    storage: StoreSettings
    threads: int


def worker_function(settings: WorkerSettings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows of slices in, rows of receipts out."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slices = [pickle.loads(value) for batch in batches for value in batch.column(0).to_pylist()]  # noqa: S301 (our own driver's)
        context = TaskContext.get()
        died_before = context is not None and context.attemptNumber() > 0
        receipts = map(died, slices) if died_before else run_slices(slices, settings)
        for receipt in receipts:
            yield pa.record_batch([pa.array([pickle.dumps(receipt)], pa.binary())], schema=RECEIPT_ARROW_SCHEMA)

    return work


def run_slices(slices: list[Slice], settings: WorkerSettings) -> Iterator[Receipt]:
    """Receipts as they come."""
    try:
        sources, store = _connections(settings)
    except OffloadError as error:
        yield from (refused(work, error) for work in slices)
        return
    with ThreadPoolExecutor(settings.threads, thread_name_prefix="slice") as pool:
        running = [pool.submit(_run, work, sources, store) for work in slices]
        for done in as_completed(running):
            yield done.result()


def _run(work: Slice, sources: Sources, store: ObjectStore) -> Receipt:
    try:
        source = sources.of(work)
    except OffloadError as error:
        return refused(work, error)
    return run_slice(work, source, store, _clock_ms)


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_open: dict[WorkerSettings, tuple[Sources, ObjectStore]] = {}
_opening = threading.Lock()


def _connections(settings: WorkerSettings) -> tuple[Sources, ObjectStore]:
    with _opening:
        if settings not in _open:
            sources = Sources(settings.pulsar, settings.bookkeeper)
            _open[settings] = sources, wrapped_store("worker", open_store(settings.storage))
        return _open[settings]
