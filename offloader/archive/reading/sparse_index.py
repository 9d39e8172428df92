"""Where reading of a data object may begin, as its index object says: packed, since many are kept. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from itertools import chain, pairwise

from offloader.errors import DamagedObjectError
from offloader.format.blocks import HEADER_SIZE
from offloader.format.index import Index, decode_index
from offloader.format.v1 import decode_ledger_index


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """The index entries in the object's order, by number from 0. The bytes from one point to the next are a
    *stretch*."""

    data_length: int
    ledgers: array[int]
    entries: array[int]
    blocks: array[int]
    offsets: array[int]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes(self) -> int:
        """What it takes in memory."""
        return 4 * self.offsets.itemsize * len(self)

    def opens(self, number: int) -> bool:
        """Whether the stretch begins with a block's header."""
        return number == 0 or self.blocks[number - 1] != self.blocks[number]

    def begin(self, number: int) -> int:
        """Where the stretch begins; for the number after the last, where the object ends."""
        if number == len(self):
            return self.data_length
        return self.offsets[number] if self.opens(number) else self.offsets[number] + HEADER_SIZE

    def block_of(self, number: int) -> tuple[int, int]:
        """The numbers of the first point of this one's block, and of the next block's first point."""
        block = self.blocks[number]
        return self._first_of(block), self._first_of(block + 1)

    def at(self, ledger: int, entry: int) -> int | None:
        """The last point at or before an entry; None where there is none of its ledger."""
        first = bisect_right(self.ledgers, ledger - 1)
        after = bisect_right(self.ledgers, ledger)
        number = bisect_right(self.entries, entry, first, after) - 1
        return number if number >= first else None

    def _first_of(self, block: int) -> int:
        return bisect_right(self.blocks, block - 1)


def decode_points(data: bytes, ledger: int | None) -> SparseIndex:
    """Read an index object: a segment's, or a ledger's (V1), which does not say whose it is. Raises
    DamagedObjectError."""
    index = decode_index(data) if ledger is None else decode_ledger_index(data, ledger)
    found = index.entries() if isinstance(index, Index) else iter(index.entries)
    values = array("q", chain.from_iterable((e.ledger, e.entry, e.block, e.offset) for e in found))
    points = SparseIndex(index.data_length, values[0::4], values[1::4], values[2::4], values[3::4])
    _check(points)
    return points


def _check(points: SparseIndex) -> None:
    """Ledgers, which ascend, must lie in the object in their order, in blocks of their own."""
    for number, (before, after) in enumerate(pairwise(points.offsets), 1):
        same = points.ledgers[number - 1] == points.ledgers[number]
        if before >= after or points.blocks[number - 1] + (not same) > points.blocks[number]:
            raise DamagedObjectError(
                f"index: {points.ledgers[number]}:{points.entries[number]} in block {points.blocks[number]} at offset "
                f"{after} is out of order"
            )
    if points.offsets[0] != 0:
        raise DamagedObjectError(f"index: the first block is at offset {points.offsets[0]} and not at 0")
