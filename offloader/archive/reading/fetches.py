"""Which bytes of an object each request fetches. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from offloader.archive.object_range import Run, SplitPoint
from offloader.archive.reading.sparse_index import SparseIndex
from offloader.errors import DamagedObjectError


@dataclass(frozen=True, slots=True)
class RangeFetch:
    """The bytes `begin`..`end` of an object: the whole index intervals `first`..`after` - 1.

    An interval that is too long for one fetch has several of its own; all but the first of these `continue` it.
    """

    begin: int
    end: int
    first: int
    after: int
    continues: bool = False


def fetches(
    index: SparseIndex, runs: Iterable[Run], read_size: int, split_points: Iterable[SplitPoint] = ()
) -> Iterator[RangeFetch]:
    """The fetches that cover all entries of the runs, in order, none longer than `read_size`. Raises
    DamagedObjectError.

    Whole parts in `split_points` are fetched whole, each in fetches of about the same length that hold nothing else:
    the reader gives a part's entries when it has checked all of it.
    """
    whole = [point for point in split_points if point.crc32c is not None]
    portions = _Portions(whole, read_size)
    first = after = 0  # the intervals that come next
    for begin, end in sorted(_intervals(index, runs, whole)):
        for number in range(max(begin, after), end):
            start = index.begin(first)
            size = index.begin(number + 1) - start
            if first < after == number and size <= read_size and not portions.ends(start, index.begin(number)):
                after = number + 1
                continue
            yield from _cut(index, first, after, read_size)
            first, after = number, number + 1
    yield from _cut(index, first, after, read_size)


class _Portions:
    """Divides each part among fetches of about the same length."""

    def __init__(self, whole: Iterable[SplitPoint], read_size: int) -> None:
        self._parts = sorted((part.begin, part.size) for part in whole)
        self._read_size = read_size

    def ends(self, start: int, at: int) -> bool:
        """Whether a fetch that began at `start` should not go on at `at`."""
        of_start, of_at = self._part(start), self._part(at)
        if of_start != of_at or of_start is None:
            return of_start != of_at
        size = of_start[1]
        return at - start >= size / -(-size // self._read_size)

    def _part(self, offset: int) -> tuple[int, int] | None:
        number = bisect_right(self._parts, offset, key=itemgetter(0)) - 1
        begin, size = self._parts[number] if number >= 0 else (0, 0)
        return (begin, size) if offset < begin + size else None


def _intervals(index: SparseIndex, runs: Iterable[Run], whole: Iterable[SplitPoint]) -> Iterator[tuple[int, int]]:
    """The intervals of each run and of each whole part: the number of the first, and the one after the last."""
    for run in runs:
        if run.gap is not None:
            continue
        first, last = index.at(run.ledger, run.first), index.at(run.ledger, run.last)
        if first is None or last is None:
            raise DamagedObjectError(f"the index names no place from which {run.ledger}:{run.first} can be read")
        yield first, last + 1
    for part in whole:  # which begins and ends with a block
        yield bisect_left(index.offsets, part.begin), bisect_left(index.offsets, part.begin + part.size)


def _cut(index: SparseIndex, first: int, after: int, read_size: int) -> Iterator[RangeFetch]:
    if first == after:
        return
    begin, end = index.begin(first), index.begin(after)
    for at in range(begin, end, read_size):
        yield RangeFetch(at, min(at + read_size, end), first, after, continues=at > begin)
