"""`cutter`: how fast entries are cut into parts, beside a plain join of the same bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import crc32c

from benchmarks.figures import Figure, Report, rates
from benchmarks.options import Options
from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.format.cutter import Consecutive, CutPart, PartCutter
from offloader.format.entry import EntryFacts, inspect
from offloader.model import GIB, KIB, MIB, SegmentLayout

TOTAL = 128 * MIB
PER_JOIN = 8 * MIB
PER_RUN = 1_000


def entry_of(size: int) -> bytes:
    """An entry as a producer's client frames it, about `size` bytes long."""
    metadata = MessageMetadata(producer_name="standalone-0-12", sequence_id=1, publish_time=1_700_000_000_000)
    encoded = metadata.SerializeToString()
    body = len(encoded).to_bytes(4, "big") + encoded + os.urandom(size - len(encoded) - 10)
    return b"\x0e\x01" + crc32c.crc32c(body).to_bytes(4, "big") + body


def join(entries: list[bytes]) -> None:
    per_join = PER_JOIN // len(entries[0])
    for begin in range(0, len(entries), per_join):
        b"".join(entries[begin : begin + per_join])


def cut(entries: list[bytes], look: Callable[[bytes], EntryFacts] = lambda _: EntryFacts()) -> None:
    cutter = PartCutter(SegmentLayout(), first_part=1, offset=0, first_block=1, room=2 * GIB)
    for entry, data in enumerate(entries):
        if cutter.would_exceed_room(len(data), 1, entry):
            raise RuntimeError("the benchmark's object is too large")
        part = cutter.offer(1, entry, data, look(data))
        if part is not None:
            part.data()
    last = cutter.finish()
    if last is not None:
        last.data()


def cut_runs(entries: list[bytes], per_run: int) -> Iterator[CutPart]:
    """Look into the entries and cut them as slices do: so many at a time as a reader hands over."""
    cutter = PartCutter(SegmentLayout(), first_part=1, offset=0, first_block=1, room=2 * GIB)
    for first in range(0, len(entries), per_run):
        run = Consecutive.of(1, first, entries[first : first + per_run])
        taken = 0
        while taken < len(run):
            count, part = cutter.offer_all(run, taken)
            if not count:
                raise RuntimeError("the benchmark's object is too large")
            taken += count
            if part is not None:
                yield part
    last = cutter.finish()
    if last is not None:
        yield last


def join_runs(entries: list[bytes], per_run: int) -> None:
    for part in cut_runs(entries, per_run):
        part.data()


def rate(work: Callable[[], None], size: int) -> float:
    begun = time.perf_counter()
    work()
    return size / (time.perf_counter() - begun) / 1e6


def run(options: Options) -> Report:
    figures = [figure for size in (KIB, 100 * KIB) for figure in _one_size(options, size)]
    return Report("cutter", f"{TOTAL // MIB} MiB of entries in memory", figures)


def _one_size(options: Options, size: int) -> list[Figure]:
    distinct = [entry_of(size) for _ in range(PER_JOIN // size)]
    entries = (distinct * (TOTAL // PER_JOIN + 1))[: TOTAL // size]
    label = f"{size // KIB} KiB"
    base = f"plain join, {label}"
    works: dict[str, Callable[[], None]] = {
        base: lambda: join(entries),
        f"cut and join, {label}": lambda: cut(entries),
        f"inspect, cut and join, {label}": lambda: cut(entries, inspect),
        f"the same, runs of {PER_RUN}, {label}": lambda: join_runs(entries, PER_RUN),
    }
    measured: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(options.rounds):
        for name, work in works.items():
            measured[name].append(rate(work, len(entries) * len(entries[0])))
    return rates(measured, base)
