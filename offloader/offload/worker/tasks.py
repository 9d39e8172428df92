"""A Spark task on an executor: the slices of one partition, worked through by a small pool of threads. Connections are
kept per process and settings, because Spark reuses its Python workers but pins none of them."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial

from pyspark import TaskContext

from offloader.bookkeeper.connect import BookKeeperSettings
from offloader.errors import OffloadError
from offloader.metadata.stock_keys import STOCK_BUCKET
from offloader.model import Receipt, Slice
from offloader.offload.worker.entry_sources import UNWRAPPED, EntrySources, Wrapper
from offloader.offload.worker.secrets import Public, with_secrets
from offloader.offload.worker.slice_worker import died, refused, run_slice
from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What an executor needs to reach Pulsar, its bookies and the store, but for credentials."""

    public: Public
    bookkeeper: BookKeeperSettings | None
    threads: int
    wrapper: Wrapper = UNWRAPPED
    stock: str = ""  # the URL of the bucket of Pulsar's own offloader


def answers(slices: list[bytes], settings: bytes) -> Iterator[bytes]:
    """Pickled receipts of pickled slices, as they come."""
    work: list[Slice] = [pickle.loads(value) for value in slices]  # noqa: S301 (our own driver's)
    context = TaskContext.get()
    died_before = context is not None and context.attemptNumber() > 0
    receipts = map(died, work) if died_before else run_slices(work, pickle.loads(settings))  # noqa: S301 (the same)
    return map(pickle.dumps, receipts)


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


def _run(work: Slice, sources: EntrySources, store: ObjectStore) -> Receipt:
    try:
        source = sources.of(work)
    except OffloadError as error:
        return refused(work, error)
    return run_slice(work, source, store, _clock_ms)


def _clock_ms() -> int:
    return time.monotonic_ns() // 1_000_000


_open: dict[tuple[object, ...], tuple[EntrySources, ObjectStore]] = {}
_opening = threading.Lock()


def _connections(settings: WorkerSettings) -> tuple[EntrySources, ObjectStore]:
    wrapper = settings.wrapper
    reached = (settings.public, settings.bookkeeper, wrapper, settings.stock)
    with _opening:
        if reached not in _open:
            pulsar, storage = with_secrets(settings.public, os.environ)
            stock = (
                partial(open_store, storage.beside(settings.stock, STOCK_BUCKET), read_only=True)
                if settings.stock
                else None
            )
            sources = EntrySources(pulsar, settings.bookkeeper, wrapper=wrapper, stock=stock)
            _open[reached] = sources, wrapper.store(open_store(storage))
        return _open[reached]
