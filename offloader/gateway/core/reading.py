"""Where a subscription's reading stands, and what is being read for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from offloader.gateway.core.events import Decision, DispatchLimits, EntryAck, ReadAgain, ReadBehind
from offloader.gateway.values import BEFORE_ALL, ServedEntries, ServedEntry
from offloader.model import MIB, Place

REMEMBERED = 4 * MIB  # of acknowledgements that come while entries are read


class ReadAhead:
    """At most one read onwards is under way, and one of entries again: also where nobody waits for them any more.

    Whoever reads leaves out what was acknowledged before the read was decided. What is acknowledged later is
    remembered here until the entries come."""

    def __init__(self, limits: DispatchLimits, decide: Callable[[Decision], None]) -> None:
        self.most_entries = max(limits.read_ahead_entries // 2, 1)
        self.most_bytes = max(limits.read_ahead_bytes // 2, 1)
        self._decide = decide
        self._numbers = count(1)
        self._after: Place | None = None
        self._at_end = False
        self._onwards: _Onwards | None = None
        self._again: _Again | None = None

    @property
    def may_go_on(self) -> bool:
        """Whether there may be more, and nothing is under way."""
        return self._onwards is None and not self._at_end

    @property
    def is_at_end(self) -> bool:
        """Whether all that there is was read."""
        return self._at_end

    @property
    def may_read_again(self) -> bool:
        """Whether no such read is under way."""
        return self._again is None

    def go_on(self) -> None:
        """Ask for the next entries."""
        self._onwards = _Onwards(next(self._numbers))
        self._decide(ReadBehind(self._onwards.request, self._after, self.most_entries, self.most_bytes))

    def read_again(self, places: Sequence[Place]) -> None:
        """Ask for entries that were read before."""
        self._again = _Again(next(self._numbers), places)
        self._decide(ReadAgain(self._again.request, places))

    def rewind(self) -> None:
        """Begin at the mark-delete position. Nobody waits any more for what is under way."""
        self._after, self._at_end = None, False
        if self._onwards:
            self._onwards.is_wanted = False
        if self._again:
            self._again.is_wanted = False

    def grown(self) -> None:
        """The topic has new entries. A read that is under way may have missed them."""
        self._at_end = False
        if self._onwards:
            self._onwards.has_grown = True

    def acknowledged(self, place: Place, left: int) -> None:
        """An entry that may be among those that are being read."""
        if self._onwards and self._onwards.is_wanted and (self._after is None or place > self._after):
            self._onwards.acknowledged(place, left)

    def acknowledged_up_to(self, place: Place) -> None:
        """The same, up to and including a place."""
        if self._onwards:
            self._onwards.up_to = max(self._onwards.up_to, place)

    def came(self, request: int, read: ServedEntries) -> Sequence[ServedEntry]:
        """The read onwards is done. Returns what is to be delivered of it."""
        under_way = self._onwards
        if under_way is None or under_way.request != request:
            return ()
        self._onwards = None
        if not under_way.is_wanted:
            return ()
        if read.covered is None:
            self._at_end = not under_way.has_grown
        else:
            self._after = read.covered
        return under_way.still_to_deliver(read.entries)

    def came_again(self, request: int) -> Sequence[Place]:
        """The read of entries again is done, or failed. Returns which were asked for, if anybody still waits."""
        under_way = self._again
        if under_way is None or under_way.request != request:
            return ()
        self._again = None
        return under_way.places if under_way.is_wanted else ()

    def failed(self, request: int) -> None:
        """The read onwards failed."""
        if self._onwards and self._onwards.request == request:
            self._onwards = None


class _Onwards:
    def __init__(self, request: int) -> None:
        self.request = request
        self.is_wanted = True
        self.has_grown = False
        self.up_to = BEFORE_ALL
        self.left: dict[Place, int] = {}
        self._bytes = 0  # of `left`, about

    def acknowledged(self, place: Place, left: int) -> None:
        """No more than a bound: whoever acknowledges what it was never given would fill the memory. What is forgotten
        is delivered again, unless the cursor knows of it in time."""
        before = self.left.get(place)
        if before is not None:
            self.left[place] = left & before
        elif self._bytes < REMEMBERED:
            self.left[place] = left
            self._bytes += EntryAck(place, left).memory

    def still_to_deliver(self, entries: Sequence[ServedEntry]) -> Sequence[ServedEntry]:
        if not self.left and self.up_to == BEFORE_ALL:
            return entries
        found = []
        for entry in entries:
            if entry.place <= self.up_to:
                continue
            left = self.left.get(entry.place)
            kept = entry if left is None else entry.without(left)
            if kept is not None:
                found.append(kept)
        return found


class _Again:
    def __init__(self, request: int, places: Sequence[Place]) -> None:
        self.request = request
        self.is_wanted = True
        self.places = places
