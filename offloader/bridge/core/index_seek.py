"""Where in a ledger's object an entry is to be looked for. Pure."""

from __future__ import annotations

from bisect import bisect_right

from offloader.format.blocks import HEADER_SIZE
from offloader.format.v1 import LedgerIndex


def floor_entry(index: LedgerIndex, entry: int) -> tuple[int, int, int]:
    """From which offset on, and up to which, entries stand that may be it, and the first one's id.

    Raises ValueError for an entry before the first one."""
    place = bisect_right(index.entries, entry, key=lambda one: one.entry) - 1
    if place < 0:
        raise ValueError(f"entry {entry} is before the first one")
    following = index.entries[place + 1 : place + 2]
    end = following[0].offset + HEADER_SIZE if following else index.data_length
    return index.entries[place].offset + HEADER_SIZE, end, index.entries[place].entry
