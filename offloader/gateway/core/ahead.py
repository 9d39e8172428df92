"""Entries that were read and that the one consumer has not taken yet."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter

from offloader.gateway.values import ServedEntry, size_of
from offloader.model import Place

_place = attrgetter("place")


class EntriesAhead:
    """In the topic's order. `size`: bytes of all of them."""

    def __init__(self) -> None:
        self.size = 0
        self._entries: list[ServedEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[ServedEntry]) -> None:
        """Those that come behind all others."""
        self._entries.extend(entries)
        self.size += size_of(entries)

    def take(self, permits: int) -> tuple[list[ServedEntry], int]:
        """The first ones, until they have as many messages as there are permits, or the last one has a few more. The
        entries and how many messages they have."""
        messages = count = 0
        for entry in self._entries:
            if messages >= permits:
                break
            messages += entry.messages if entry.left is None else entry.messages_left
            count += 1
        return self._first(count), messages

    def drop_up_to(self, place: Place) -> None:
        """They are acknowledged."""
        self._first(bisect_right(self._entries, place, key=_place))

    def shrink(self, place: Place, left: int) -> bool:
        """Only these messages of an entry may still be delivered. Returns whether it is here."""
        number = bisect_left(self._entries, place, key=_place)
        if number == len(self._entries) or self._entries[number].place != place:
            return False
        entry = self._entries[number]
        kept = entry.without(left)
        if kept is not None:
            self._entries[number] = kept
        else:
            del self._entries[number]
            self.size -= len(entry.data)
        return True

    def _first(self, count: int) -> list[ServedEntry]:
        taken = self._entries[:count]
        del self._entries[:count]
        self.size -= size_of(taken)
        return taken
