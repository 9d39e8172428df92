"""Which bytes of an object are fetched, in which portions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.archive.reading.points import Points
from offloader.archive.runs import Run
from offloader.errors import DamagedObjectError


@dataclass(frozen=True, slots=True)
class Fetch:
    """The bytes `begin`..`end` of an object: the stretches of its points `first`..`after` - 1, whole.

    Only a stretch that is longer than a fetch may be has several fetches, which it has for itself. All but the first of them `continue`
    the one before.
    """

    begin: int
    end: int
    first: int
    after: int
    continues: bool = False


def fetches(points: Points, runs: Iterable[Run], read_size: int) -> Iterator[Fetch]:
    """What has all entries of the runs, in order; no fetch is longer than `read_size`. Raises DamagedObjectError."""
    first = after = 0  # the stretches that come next
    for begin, end in _stretches(points, runs):
        for number in range(max(begin, after), end):
            size = points.begin(number + 1) - points.begin(first)
            if first < after == number and size <= read_size:
                after = number + 1
                continue
            yield from _cut(points, first, after, read_size)
            first, after = number, number + 1
    yield from _cut(points, first, after, read_size)


def _stretches(points: Points, runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    """Each run's stretches, as the numbers of the first one and of the one after the last."""
    for run in runs:
        if run.gap is not None:
            continue
        first, last = points.at(run.ledger, run.first), points.at(run.ledger, run.last)
        if first is None or last is None:
            raise DamagedObjectError(f"the index names no place from which {run.ledger}:{run.first} can be read")
        yield first, last + 1


def _cut(points: Points, first: int, after: int, read_size: int) -> Iterator[Fetch]:
    if first == after:
        return
    begin, end = points.begin(first), points.begin(after)
    for at in range(begin, end, read_size):
        yield Fetch(at, min(at + read_size, end), first, after, continues=at > begin)
