"""Where an entry is in its topic, and the arithmetic of entry ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self


class Position(NamedTuple):
    """An entry's place in its topic. The order of the fields is the order of positions.

    Ledger ids grow within an incarnation but are not consecutive: a position's successor needs the ledger list.
    `entry == -1` means "before the ledger's first entry"."""

    incarnation: int
    ledger: int
    entry: int

    @classmethod
    def parse(cls, text: str, incarnation: int = 0) -> Position:
        """Read `ledger:entry`. Raises ValueError."""
        match = re.fullmatch(r"([0-9]+):(-1|[0-9]+)", text)
        if match is None:
            raise ValueError(f"{text!r} is not a position; write LEDGER:ENTRY, for example 12:345")
        return cls(incarnation, int(match.group(1)), int(match.group(2)))

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @property
    def place(self) -> tuple[int, int]:
        """Ledger and entry: all that Pulsar says of a position."""
        return self.ledger, self.entry

    @property
    def next_entry(self) -> Position:
        """The next entry id of the same ledger, whether or not the ledger has it."""
        return self.at(self.entry + 1)

    @property
    def previous_entry(self) -> Position:
        """The entry id before, of the same ledger; -1 before the first one."""
        return self.at(self.entry - 1)

    def at(self, entry: int) -> Position:
        """Another entry of the same ledger."""
        return Position(self.incarnation, self.ledger, entry)


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The entries of one ledger from `first` up to, and without, `after`."""

    ledger: int
    first: int
    after: int

    @classmethod
    def closed(cls, ledger: int, first: int, last: int) -> Self:
        """From bounds that are both included, as records and Pulsar have them."""
        return cls(ledger, first, last + 1)

    @property
    def last(self) -> int:
        """The last entry; the one before `first` where the range is empty."""
        return self.after - 1

    @property
    def span(self) -> int:
        """How many entry ids, 0 for a range that is empty."""
        return max(self.after - self.first, 0)

    @property
    def ids(self) -> range:
        return range(self.first, self.after)

    def has(self, other: EntryRange) -> bool:
        """Whether all of the other range lies in it."""
        return other.ledger == self.ledger and self.first <= other.first and other.after <= self.after

    def between(self, begin: tuple[int, int] | None = None, after: tuple[int, int] | None = None) -> Self | None:
        """What lies from one (ledger, entry) up to, and without, another; None: nothing. Each limit may be left out."""
        first, end = (self.ledger, self.first), (self.ledger, self.after)
        first = first if begin is None else max(first, begin)
        end = end if after is None else min(end, after)
        if first >= end or not first[0] == end[0] == self.ledger:
            return None
        return replace(self, first=first[1], after=end[1])

    def without(self, taken: Iterable[EntryRange]) -> Iterator[Self]:
        """What is left of it, in order. The taken ranges are of its ledger; they may overlap and reach further."""
        at = self.first
        for one in sorted(taken, key=lambda one: one.first):
            if at < min(one.first, self.after):
                yield replace(self, first=at, after=min(one.first, self.after))
            at = max(at, one.after)
        if at < self.after:
            yield replace(self, first=at)
