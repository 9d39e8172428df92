"""Going through a topic's entries without passing one over: the expected position, gaps, silence. Pure.

Three account for every entry: a slice, a reader that follows a topic, a reader that fills a broker's gaps from bookies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice
from typing import Self

from offloader.model.ledger import LedgerList
from offloader.model.position import EntryRange, Position

QUIET_SECONDS = 1.0  # a broker that is silent for so long may be before entries that it does not deliver

Delivered = Sequence[tuple[int, int, bytes]]
"""Ledger, entry, and the entry's bytes."""


class Turn(Enum):
    """What an entry is to who expects a position, unless a gap is before it."""

    EXPECTED = auto()
    SEEN = auto()  # it was accounted for already
    UNKNOWN = auto()  # it is in a later ledger, and the list does not say where the expected one ends


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a topic is accounted for. `expected` is the next position; None: the list has no ledger for it (yet).

    `bound`: the last (ledger, entry) that is wanted; None: there is no end."""

    ledgers: LedgerList
    expected: Position | None
    bound: tuple[int, int] | None = None

    @property
    def done(self) -> bool:
        """Whether nothing more can be expected: the bound is passed, or no ledger is listed for what follows."""
        return self.expected is None or (self.bound is not None and self.expected.place > self.bound)

    def turn_of(self, found: tuple[int, int]) -> Turn | EntryRange:
        """What (ledger, entry) is. A range is the gap before it, up to the end of its ledger or the bound."""
        expected = self.expected
        if expected is None:
            return Turn.UNKNOWN
        if found == expected.place:
            return Turn.EXPECTED
        return Turn.SEEN if found < expected.place else self._gap(expected, found)

    def rest(self) -> EntryRange | None:
        """What is left of the ledger up to the bound; None: nothing, or nobody knows where the ledger ends."""
        if self.done or self.expected is None or self.bound is None:
            return None
        gap = self._gap(self.expected, (self.bound[0], self.bound[1] + 1))
        return gap if isinstance(gap, EntryRange) else None

    def in_turn(self, entries: Delivered, begin: int) -> int:
        """How many entries, from number `begin` on, are the expected one and those after it in its ledger."""
        expected = self.expected
        if expected is None or self.done or entries[begin][:2] != expected.place:
            return 0
        end = self.end_of(expected.ledger)
        return unbroken(entries, begin, None if end is None else max(end - expected.entry, 1))

    def reached(self, entry: int) -> Walk:
        """When the entries of the expected position's ledger are accounted for up to this one."""
        return self if self.expected is None else self.behind(self.expected.at(entry))

    def behind(self, position: Position) -> Walk:
        """When everything up to this position is accounted for: it may go on in the next ledger."""
        return replace(self, expected=self.ledgers.successor(position))

    def stopped(self) -> Walk:
        """When nothing says what comes next."""
        return replace(self, expected=None)

    def _gap(self, expected: Position, found: tuple[int, int]) -> Turn | EntryRange:
        if self.bound is not None and found > self.bound:
            found = self.bound[0], self.bound[1] + 1
        end = found[1] if found[0] == expected.ledger else self.end_of(expected.ledger)
        return Turn.UNKNOWN if end is None else EntryRange(expected.ledger, expected.entry, end)

    def end_of(self, ledger: int) -> int | None:
        """The entry id after the ledger's last one, or after the bound; None: it is open."""
        last = self.bound[1] if self.bound is not None and ledger == self.bound[0] else self.ledgers.closed_with(ledger)
        return None if last is None else last + 1


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long nothing has come, and when somebody last looked into that. Times are in the unit of who asks."""

    quiet: float  # so long nobody minds
    heard: float
    looked: float

    @classmethod
    def begin(cls, quiet: float, now: float) -> Self:
        """None yet."""
        return cls(quiet, now, now)

    def broken(self, now: float) -> Self:
        """Something has come."""
        return replace(self, heard=now, looked=now)

    def looked_into(self, now: float) -> Self:
        """It is minded again when it has lasted as long once more."""
        return replace(self, looked=now)

    def lasted(self, now: float) -> float:
        """Since something came."""
        return now - self.heard

    def too_long(self, now: float) -> bool:
        """Whether it is to be looked into."""
        return now - self.looked >= self.quiet


def unbroken(entries: Delivered, begin: int, most: int | None = None) -> int:
    """How many entries, from number `begin` on, follow each other in one ledger; at most `most`."""
    ledger, first, _ = entries[begin]
    wanted = first
    for found_ledger, found, _ in islice(entries, begin, None if most is None else begin + most):
        if found != wanted or found_ledger != ledger:
            break
        wanted += 1
    return wanted - first
