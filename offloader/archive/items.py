"""What reading gives: entries, one by one or many in one buffer, and what is missing in their place. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from offloader.errors import DamagedObjectError
from offloader.model import EntryRange, GapKind, Position

DAMAGED = "damaged: "


class ArchivedEntry(NamedTuple):
    """An entry: where it was in its topic, and its bytes as BookKeeper stored them."""

    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class Missing:
    """The positions `start`..`end`, both included, of which there is no data, and in words why.

    `kind` says which gap it is; None: a loss, a deletion, a break that nothing proves to be none, or damage.
    `damaged`: they are archived, but could not be read from the object of this key; the reason names the offset.
    `deleted`: they were archived, and a policy or an operator had them deleted, which the catalog records.
    """

    start: Position
    end: Position
    why: str
    kind: GapKind | None = None
    damaged: str = ""
    deleted: bool = False

    @property
    def entries(self) -> EntryRange:
        """The positions, where they are of one ledger: those of a gap and of damage are."""
        return EntryRange.closed(self.start.ledger, self.start.entry, self.end.entry)

    def as_error(self) -> DamagedObjectError:
        """What damage is where it is not to be skipped."""
        return DamagedObjectError(self.why.removeprefix(DAMAGED))


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Entries `first`..`last` of one ledger, as they lie in one buffer.

    `bounds` has 2 x `count` numbers: entry `first + n` is `data[bounds[2 * n] : bounds[2 * n + 1]]`. `offset` is where
    `data` begins in the object, in bytes.
    """

    ledger: int
    first: int
    incarnation: int
    data: memoryview
    bounds: Sequence[int]
    offset: int

    @property
    def count(self) -> int:
        return len(self.bounds) // 2

    @property
    def after(self) -> int:
        return self.first + self.count

    @property
    def last(self) -> int:
        return self.after - 1

    @property
    def start(self) -> Position:
        return Position(self.incarnation, self.ledger, self.first)

    @property
    def end(self) -> Position:
        return Position(self.incarnation, self.ledger, self.last)

    def entries(self) -> Iterator[ArchivedEntry]:
        """The entries one by one, each with a copy of its bytes."""
        ledger, incarnation, bounds = self.ledger, self.incarnation, iter(self.bounds)
        whole = self.data.obj  # a slice of it is one copy; one of a view is a view first
        data = whole if isinstance(whole, bytes) and len(whole) == len(self.data) else self.data
        for entry, begin, end in zip(range(self.first, self.after), bounds, bounds, strict=True):
            yield ArchivedEntry(Position(incarnation, ledger, entry), bytes(data[begin:end]))

    def part(self, first: int, after: int) -> EntryRun:
        """Its entries from `first` up to, and without, `after`, which must be in it."""
        if first == self.first and after == self.after:
            return self
        bounds = self.bounds[2 * (first - self.first) : 2 * (after - self.first)]
        return EntryRun(self.ledger, first, self.incarnation, self.data, bounds, self.offset)

    def since(self, position: Position) -> EntryRun | None:
        """What comes from a position on; None where nothing does."""
        if position <= self.start:
            return self
        return self.part(position.entry, self.after) if position <= self.end else None

    def until(self, position: Position) -> EntryRun | None:
        """What comes up to a position, which is included; None where nothing does."""
        if position >= self.end:
            return self
        return self.part(self.first, position.next_entry.entry) if position >= self.start else None


Item = ArchivedEntry | Missing
ReadItem = EntryRun | Missing
