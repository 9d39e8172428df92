"""Entries of one ledger with consecutive ids, prepared to be cut many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.format.entry import EntryFacts, inspect
from offloader.format.many import ManyFacts, inspect_all
from offloader.format.scan import Int64s

_HEADER = np.dtype([("length", ">i4"), ("entry", ">i8")])  # as blocks.ENTRY_HEADER


@dataclass(frozen=True)
class Consecutive:
    """`first`: the first one's id. `ends`: object bytes up to each entry's end, without those of blocks."""

    ledger: int
    first: int
    entries: Sequence[bytes]
    ends: Int64s
    facts: ManyFacts
    _inspected: dict[int, EntryFacts] = field(default_factory=dict, repr=False)  # at irregular ones, once

    @classmethod
    def of(cls, ledger: int, first: int, entries: Sequence[bytes]) -> Consecutive:
        """Look into all of them."""
        lengths = np.fromiter(map(len, entries), np.int64, len(entries))
        return cls(ledger, first, entries, np.cumsum(lengths + ENTRY_HEADER_SIZE), inspect_all(entries))

    def __len__(self) -> int:
        return len(self.entries)

    def before(self, number: int) -> int:
        """Object bytes before the entry of this number."""
        return int(self.ends[number - 1]) if number else 0

    def size(self, count: int) -> int:
        """The sum of the first entries' lengths."""
        return self.before(count) - count * ENTRY_HEADER_SIZE

    def facts_of(self, number: int) -> EntryFacts:
        """What one entry says of itself."""
        return self.facts.of(number) if self.regular_up_to(number) > number else self._irregular(number)

    def unreadable(self) -> list[int]:
        """The numbers of those that are no messages."""
        return [number for number in self.facts.irregular.tolist() if self._irregular(number).unreadable]

    def regular_up_to(self, number: int) -> int:
        """The first irregular entry at or after this one, or how many there are."""
        irregular = self.facts.irregular
        at = int(irregular.searchsorted(number))
        return int(irregular[at]) if at < len(irregular) else len(self)

    def fitting(self, size: int) -> int:
        """How many entries, from the first one on, end within so many object bytes."""
        return int(self.ends.searchsorted(size, side="right"))

    def pieces(self, first: int, behind: int) -> Iterator[bytes]:
        """Header and entry, header and entry, of the entries number `first` to `behind` - 1."""
        headers = np.empty(behind - first, _HEADER)
        headers["length"] = np.diff(self.ends[first:behind], prepend=self.before(first)) - ENTRY_HEADER_SIZE
        headers["entry"] = np.arange(self.first + first, self.first + behind)
        packed: list[bytes] = headers.view(f"V{ENTRY_HEADER_SIZE}").tolist()
        return chain.from_iterable(zip(packed, self.entries[first:behind], strict=True))

    def _irregular(self, number: int) -> EntryFacts:
        if number not in self._inspected:
            self._inspected[number] = inspect(self.entries[number])
        return self._inspected[number]
