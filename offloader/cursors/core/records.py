"""What one record of a subscription's log says: values, to and from bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.value_codec import damage_of, deltas, sums
from offloader.model import Position

LedgerKey = tuple[int, int]
"""Incarnation and ledger; their order is that of positions."""
FORGOTTEN = (("offloader.forgotten", 1),)
"""The properties of a subscription that was deleted."""
ROLE = "offloader.role."
"""Behind it the role that began the subscription, as far as it is kept."""
HAND_OVER = frozenset({"offloader.hand-over", "offloader.handed-over"})
"""The properties of a subscription that was handed over to brokers, or was about to be: see HandedOverError."""
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
    """Where a subscription stands. `mark_delete` None: it is not known, and `trouble` says why."""

    name: str
    mark_delete: Position | None
    trouble: str = ""


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


def encode_record(token: str, epoch: int, slot: int, record: PieceRecord) -> bytes:
    """A record's bytes, as it stands there."""
    marker = record.marker
    named = sorted(marker.pieces.items())
    mark = marker.mark_delete
    message = pb.CursorPieces(
        epoch=epoch,
        slot=slot,
        mark_incarnation=mark.incarnation,
        mark_ledger=mark.ledger,
        mark_entry=mark.entry,
        properties=[pb.NamedNumber(name=name, value=value) for name, value in marker.properties],
        incarnations=deltas(key[0] for key, _ in named),
        ledgers=deltas(key[1] for key, _ in named),
        epochs=deltas(piece.epoch for _, piece in named),
        slots=deltas(piece.slot for _, piece in named),
        piece_bytes=[piece.size for _, piece in named],
        pieces=[record.inline[key] for key, piece in named if piece.record == (epoch, slot)],
    )
    return wrap(token, pb.Body(cursor_pieces=message))


def decode_record(key: str, epoch: int, slot: int, data: bytes) -> PieceRecord | None:
    """The record that `key` holds; None: a fence. Raises DamagedRecordError, FormatVersionError."""
    opened = unwrap(key, data)
    if opened.kind == "fence":
        return None
    if opened.kind != "cursor_pieces":
        raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong into a subscription's log")
    m = opened.body.cursor_pieces
    if (m.epoch, m.slot) != (epoch, slot):
        raise DamagedRecordError(f"{key}: it is record {m.slot} of epoch {m.epoch}")
    with damage_of(key):
        ledgers = zip(sums(m.incarnations), sums(m.ledgers), strict=True)
        places = zip(sums(m.epochs), sums(m.slots), m.piece_bytes, strict=True)
        pieces = dict(zip(ledgers, (PieceAt(*place) for place in places), strict=True))
        own = (ledger for ledger, piece in pieces.items() if piece.record == (epoch, slot))
        inline = dict(zip(own, m.pieces, strict=True))
        if any(pieces[ledger].size != len(piece) for ledger, piece in inline.items()):
            raise ValueError("a piece has another size than the marker says")
        if any(piece.record > (epoch, slot) for piece in pieces.values()):
            raise ValueError("the marker names a later record")
    mark = Position(m.mark_incarnation, m.mark_ledger, m.mark_entry)
    return PieceRecord(CursorMarker(mark, tuple((one.name, one.value) for one in m.properties), pieces), inline)
