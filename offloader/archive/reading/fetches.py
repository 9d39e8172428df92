"""Which bytes of an object are fetched, in which portions. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.archive.read_model import SplitPoint
from offloader.archive.reading.sparse_index import SparseIndex
from offloader.archive.runs import Run
from offloader.errors import DamagedObjectError


@dataclass(frozen=True, slots=True)
class RangeFetch:
    """The bytes `begin`..`end` of an object: the stretches of its points `first`..`after` - 1, whole.

    Only a stretch that is longer than a fetch may be has several fetches, which it has for itself. All but the first of
    them `continue` the one before.
    """

    begin: int
    end: int
    first: int
    after: int
    continues: bool = False


def fetches(
    points: SparseIndex, runs: Iterable[Run], read_size: int, cuts: Iterable[SplitPoint] = ()
) -> Iterator[RangeFetch]:
    """The fetches that cover all entries of the runs, in order, none longer than `read_size`. Raises
    DamagedObjectError.

    Whole parts in `cuts` are fetched whole. Each fetch then lies in one part, and a part's fetches are about equally
    long: the reader gives a part's entries when it has checked all of it.
    """
    whole = [cut for cut in cuts if cut.crc32c is not None]
    portions = _Portions(whole, read_size)
    first = after = 0  # the stretches that come next
    for begin, end in sorted([*_stretches(points, runs), *_of_parts(points, whole)]):
        for number in range(max(begin, after), end):
            start = points.begin(first)
            size = points.begin(number + 1) - start
            if first < after == number and size <= read_size and not portions.ends(start, points.begin(number)):
                after = number + 1
                continue
            yield from _cut(points, first, after, read_size)
            first, after = number, number + 1
    yield from _cut(points, first, after, read_size)


class _Portions:
    """Where a fetch should end so that parts are fetched in equal portions."""

    def __init__(self, whole: Iterable[SplitPoint], read_size: int) -> None:
        parts = sorted((cut.begin, cut.size) for cut in whole)
        self._begins = [begin for begin, _ in parts]
        self._sizes = [size for _, size in parts]
        self._read_size = read_size

    def ends(self, start: int, at: int) -> bool:
        """Whether a fetch that began at `start` should not go on at `at`."""
        of_start, of_at = self._part(start), self._part(at)
        if of_start != of_at or of_start is None:
            return of_start != of_at
        size = self._sizes[of_start]
        return at - start >= size / -(-size // self._read_size)

    def _part(self, offset: int) -> int | None:
        number = bisect_right(self._begins, offset) - 1
        return number if number >= 0 and offset < self._begins[number] + self._sizes[number] else None


def _stretches(points: SparseIndex, runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    """Each run's stretches, as the numbers of the first one and of the one after the last."""
    for run in runs:
        if run.gap is not None:
            continue
        first, last = points.at(run.ledger, run.first), points.at(run.ledger, run.last)
        if first is None or last is None:
            raise DamagedObjectError(f"the index names no place from which {run.ledger}:{run.first} can be read")
        yield first, last + 1


def _of_parts(points: SparseIndex, whole: Iterable[SplitPoint]) -> Iterator[tuple[int, int]]:
    """The stretches of parts, which begin and end with blocks."""
    for part in whole:
        yield bisect_left(points.offsets, part.begin), bisect_left(points.offsets, part.begin + part.size)


def _cut(points: SparseIndex, first: int, after: int, read_size: int) -> Iterator[RangeFetch]:
    if first == after:
        return
    begin, end = points.begin(first), points.begin(after)
    for at in range(begin, end, read_size):
        yield RangeFetch(at, min(at + read_size, end), first, after, continues=at > begin)
