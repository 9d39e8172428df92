"""Where reading of a data object may begin, as its index object says: packed, since many are kept. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import chain, pairwise

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
