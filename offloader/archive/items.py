"""What reading back gives: entries, and what is recorded in place of entries."""

from __future__ import annotations

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

    `kind` says which gap it is; None: a loss, a break that nothing proves to be none, or damage. `damaged`: they are
    archived, but could not be read from the object of this key; the reason names the offset.
    """

    start: Position
    end: Position
    why: str
    kind: GapKind | None = None
    damaged: str = ""

    @property
    def entries(self) -> EntryRange:
        """The positions, where they are of one ledger: those of a gap and of damage are."""
        return EntryRange.closed(self.start.ledger, self.start.entry, self.end.entry)

    def as_error(self) -> DamagedObjectError:
        """What damage is where it is not to be skipped."""
        return DamagedObjectError(self.why.removeprefix(DAMAGED))


Item = ArchivedEntry | Missing
