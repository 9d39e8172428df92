"""Index entries, and those of one part in few bytes: a thousand open segments of 1 GiB have four million."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import starmap
from struct import Struct
from typing import Self

_ENTRY = Struct(">4q")  # ledger, entry, block, offset


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One mapping of the index object: reading may begin at `offset` + 128 with `entry`.

    `block` is the number of the block in the object, from 1 (`partId` in the format); `offset` is absolute.
    """

    ledger: int
    entry: int
    block: int
    offset: int


class PartIndex:
    """A part's index entries, packed. Never changes; equal to any other that holds the same entries.

    Pickles as what it holds, wherever that comes from.
    """

    __slots__ = ("_packed",)

    def __init__(self, packed: bytes = b"") -> None:
        self._packed = packed

    @classmethod
    def of(cls, entries: Iterable[IndexEntry]) -> Self:
        """These entries."""
        return cls(b"".join(_ENTRY.pack(e.ledger, e.entry, e.block, e.offset) for e in entries))

    @property
    def packed(self) -> bytes:
        """What the constructor takes."""
        return self._packed

    def __len__(self) -> int:
        return len(self._packed) // _ENTRY.size

    def __iter__(self) -> Iterator[IndexEntry]:
        return starmap(IndexEntry, _ENTRY.iter_unpack(self.packed))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartIndex):
            return NotImplemented
        return self is other or (len(self) == len(other) and self.packed == other.packed)

    def __hash__(self) -> int:
        return hash(len(self))  # the entries need not be read for it

    def __reduce__(self) -> tuple[type[PartIndex], tuple[bytes]]:
        return PartIndex, (self.packed,)

    def __repr__(self) -> str:
        return f"PartIndex.of({list(self)})"
