"""What a subscription has acknowledged of one ledger."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from offloader.model import MIB

MOST_BYTES = 64 * MIB  # of a bit set: 512 million entries, ten thousand times a broker's usual ledger
MOST_ENTRIES = 8 * MOST_BYTES
MOST_MESSAGES = 1 << 20  # of a batch
_NOT_FULL = re.compile(rb"[^\xff]")
LEDGER_COST = 500  # bytes of memory that a ledger takes beside its bits and batches, about
_BATCH_COST = 200  # bytes of memory that a partly acknowledged batch takes beside its bits, about


class BatchLeft(NamedTuple):
    """A batch of `size` messages, partly acknowledged. Bit n of `left`: message n is still to be delivered."""

    size: int
    left: int


def _memory_of(batch: BatchLeft) -> int:
    return _BATCH_COST + batch.left.bit_length() // 7  # 30 bits of a number take 4 bytes


class LedgerAcks:
    """A set of entries, and the batches of which a part is acknowledged. Grows only, but for `drop_before`.

    One bit an entry, from the first to the last that is acknowledged: random holes cost no more than none."""

    __slots__ = ("_base", "_batch_memory", "_batches", "_bits")

    def __init__(self, base: int = 0, bits: bytes = b"", batches: Mapping[int, BatchLeft] | None = None) -> None:
        """`bits`: little-endian, the first one is of the entry `base`, a multiple of 8."""
        if base % 8:
            raise ValueError(f"the bits of a ledger begin with a multiple of 8, not with {base}")
        self._base = base
        self._bits = bytearray(bits)
        self._batches = dict(batches or {})
        self._batch_memory = sum(map(_memory_of, self._batches.values()))

    @property
    def base(self) -> int:
        """The entry of the first bit."""
        return self._base

    @property
    def bits(self) -> bytes:
        """A copy of the bits, from `base` on."""
        return bytes(self._bits)

    @property
    def batches(self) -> Mapping[int, BatchLeft]:
        """By entry."""
        return MappingProxyType(self._batches)

    @property
    def count(self) -> int:
        """How many entries are acknowledged as a whole."""
        return int.from_bytes(self._bits, "little").bit_count()

    @property
    def memory(self) -> int:
        """About how many bytes it takes."""
        return LEDGER_COST + len(self._bits) + self._batch_memory

    @property
    def batch_memory(self) -> int:
        """About how many bytes of that are those of batches."""
        return self._batch_memory

    def is_acknowledged(self, entry: int) -> bool:
        """Whether the entry is, as a whole."""
        at = (entry - self._base) >> 3
        return 0 <= at < len(self._bits) and bool(self._bits[at] >> (entry & 7) & 1)

    def acknowledge(self, first: int, last: int) -> bool:
        """The entries `first`..`last`. Returns whether anything changed. Raises ValueError where none is so long."""
        if not 0 <= first <= last < MOST_ENTRIES:
            raise ValueError(f"no ledger has entries {first} to {last}")
        self._reach(first, last)
        low, high = (first - self._base) >> 3, (last - self._base) >> 3
        before = bytes(self._bits[low : high + 1])
        head, tail = 0xFF << (first & 7) & 0xFF, 0xFF >> (7 - (last & 7))
        if low == high:
            self._bits[low] |= head & tail
        else:
            self._bits[low] |= head
            self._bits[low + 1 : high] = b"\xff" * (high - low - 1)
            self._bits[high] |= tail
        gone = self._without(first, last)
        return gone or before != self._bits[low : high + 1]

    def acknowledge_part(self, entry: int, size: int, left: int) -> bool:
        """Messages of a batch: those whose bit in `left` is 0. Returns whether anything changed. Raises ValueError
        where none is so large."""
        if not 1 <= size <= MOST_MESSAGES or not 0 <= entry < MOST_ENTRIES:
            raise ValueError(f"entry {entry} is no batch of {size} messages")
        if self.is_acknowledged(entry):
            return False
        before = self._batches.get(entry, BatchLeft(size, (1 << size) - 1))
        both = before.left & left
        if not both:
            return self.acknowledge(entry, entry)
        if both == before.left:
            return False
        self._drop_batch(entry)
        kept = self._batches[entry] = BatchLeft(max(before.size, size), both)
        self._batch_memory += _memory_of(kept)
        return True

    def count_in(self, first: int, last: int) -> int:
        """How many of the entries `first`..`last` are acknowledged as a whole."""
        low, high = max(first - self._base, 0), min(last + 1 - self._base, 8 * len(self._bits))
        if low >= high:
            return 0
        bits = int.from_bytes(self._bits[low >> 3 : (high + 7) >> 3], "little") >> (low & 7)
        return (bits & (1 << (high - low)) - 1).bit_count()

    def has_none_of(self, first: int, last: int) -> bool:
        """Whether nothing of the entries `first`..`last` is acknowledged, no part either."""
        if self.count_in(first, last):
            return False
        return not self._batches or self._batches.keys().isdisjoint(range(first, last + 1))

    def first_hole(self, entry: int) -> int:
        """The first entry from there on that is not acknowledged as a whole."""
        at = entry - self._base
        if not 0 <= at < 8 * len(self._bits):
            return entry
        head = self._bits[at >> 3] | (1 << (at & 7)) - 1
        if head == 0xFF:
            found = _NOT_FULL.search(self._bits, (at >> 3) + 1)
            if found is None:
                return self._base + 8 * len(self._bits)
            at, head = 8 * found.start(), found.group()[0]
        return self._base + (at & ~7) + (~head & head + 1).bit_length() - 1

    def drop_before(self, entry: int) -> None:
        """Forget what is below: it is at or before the mark-delete position."""
        if entry <= self._base and not self._batches:
            return
        for batch in [one for one in self._batches if one < entry]:
            self._drop_batch(batch)
        whole = min(max(entry - self._base, 0) >> 3, len(self._bits))
        del self._bits[:whole]
        self._base += 8 * whole
        if self._bits and self._base < entry:
            self._bits[0] &= 0xFF << (entry - self._base) & 0xFF

    def runs(self) -> Iterator[tuple[int, int]]:
        """The acknowledged entries as ranges, first and last, in order; none touches another."""
        begins, ends = self.edges()
        return zip((begins + self._base).tolist(), (ends + self._base - 1).tolist(), strict=True)

    def count_runs(self) -> int:
        """How many `runs` there are. Takes no more memory for it, however many."""
        count = last = 0
        for at in range(0, len(self._bits), MIB):
            ones = np.unpackbits(np.frombuffer(bytes(self._bits[at : at + MIB]), np.uint8), bitorder="little")
            count += int(np.count_nonzero(ones[1:] > ones[:-1])) + int(ones[0] > last)
            last = int(ones[-1])
        return count

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Where runs of ones begin, and where they end (exclusive), counted from `base`."""
        ones = np.unpackbits(np.frombuffer(bytes(self._bits), np.uint8), bitorder="little")
        changes = np.flatnonzero(np.diff(ones, prepend=np.uint8(0), append=np.uint8(0)))
        return changes[::2], changes[1::2]

    def __bool__(self) -> bool:
        return bool(self._batches) or any(self._bits)

    def _without(self, first: int, last: int) -> bool:
        """Batches that are acknowledged whole."""
        if first == last:
            return self._drop_batch(first)
        gone = [entry for entry in self._batches if first <= entry <= last]
        for entry in gone:
            self._drop_batch(entry)
        return bool(gone)

    def _drop_batch(self, entry: int) -> bool:
        kept = self._batches.pop(entry, None)
        if kept is not None:
            self._batch_memory -= _memory_of(kept)
        return kept is not None

    def _reach(self, first: int, last: int) -> None:
        """Have bits for these entries."""
        if not self._bits:
            self._base = first & ~7
        if first < self._base:
            more = (self._base - first + 7) >> 3
            self._bits[:0] = bytes(more)
            self._base -= 8 * more
        short = ((last - self._base) >> 3) + 1 - len(self._bits)
        if short > 0:
            self._bits += bytes(short)


def acks_of(runs: Iterable[tuple[int, int]], batches: Mapping[int, BatchLeft] | None = None) -> LedgerAcks:
    """Of ranges, first and last."""
    found = LedgerAcks(batches=batches)
    for first, last in runs:
        found.acknowledge(first, last)
    return found
