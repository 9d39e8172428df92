"""The catalog's records, to and from bytes."""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import UnsealedRecord, seal, unseal
from offloader.metadata.head_codec import (
    claim_message,
    closed_message,
    head_message,
    read_claim,
    read_closed,
    read_head,
)
from offloader.metadata.layout import slot_key
from offloader.metadata.part_codec import parts_message, read_parts
from offloader.metadata.state import (
    CatalogHead,
    Claim,
    GenerationBegun,
    GenerationEnded,
    LedgerClosed,
    Record,
    Said,
    record_uuid,
)
from offloader.metadata.value_codec import (
    cuts_message,
    damage_of,
    gap_message,
    ledger_message,
    position_message,
    read_cuts,
    read_gaps,
    read_ledgers,
    read_position,
    word,
)
from offloader.model import Loss, RollReason, Segment, Source, TopicName

HEAD_MAGIC = b"PSOH"
STANDING = struct.Struct(">4sII")

TOPIC = "topic"
"""The property of a segment's driver that says whose it is."""


class Written(NamedTuple):
    """A record of a catalog's log, its token, and what the records before it add up to."""

    before: CatalogHead
    record: Record
    token: str


def standing(before: CatalogHead, data: bytes) -> bytes:
    """A record's bytes, as they stand behind a head in the log."""
    head = head_message(before).SerializeToString(deterministic=True)
    return STANDING.pack(HEAD_MAGIC, crc32c(head), len(head)) + head + data


def opening(topic: TopicName, generation: int) -> bytes:
    """The first record of a generation that a rebuild has made, as it stands in the log."""
    return standing(
        CatalogHead(topic, generation=generation), encode_catalog(f"generation {generation}", GenerationBegun())
    )


def plain(data: bytes) -> bytes:
    """A record's bytes as they stand beside the segments, wherever these are from."""
    if data[:4] != HEAD_MAGIC or len(data) < STANDING.size:
        return data
    return data[STANDING.size + STANDING.unpack_from(data)[2] :]


def decode_slot(topic: TopicName, generation: int, slot: int, key: str, data: bytes) -> Written:
    """The record that `key` holds, which is the one of this place. Raises as `decode_catalog`."""
    try:
        magic, checksum, length = STANDING.unpack_from(data)
        said = data[STANDING.size : STANDING.size + length]
    except struct.error as error:
        raise DamagedRecordError(f"{key}: {len(data)} bytes that are no record of a log") from error
    if magic != HEAD_MAGIC or crc32c(said) != checksum:
        raise DamagedRecordError(f"{key}: {len(data)} bytes that are no record of a log or do not match their checksum")
    with damage_of(key):
        before = read_head(pb.Head.FromString(said))
    if (before.topic, before.generation, before.next_slot) != (topic, generation, slot):
        raise DamagedRecordError(
            f"{key}: it is a copy of {slot_key(before.topic, before.generation, before.next_slot)}"
        )
    token, record = decode_of(topic, key, data)
    return Written(before, record, token)


def encode_catalog(token: str, record: Record) -> bytes:
    """A record's bytes: the same for the same token and record."""
    match record:
        case Claim():
            body = pb.Body(claim=claim_message(record))
        case Segment():
            body = pb.Body(segment=_segment_message(record))
        case Loss():
            body = pb.Body(loss=_loss_message(record))
        case LedgerClosed():
            body = pb.Body(ledger_closed=closed_message(record))
        case GenerationBegun():
            body = pb.Body(generation_begun=pb.GenerationBegun())
        case GenerationEnded():
            body = pb.Body(generation_ended=pb.GenerationEnded(next=record.next))
    return seal(token, body)


def decode_of(topic: TopicName, key: str, data: bytes) -> tuple[str, Record]:
    """The topic's record that `key` holds, and its token: a uuid, which says that it is the topic's. Raises as
    `decode_catalog`."""
    opened = unseal(key, plain(data))
    record = _record(key, opened)
    elsewhere = isinstance(record, Segment) and dict(record.driver_properties).get(TOPIC, str(topic)) != str(topic)
    if elsewhere or (isinstance(record, Said) and opened.token != record_uuid(topic, record)):
        raise DamagedRecordError(f"{key}: a {type(record).__name__} of another topic or place")
    return opened.token, record


def decode_catalog(key: str, data: bytes) -> Record:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    return _record(key, unseal(key, plain(data)))


def _record(key: str, opened: UnsealedRecord) -> Record:
    body = opened.body
    with damage_of(key):
        match opened.kind:
            case "claim":
                return read_claim(body.claim)
            case "segment":
                return _read_segment(body.segment)
            case "loss":
                return _read_loss(body.loss)
            case "ledger_closed":
                return read_closed(body.ledger_closed)
            case "generation_begun":
                return GenerationBegun()
            case "generation_ended":
                return GenerationEnded(body.generation_ended.next)
    raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong into a catalog")


def _loss_message(loss: Loss) -> pb.Loss:
    return pb.Loss(
        start=position_message(loss.start),
        end=position_message(loss.end),
        reason=loss.reason,
        accepted_by=loss.accepted_by,
        at=loss.at,
        uncounted=loss.uncounted,
        predecessor_uuid=loss.predecessor_uuid,
        predecessor_end=position_message(loss.predecessor_end),
    )


def _read_loss(m: pb.Loss) -> Loss:
    return Loss(
        read_position(m.start),
        read_position(m.end),
        m.reason,
        m.accepted_by,
        m.at,
        m.uncounted,
        m.predecessor_uuid,
        read_position(m.predecessor_end) if m.HasField("predecessor_end") else None,
    )


def _segment_message(segment: Segment) -> pb.Segment:
    return pb.Segment(
        uuid=segment.uuid,
        start=position_message(segment.start),
        end=position_message(segment.end),
        assigned_at=segment.assigned_at,
        offloaded_at=segment.offloaded_at,
        size=segment.size,
        crc32c=segment.crc32c,
        cuts=cuts_message(segment.cuts),
        source=segment.source,
        roll_reason=segment.roll_reason,
        ledgers=[ledger_message(x) for x in segment.ledgers],
        parts=parts_message(segment.parts),
        gaps=[gap_message(g) for g in segment.gaps],
        predecessor_uuid=segment.predecessor_uuid,
        predecessor_end=position_message(segment.predecessor_end),
        driver=segment.driver,
        driver_properties=[pb.Property(key=k, value=v) for k, v in segment.driver_properties],
        deleted_ledgers=segment.deleted_ledgers,
        former_ledger_last=segment.former_ledger_last,
    )


def _read_segment(m: pb.Segment) -> Segment:
    return Segment(
        m.uuid,
        read_position(m.start),
        read_position(m.end),
        m.assigned_at,
        m.offloaded_at,
        m.size,
        m.crc32c,
        read_cuts(m.cuts),
        word(Source, m.source),
        word(RollReason, m.roll_reason),
        read_ledgers(m.ledgers),
        read_parts(m.parts),
        read_gaps(m.gaps),
        m.predecessor_uuid,
        read_position(m.predecessor_end) if m.HasField("predecessor_end") else None,
        m.driver,
        tuple((p.key, p.value) for p in m.driver_properties),
        tuple(m.deleted_ledgers),
        m.former_ledger_last if m.HasField("former_ledger_last") else None,
    )
