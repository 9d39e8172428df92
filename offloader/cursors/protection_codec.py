"""What is protected of a topic's subscriptions, to and from bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offloader._proto import metadata_pb2 as pb
from offloader.cursors.core.acknowledged import AcknowledgedSet, acks_of_bits, bits_of
from offloader.cursors.core.piece_codec import decode_piece, encode_piece
from offloader.cursors.core.protection import Incarnation, Protection, RecordId
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, deltas, read_topic, sums, topic_message
from offloader.model import TopicName


@dataclass(frozen=True, slots=True)
class ProtectedTopic:
    """`at`: when it was looked at, in ms. `cursors`: by name, those of which a broker would forget something."""

    topic: TopicName
    at: int
    cursors: Mapping[str, Protection] = field(default_factory=dict)


def encode_protected(token: str, protected: ProtectedTopic) -> bytes:
    """The bytes of a record. `token`: of this very write."""
    cursors = [
        _message(name, one, one.memory) for name, one in sorted(protected.cursors.items()) if one.memory is not None
    ]
    message = pb.ProtectedCursors(topic=topic_message(protected.topic), at=protected.at, cursors=cursors)
    return wrap(token, pb.Body(protected_cursors=message))


def decode_protected(key: str, data: bytes) -> ProtectedTopic:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    m = unwrap_kind(key, data, "protected_cursors").body.protected_cursors
    with damage_of(key):
        return ProtectedTopic(read_topic(m.topic), m.at, {one.name: _read(one) for one in m.cursors})


def _message(name: str, one: Protection, memory: AcknowledgedSet) -> pb.ProtectedCursor:
    ledgers = sorted(memory.bits)
    return pb.ProtectedCursor(
        name=name,
        topic_created=one.incarnation.topic,
        cursor_born=one.incarnation.cursor,
        node_version=one.record.node,
        ledger=one.record.ledger,
        entry=one.record.entry,
        metadata_version=one.record.metadata,
        mark_ledger=memory.mark_delete[0],
        mark_entry=memory.mark_delete[1],
        ledgers=deltas(ledgers),
        pieces=[encode_piece(acks_of_bits(memory.bits[ledger])) for ledger in ledgers],
    )


def _read(m: pb.ProtectedCursor) -> Protection:
    record = RecordId(m.node_version, m.ledger if m.HasField("ledger") else None, m.entry, m.metadata_version)
    pieces = {ledger: bits_of(decode_piece(one)) for ledger, one in zip(sums(m.ledgers), m.pieces, strict=True)}
    memory = AcknowledgedSet((m.mark_ledger, m.mark_entry), pieces)
    return Protection(Incarnation(m.topic_created, m.cursor_born), record, memory)
