"""A topic's ledgers, and what is held of one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from offloader.model.position import EntryRange, Position


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
