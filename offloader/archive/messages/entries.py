"""Entries of one or more runs in one buffer. Numpy arrays say where each lies and which one it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from offloader.archive.items import EntryRun
from offloader.format.scan import Bytes, Int64s, Ranges
from offloader.model import MIB, Position

_WORTH_ITS_OWN = 1 * MIB


@dataclass(frozen=True)
class Entries:
    """Entries in the topic's order. `offset` is where each lies in its object."""

    data: Bytes
    ranges: Ranges
    incarnation: Int64s
    ledger: Int64s
    entry: Int64s
    offset: Int64s

    def __len__(self) -> int:
        return len(self.ranges)

    def position(self, number: int) -> Position:
        return Position(int(self.incarnation[number]), int(self.ledger[number]), int(self.entry[number]))

    def bytes(self, number: int) -> memoryview:
        return self.data.data[self.ranges.begin[number] : self.ranges.end[number]]

    def part(self, first: int, last: int) -> Entries:
        """The entries number `first`..`last` - 1."""
        these = slice(first, last)
        return Entries(
            self.data,
            self.ranges[these],
            self.incarnation[these],
            self.ledger[these],
            self.entry[these],
            self.offset[these],
        )


def gathered(runs: Iterable[EntryRun], *, wait: bool = True) -> Iterator[Entries]:
    """The runs' entries, small runs in one copy: few entries cost what follows as much as many. Without `wait` each run
    comes as it is, before the next one is asked for."""
    worth = _WORTH_ITS_OWN if wait else 0
    small: list[EntryRun] = []
    size = 0
    for run in runs:
        if not run.count:
            continue
        length = run.bounds[-1] - run.bounds[0]
        if small and (length >= worth or size >= worth):
            yield _together(small)
            small, size = [], 0
        if length >= worth:
            yield entries_of(run)
        else:
            small.append(run)
            size += length
    if small:
        yield _together(small)


def entries_of(run: EntryRun) -> Entries:
    """A run's entries, where they lie."""
    bounds = np.asarray(run.bounds, np.int64)
    begin = bounds[::2]
    return Entries(
        np.frombuffer(run.data or b"\0", np.uint8),
        Ranges(begin, bounds[1::2]),
        np.full(run.count, run.incarnation, np.int64),
        np.full(run.count, run.ledger, np.int64),
        np.arange(run.first, run.after, dtype=np.int64),
        begin + run.offset,
    )


def _together(runs: list[EntryRun]) -> Entries:
    if len(runs) == 1:
        return entries_of(runs[0])
    used = [run.data[run.bounds[0] : run.bounds[-1]] for run in runs]
    counts = np.array([run.count for run in runs], np.int64)
    starts = np.cumsum([0, *map(len, used[:-1])])  # of the runs in the copy
    shifts = np.repeat(np.array([run.bounds[0] for run in runs], np.int64) - starts, counts)
    bounds = np.concatenate([np.asarray(run.bounds, np.int64) for run in runs])
    firsts = np.array([run.first for run in runs]) - (np.cumsum(counts) - counts)
    return Entries(
        np.frombuffer(b"".join(used) or b"\0", np.uint8),
        Ranges(bounds[::2] - shifts, bounds[1::2] - shifts),
        np.repeat(np.array([run.incarnation for run in runs], np.int64), counts),
        np.repeat(np.array([run.ledger for run in runs], np.int64), counts),
        np.repeat(firsts, counts) + np.arange(len(shifts)),
        np.repeat(np.array([run.offset for run in runs], np.int64), counts) + bounds[::2],
    )
