"""`cursors`: a subscription with holes everywhere: its memory, what it writes, how soon it is there again."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from benchmarks.figures import Figure, Report
from benchmarks.options import Options
from offloader.cursors.core.cursor import CACHE_BYTES
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.model import KIB, MIB, AcknowledgedRange, Position, joined
from offloader.ports.object_store import Stat
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_entry
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.local import LocalStore

Entries = npt.NDArray[np.int64]

LEDGERS, ENTRIES = 1_000, 20_000  # half of the entries are acknowledged, at random: 10,000,000 holes
PER_FLUSH = 10_000
SCATTERED = 20_000  # later acknowledgements, anywhere
FOLDER = "cursor/"
MOST_RANGES = 10_000  # Pulsar's managedLedgerMaxUnackedRangesToPersist
MOST_ENTRY = 5 * MIB  # of BookKeeper, by default


class Counted(ForwardingStore):
    """Counts the bytes that are written."""

    written = 0

    def put(
        self,
        key: str,
        data: bytes,
        *,
        meta: Mapping[str, str] | None = None,
        if_absent: bool = False,
        as_upload: bool = False,
    ) -> Stat | None:
        self.written += len(data)
        return super().put(key, data, meta=meta, if_absent=if_absent, as_upload=as_upload)


def run(options: Options) -> Report:
    """One round: nothing is compared."""
    numbers, store = np.random.default_rng(14), Counted(LocalStore(options.folder / "cursors"))
    taken = [_half(numbers) for _ in range(LEDGERS)]
    tokens = (f"token-{number}" for number in itertools.count())
    cursor = _open(store, tokens)
    began = time.perf_counter()
    _acknowledge_in_order(cursor, taken)
    total = sum(map(len, taken))
    per_one = (time.perf_counter() - began) / total
    in_order, store.written = store.written, 0
    options.say("cursors: all is written in the topic's order")
    began = time.perf_counter()
    _acknowledge_anywhere(cursor, numbers)
    per_scattered = (time.perf_counter() - began) / SCATTERED
    scattered = store.written
    began = time.perf_counter()
    again = _open(store, tokens)
    again.next_left(Position(0, 0, 0))
    recovered = time.perf_counter() - began
    stored = sum(size for _, size in store.list(FOLDER))
    figures = [
        _memory(store, tokens, numbers),
        Figure("written for an acknowledgement, in the topic's order", in_order / total, "bytes"),
        Figure("written for an acknowledgement, anywhere", scattered / SCATTERED, "bytes"),
        Figure("time for an acknowledgement, in order", per_one * 1e6, "us"),
        Figure("time for an acknowledgement, anywhere", per_scattered * 1e6, "us"),
        Figure("all of it, as it stands in the store", stored / KIB, "KiB"),
        Figure("from a start to the first entry to deliver", recovered * 1e3, "ms"),
        *_of_pulsar(taken),
    ]
    return Report(
        "cursors", f"{LEDGERS * ENTRIES - total:,} holes in {LEDGERS:,} ledgers, {total:,} acknowledged", figures
    )


def _memory(store: Counted, tokens: Iterator[str], numbers: np.random.Generator) -> Figure:
    """All that Python allocates while a cursor is opened and acknowledges anywhere."""
    tracemalloc.start()
    cursor = _open(store, tokens)
    _acknowledge_anywhere(cursor, numbers, SCATTERED // 10)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    target = f"ledgers {CACHE_BYTES / MIB:.0f} MiB, and what a flush and the marker take"
    return Figure(f"memory, most ({cursor.memory / MIB:.1f} MiB of it ledgers)", most / MIB, "MiB", target=target)


def _open(store: Counted, tokens: Iterator[str]) -> DurableCursor:
    return DurableCursor.open(store, FOLDER, lambda: FirstState(Position(0, 0, -1)), lambda: next(tokens))


def _half(numbers: np.random.Generator) -> Entries:
    return np.flatnonzero(numbers.random(ENTRIES) < 0.5)


def _acknowledge_in_order(cursor: DurableCursor, taken: list[Entries]) -> None:
    count = 0
    for ledger, entries in enumerate(taken):
        for entry in entries.tolist():
            cursor.acknowledge((0, ledger), entry, entry)
            count += 1
            if count % PER_FLUSH == 0:
                cursor.flush()
    cursor.flush()


def _acknowledge_anywhere(cursor: DurableCursor, numbers: np.random.Generator, number: int = SCATTERED) -> None:
    places = numbers.integers((0, 0), (LEDGERS, ENTRIES), (number, 2)).tolist()
    for count, (ledger, entry) in enumerate(places, 1):
        cursor.acknowledge((0, ledger), entry, entry)
        if count % PER_FLUSH == 0:
            cursor.flush()


def _of_pulsar(taken: list[Entries]) -> list[Figure]:
    """What one write of a broker's would be: it writes the whole state each time, and leaves out what is too much."""
    state = CursorState((0, -1), joined(_ranges(taken)))
    sizes = {
        "as ranges": len(encode_cursor_entry(state)),
        "as long arrays": len(encode_cursor_entry(state, dense=True)),
    }
    kept = sum(last[1] - after[1] for after, last in state.ranges[: MOST_RANGES + 1])
    total = sum(map(len, taken))
    found = [Figure(f"one write of Pulsar's, {name}, of all", size / KIB, "KiB") for name, size in sizes.items()]
    lost = Figure("lost by Pulsar's bound of 10,000 ranges", total - kept, "acknowledgements")
    return [*found, lost]


def _ranges(taken: list[Entries]) -> Iterator[AcknowledgedRange]:
    for ledger, entries in enumerate(taken):
        for entry in entries.tolist():
            yield AcknowledgedRange((ledger, entry - 1), (ledger, entry))
