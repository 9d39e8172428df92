"""Where the segments of a topic's history end: found by binary search over the sizes of its ledgers, and over the
publish times of its entries. Pure.

A border inside a ledger is the entry that the ledger's average entry leads to. So a segment aims a little below its
largest size; where its entries are larger than the average nevertheless, it is full before its end, and ends there.

By time a segment is cut so that it can go when its entries are too old to be kept, and so that who reads a day reads
little else. It keeps an eighth of its largest size at least: whatever the times say, there are few objects. A roll time
says how soon live entries can be read; of history it says nothing, that is late already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from offloader.model import LedgerList, LedgerSums, Position

AIM = 0.95  # of the largest size
LEAST = 1 / 8  # of that: by time alone no segment is smaller, and so close to the time a border is found


def end_of_history(ledgers: LedgerList, *limits: Position | None) -> Position | None:
    """The last entry of a closed ledger; not behind a limit. None: there is none, or a limit is not known."""
    if None in limits:
        return None
    closed = ledgers.newest_closed()
    if closed is None:
        return None
    found = [limit for limit in limits if limit is not None]
    return min([Position(found[0].incarnation if found else 0, *closed), *found])


Times = Mapping[Position, int | None]
"""Publish times of entries; None: nobody can say it."""
NO_TIMES: Times = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cut:
    """Where segments end; and whose times must be known before it can be said where more of them do."""

    ends: tuple[Position, ...]
    wanted: tuple[Position, ...] = ()


class ClosedLedgers:
    """The entries of `begin`..`end`, all of closed ledgers."""

    def __init__(self, sums: LedgerSums, begin: Position, end: Position) -> None:
        self._incarnation = begin.incarnation
        self._sums = sums
        self._before = sums.number(begin)
        self._count = sums.number(end.next_entry) - self._before
        self._begins = sums.bytes_of(self._before)

    @property
    def size(self) -> float:
        """Object bytes of all of it."""
        return self._bytes_of(self._count)

    def cut(self, first: float, each: float, most: int, span_ms: int = 0, times: Times = NO_TIMES) -> Cut:
        """Where `most` segments end at most, of which the first takes `first` bytes, and each other one `each`; at
        least an entry. Entries of one are no more than `span_ms` apart, as long as it is not small (0: whatever they
        are). What is left behind the last is smaller than a segment."""
        ends: list[Position] = []
        done, size = 0, first
        while len(ends) < most and self._bytes_of(done) + size <= self.size:
            end: int | tuple[Position, ...] = max(self._entries_in(self._bytes_of(done) + size), done + 1)
            if span_ms and isinstance(end, int):
                end = self._within(done, end, each * LEAST, span_ms, times)
            if not isinstance(end, int):
                return Cut(tuple(ends), end)
            ends.append(self._position(end))
            done, size = end, each
        return Cut(tuple(ends))

    def _within(self, done: int, end: int, least: float, span_ms: int, times: Times) -> int | tuple[Position, ...]:
        """How many entries end before one that is too far from the first, by binary search; or whose times to ask."""
        dates = _Dates(self._sums.written, span_ms, times)
        begin, last = self._position(done + 1), self._position(end)
        unknown = tuple(p for p in (begin, last) if not dates.known(p))
        if unknown:
            return unknown
        begun, small = dates.earliest(begin), self._bytes_of(done) + least
        inside, beyond = max(self._entries_in(small), done + 1), end
        if begun is None or not _later(dates.latest(last), begun + span_ms) or inside >= end:
            return end
        while beyond - inside > 1:
            middle = (inside + beyond) // 2
            asked = self._position(middle)
            near = self._bytes_of(beyond) - self._bytes_of(inside) <= least * LEAST
            if near and not dates.dated(asked):
                break  # not worth a look-up
            if not dates.known(asked):
                return (asked,)
            if _later(dates.latest(asked), begun + span_ms):
                beyond = middle
            else:
                inside = middle
        return inside

    def _bytes_of(self, entries: int) -> float:
        """What so many entries take."""
        return self._sums.bytes_of(self._before + entries) - self._begins

    def _entries_in(self, size: float) -> int:
        """How many entries take no more than so many bytes."""
        return min(self._sums.number_in(self._begins + size) - self._before, self._count)

    def _position(self, entries: int) -> Position:
        """The last of so many entries."""
        return Position(self._incarnation, *self._sums.place(self._before + entries - 1))


@dataclass(frozen=True, slots=True)
class _Dates:
    """When entries were published: of a ledger that was written within the span, its opening and its close say enough.
    In a longer one each entry is asked for."""

    written: Mapping[int, tuple[int, int]]
    span_ms: int
    times: Times

    def known(self, position: Position) -> bool:
        return position in self.times or self.dated(position)

    def dated(self, position: Position) -> bool:
        """Whether its ledger says enough."""
        return self._short(position) is not None

    def earliest(self, position: Position) -> int | None:
        short = self._short(position)
        return self.times.get(position) if short is None else short[0]

    def latest(self, position: Position) -> int | None:
        short = self._short(position)
        return self.times.get(position) if short is None else short[1]

    def _short(self, position: Position) -> tuple[int, int] | None:
        found = self.written.get(position.ledger)
        return found if found is not None and found[1] - found[0] <= self.span_ms else None


@dataclass(frozen=True, slots=True)
class BorderSearch:
    """A search that waits for the times of some entries: whoever can look them up goes on with it."""

    closed: ClosedLedgers
    first: float
    each: float
    most: int
    span_ms: int

    def cut(self, times: Times) -> Cut:
        """As far as these times lead."""
        return self.closed.cut(self.first, self.each, self.most, self.span_ms, times)

    def untimed(self, times: Times) -> Times:
        """These times, and that nobody can say the others that are wanted: size decides."""
        while wanted := self.cut(times).wanted:
            times = {**times, **dict.fromkeys(wanted)}
        return times


def _later(time: int | None, limit: int) -> bool:
    return time is not None and time > limit
