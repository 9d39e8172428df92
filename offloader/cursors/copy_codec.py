"""Copies of subscriptions, to and from bytes. Pure."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from offloader._proto import metadata_pb2 as pb
from offloader.cursors.copies import CopiedCursor, CursorCopy, CursorSource
from offloader.cursors.core.piece_codec import decode_piece
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, deltas, read_topic, sums, topic_message, word


def encode_copy(token: str, copy: CursorCopy) -> bytes:
    """A copy's bytes. `token`: of this very write."""
    message = pb.CursorCopy(
        topic=topic_message(copy.topic),
        incarnation=copy.incarnation,
        at=copy.at,
        broker_version=copy.broker_version,
        cursors=map(_message, copy.cursors),
    )
    return wrap(token, pb.Body(cursor_copy=message))


def decode_copy(key: str, data: bytes) -> CursorCopy:
    """The copy that `key` holds. Of a subscription whose pieces are damaged it says that: the others have nothing to do
    with it. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "cursor_copy").body.cursor_copy
    with damage_of(key):
        return CursorCopy(
            read_topic(m.topic), m.incarnation, m.at, tuple(_read(key, one) for one in m.cursors), m.broker_version
        )


def digest_of(copy: CursorCopy) -> bytes:
    """The same for copies that say the same of all subscriptions, whenever, and wherever, they were read."""
    bare = (
        replace(
            one,
            properties=tuple(sorted(one.properties)),
            subscription_properties=tuple(sorted(one.subscription_properties)),
            sources=(),
            missing=("everything",) if one.damage else ("something",) if one.missing else (),
        )
        for one in copy.cursors
    )
    return sha256(encode_copy("", replace(copy, at=0, broker_version="", cursors=tuple(bare)))).digest()


def _message(cursor: CopiedCursor) -> pb.CopiedCursor:
    ledgers = sorted(cursor.pieces)
    return pb.CopiedCursor(
        name=cursor.name,
        mark_ledger=cursor.mark_delete[0],
        mark_entry=cursor.mark_delete[1],
        ledgers=deltas(ledgers),
        pieces=[cursor.pieces[ledger] for ledger in ledgers],
        properties=[pb.NamedNumber(name=name, value=value) for name, value in cursor.properties],
        subscription_properties=[pb.Property(key=name, value=value) for name, value in cursor.subscription_properties],
        replicated=cursor.replicated,
        sources=cursor.sources,
        missing=cursor.missing,
    )


def _read(key: str, m: pb.CopiedCursor) -> CopiedCursor:
    damage = ""
    try:
        for piece in m.pieces:
            decode_piece(piece)
    except DamagedRecordError as error:
        damage = f"{key}: subscription {m.name}: {error}"
    return CopiedCursor(
        name=m.name,
        mark_delete=(m.mark_ledger, m.mark_entry),
        pieces={} if damage else dict(zip(sums(m.ledgers), m.pieces, strict=True)),
        properties=tuple((one.name, one.value) for one in m.properties),
        subscription_properties=tuple((one.key, one.value) for one in m.subscription_properties),
        replicated=m.replicated,
        sources=tuple(word(CursorSource, source) for source in m.sources),
        missing=tuple(m.missing),
        damage=damage,
    )
