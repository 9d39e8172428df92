"""Where reading of a data object may begin, as its index object says, and which bytes each request fetches. Pure.

Indexes are packed, since many are kept."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from operator import itemgetter

from offloader.archive.object_range import Run, SplitPoint
from offloader.errors import DamagedObjectError
from offloader.format.blocks import HEADER_SIZE
from offloader.format.index import Index, decode_index
from offloader.format.v1 import decode_ledger_index


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The index entries (points) in the object's order, by number from 0; from one to the next is an *interval*."""

    data_length: int
    ledgers: array[int]
    entries: array[int]
    blocks: array[int]
    offsets: array[int]

    def __len__(self) -> int:
        return len(self.offsets)

    def check_length(self, size: int | None) -> None:
        """Raises DamagedObjectError where the catalog says another size of the data object."""
        if size not in (None, self.data_length):
            raise DamagedObjectError(f"it is of an object of {self.data_length} bytes, the catalog's has {size}")

    def opens(self, number: int) -> bool:
        """Whether the interval begins with a block's header."""
        return number == 0 or self.blocks[number - 1] != self.blocks[number]

    def begin(self, number: int) -> int:
        """Where the interval begins; for the number after the last, where the object ends."""
        if number == len(self):
            return self.data_length
        return self.offsets[number] if self.opens(number) else self.offsets[number] + HEADER_SIZE

    def block_of(self, number: int) -> tuple[int, int]:
        """The numbers of the first point of this one's block, and of the next block's first point."""
        block = self.blocks[number]
        return bisect_left(self.blocks, block), bisect_right(self.blocks, block)

    def at(self, ledger: int, entry: int) -> int | None:
        """The last point at or before an entry; None where there is none of its ledger."""
        first = bisect_right(self.ledgers, ledger - 1)
        after = bisect_right(self.ledgers, ledger)
        number = bisect_right(self.entries, entry, first, after) - 1
        return number if number >= first else None


def decode_sparse_index(data: bytes, ledger: int | None) -> SparseIndex:
    """Read the index object of a segment, or of a ledger (V1: it does not say which). Raises DamagedObjectError."""
    decoded = decode_index(data) if ledger is None else decode_ledger_index(data, ledger)
    found = decoded.entries() if isinstance(decoded, Index) else iter(decoded.entries)
    values = array("q", chain.from_iterable((e.ledger, e.entry, e.block, e.offset) for e in found))
    index = SparseIndex(decoded.data_length, values[0::4], values[1::4], values[2::4], values[3::4])
    for number, (before, after) in enumerate(pairwise(index.offsets), 1):  # a ledger has blocks of its own
        same = index.ledgers[number - 1] == index.ledgers[number]
        if before >= after or index.blocks[number - 1] + (not same) > index.blocks[number]:
            raise DamagedObjectError(
                f"index: {index.ledgers[number]}:{index.entries[number]} in block {index.blocks[number]} at offset "
                f"{after} is out of order"
            )
    if index.offsets[0] != 0:
        raise DamagedObjectError(f"index: the first block is at offset {index.offsets[0]} and not at 0")
    return index


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
