"""A topic's ledgers as sums in which to search: built once a list of ledgers, and asked in each round. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import accumulate

from offloader.model.position import Position

ENTRY_OVERHEAD = 12  # bytes that the object format adds to an entry


class LedgerSums:
    """Entries by their number, counted through all ledgers, and the object bytes that they take, by each ledger's
    average. `sizes`: of each ledger, its entries and their bytes; `written`: see `TopicInfo`."""

    def __init__(
        self, sizes: Mapping[int, tuple[int, int]], written: Mapping[int, tuple[int, int]] | None = None
    ) -> None:
        held = sorted((ledger, entries, size) for ledger, (entries, size) in sizes.items() if entries > 0)
        self.written = written or {}
        self._ledgers = [ledger for ledger, _, _ in held]
        self._each = [size / entries + ENTRY_OVERHEAD for _, entries, size in held]
        self._entries = list(accumulate((entries for _, entries, _ in held), initial=0))
        self._bytes = list(accumulate((size + entries * ENTRY_OVERHEAD for _, entries, size in held), initial=0))

    def __len__(self) -> int:
        return len(self._ledgers)

    def object_bytes(self, start: Position | None, last: Position | None) -> int:
        """What `start`..`last` would take; also of entries that came since the sizes were told."""
        if start is None or last is None or last < start:
            return 0
        return max(int(self._before(last.next_entry) - self._before(start)), 1)

    def _before(self, position: Position) -> float:
        at = bisect_left(self._ledgers, position.ledger)
        inside = at < len(self._ledgers) and self._ledgers[at] == position.ledger
        return self._bytes[at] + (position.entry * self._each[at] if inside else 0)

    def entries(self, start: Position | None, last: Position | None) -> int:
        """How many there are in `start`..`last`, also of those that came since the sizes were told."""
        if start is None or last is None or last < start:
            return 0
        if start.ledger == last.ledger:
            return last.next_entry.entry - start.entry
        at = bisect_left(self._ledgers, last.ledger)
        return max(self._entries[at] + last.next_entry.entry - self.number(start), 1)

    def number(self, position: Position) -> int:
        """How many entries are before this one."""
        at = bisect_left(self._ledgers, position.ledger)
        inside = at < len(self._ledgers) and self._ledgers[at] == position.ledger
        return min(self._entries[at] + position.entry, self._entries[at + 1]) if inside else self._entries[at]

    def place(self, number: int) -> tuple[int, int]:
        """The ledger and entry before which there are so many entries."""
        at = bisect_right(self._entries, number) - 1
        return self._ledgers[at], number - self._entries[at]

    def bytes_of(self, number: int) -> float:
        """What the first entries take, so many of them."""
        at = min(bisect_right(self._entries, number), len(self._ledgers)) - 1
        return 0.0 if at < 0 else self._bytes[at] + (number - self._entries[at]) * self._each[at]

    def number_in(self, size: float) -> int:
        """How many of the first entries take no more than so many bytes."""
        at = min(bisect_right(self._bytes, size), len(self._ledgers)) - 1
        if at < 0:
            return 0
        return min(self._entries[at] + int((size - self._bytes[at]) / self._each[at]), self._entries[at + 1])
