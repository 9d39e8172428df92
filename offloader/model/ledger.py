"""A topic's ledgers, what is held of one, and their sums: built once a list of ledgers, and asked in each round."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate

from offloader.model.position import EntryRange, Position

ENTRY_OVERHEAD = 12  # bytes that the object format adds to an entry


@dataclass(frozen=True, slots=True)
class LedgerSpan:
    """One ledger of a topic's list. `last`: the last entry id it was closed with (-1: empty), None while it is open."""

    ledger: int
    last: int | None


class LedgerList:
    """A topic's ledgers in order, as Pulsar lists them: what makes a position's successor computable."""

    def __init__(self, spans: tuple[LedgerSpan, ...]) -> None:
        self.spans = tuple(sorted(spans, key=lambda s: s.ledger))
        self._by_id = {s.ledger: i for i, s in enumerate(self.spans)}

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._by_id

    def reaches(self, ledger: int) -> bool:
        """Whether the list has this ledger or a later one. Else it is older than what names this ledger."""
        return bool(self.spans) and self.spans[-1].ledger >= ledger

    def closed_with(self, ledger: int) -> int | None:
        """The ledger's last entry id, None while it is open or when it is not (any more) in the list."""
        i = self._by_id.get(ledger)
        return None if i is None else self.spans[i].last

    def has_ends(self, ends: Iterable[tuple[int, int]]) -> bool:
        """Whether several of these ledgers are listed, each closed with this last entry. One id proves nothing: another
        cluster gives it, too."""
        listed = [self.closed_with(ledger) == last for ledger, last in dict(ends).items() if ledger in self]
        return len(listed) > 1 and all(listed)

    def next_ledger(self, ledger: int) -> int | None:
        """The first listed ledger after this one that is open or not empty."""
        after = bisect_right(self.spans, ledger, key=lambda s: s.ledger)
        return next((self.spans[i].ledger for i in range(after, len(self.spans)) if self.spans[i].last != -1), None)

    def following(self, ledger: int) -> int | None:
        """The ledger that is listed right after this one, whatever it holds."""
        i = self._by_id.get(ledger)
        return None if i is None or i + 1 == len(self.spans) else self.spans[i + 1].ledger

    def predecessor(self, position: Position) -> Position | None:
        """The position right before; None where no listed ledger has it. In a ledger that is the entry id before."""
        if position.entry > 0:
            return position.previous_entry
        at = bisect_left(self.spans, position.ledger, key=lambda s: s.ledger)
        former = next((self.spans[i] for i in range(at - 1, -1, -1) if self.spans[i].last != -1), None)
        if former is None or former.last is None:
            return None
        return Position(position.incarnation, former.ledger, former.last)

    def newest_closed(self) -> tuple[int, int] | None:
        """The last entry of the last ledger that is closed and holds one."""
        return next(((s.ledger, s.last) for s in reversed(self.spans) if s.last is not None and s.last >= 0), None)

    def between(self, first: int, last: int) -> tuple[LedgerSpan, ...]:
        """What is listed from the ledger `first` to the ledger `last`."""
        begin = bisect_left(self.spans, first, key=lambda s: s.ledger)
        return self.spans[begin : bisect_right(self.spans, last, key=lambda s: s.ledger)]

    def successor(self, position: Position) -> Position | None:
        """The position right after; None when it cannot be known (yet): its ledger is not listed (any more), or it is
        full and no later one is listed. In an open ledger that is the next entry id."""
        if position.ledger not in self._by_id:
            return None
        last = self.closed_with(position.ledger)
        if last is None or position.entry < last:
            return position.next_entry
        following = self.next_ledger(position.ledger)
        return None if following is None else Position(position.incarnation, following, 0)


@dataclass(frozen=True, slots=True)
class LedgerRange(EntryRange):
    """What a part or a segment holds of one ledger: `count` entries of together `size` bytes, the others are gaps."""

    count: int = field(kw_only=True)
    size: int = field(kw_only=True)
    closed_with: int | None = field(default=None, kw_only=True)


def merge_ranges(ranges: Iterable[LedgerRange]) -> tuple[LedgerRange, ...]:
    """Neighbouring ranges of the same ledger as one, in the order given. The last known `closed_with` wins."""
    merged: list[LedgerRange] = []
    for following in ranges:
        if merged and merged[-1].ledger == following.ledger:
            before = merged.pop()
            closed_with = before.closed_with if following.closed_with is None else following.closed_with
            count, size = before.count + following.count, before.size + following.size
            following = replace(before, after=following.after, count=count, size=size, closed_with=closed_with)
        merged.append(following)
    return tuple(merged)


class GapKind(StrEnum):
    """Why a broker did not deliver an entry."""

    ABORTED = "aborted"  # an entry of an aborted transaction
    MARKER = "marker"  # a server-only marker (transaction, replicated subscription)
    FILTERED = "filtered"  # proven filtered, content unknown


@dataclass(frozen=True, slots=True)
class Gap(EntryRange):
    """Entries of one ledger that exist in Pulsar, are not in the segment, and are known to be `kind`."""

    kind: GapKind = field(kw_only=True)


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
