"""The records of a subscription's log, to and from bytes. Pure."""

from __future__ import annotations

from offloader._proto import metadata_pb2 as pb
from offloader.cursors.core.records import CursorMarker, PieceAt, PieceRecord
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import unwrap, wrap
from offloader.metadata.value_codec import damage_of, deltas, sums
from offloader.model import Position


def encode_fence(token: str) -> bytes:
    """Behind a former owner's last record: nothing follows in its epoch."""
    return wrap(token, pb.Body(fence=pb.Fence()))


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
