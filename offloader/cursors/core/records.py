"""What one record of a subscription's log says: values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader.model import Position

LedgerKey = tuple[int, int]
"""Incarnation and ledger; their order is that of positions."""
FORGOTTEN = (("offloader.forgotten", 1),)
"""The properties of a subscription that was deleted."""
HANDED_OVER = "offloader.handed-over"
"""The property of a subscription that is at the brokers: since when, in ms."""
DELETED_ON = "offloader.deleted."
"""Behind it a day (YYYY-MM-DD): the property that counts the entries which were deleted then, and not acknowledged."""


class PieceAt(NamedTuple):
    """Which record holds a ledger's newest piece, and how many bytes that has. Epochs and slots grow."""

    epoch: int
    slot: int
    size: int

    @property
    def record(self) -> tuple[int, int]:
        """Epoch and slot."""
        return self.epoch, self.slot


@dataclass(frozen=True, slots=True)
class CursorMarker:
    """The whole state, by where its parts are. `mark_delete`: everything up to and including it is acknowledged.

    `properties`: Pulsar's long ones. A ledger that is not in `pieces` has nothing acknowledged behind the mark-delete
    position."""

    mark_delete: Position
    properties: tuple[tuple[str, int], ...] = ()
    pieces: Mapping[LedgerKey, PieceAt] = field(default_factory=dict)

    @property
    def records(self) -> frozenset[tuple[int, int]]:
        """Epoch and slot of every record that is named."""
        return frozenset(piece.record for piece in self.pieces.values())


@dataclass(frozen=True, slots=True)
class SubscriptionMark:
    """Where a subscription stands. `mark_delete` None: it is damaged, and nobody knows."""

    name: str
    mark_delete: Position | None


@dataclass(frozen=True, slots=True)
class PieceRecord:
    """One record: pieces, and the marker that names these and all others. There is no moment between the two."""

    marker: CursorMarker
    inline: Mapping[LedgerKey, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FirstState:
    """What a subscription begins with that has no state yet. `pieces`: what is acknowledged behind mark-delete."""

    mark_delete: Position
    properties: tuple[tuple[str, int], ...] = ()
    pieces: Mapping[LedgerKey, bytes] = field(default_factory=dict)

    def record(self, epoch: int) -> PieceRecord:
        """The first record of an epoch: one, so that a subscription has all of it or does not exist."""
        named = {key: PieceAt(epoch, 0, len(piece)) for key, piece in self.pieces.items()}
        return PieceRecord(CursorMarker(self.mark_delete, self.properties, named), self.pieces)


def key_of(position: Position) -> LedgerKey:
    """The ledger of a position."""
    return position.incarnation, position.ledger


def records_to_move(pieces: Iterable[PieceAt], most: int) -> frozenset[tuple[int, int]]:
    """Records whose pieces are to be written anew, so that no more than `most` are named: those with the fewest bytes.

    Half of them at once, so that this is not done with each record."""
    sizes: dict[tuple[int, int], int] = {}
    for piece in pieces:
        sizes[piece.record] = sizes.get(piece.record, 0) + piece.size
    if len(sizes) <= most:
        return frozenset()
    smallest = sorted(sizes, key=lambda record: (sizes[record], record))
    return frozenset(smallest[: len(sizes) - most // 2])
