"""The catalog's records, to and from bytes."""

from __future__ import annotations

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import seal, unseal
from offloader.metadata.part_codec import decode_parts, encode_parts, group
from offloader.metadata.state import Claim, LedgerClosed, Record
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
from offloader.model import Loss, RollReason, Segment, Source


def encode_catalog(token: str, record: Record) -> bytes:
    """A record's bytes: the same for the same token and record."""
    match record:
        case Claim():
            body = pb.Body(claim=_claim_message(record))
        case Segment():
            body = pb.Body(segment=_segment_message(record))
        case Loss():
            body = pb.Body(loss=_loss_message(record))
        case LedgerClosed():
            body = pb.Body(ledger_closed=_closed_message(record))
    return seal(token, body)


def decode_catalog(key: str, data: bytes) -> Record:
    """The record that `key` holds. Raises DamagedRecordError, FormatVersionError."""
    opened = unseal(key, data)
    body = opened.body
    with damage_of(key):
        match opened.kind:
            case "claim":
                return _read_claim(body.claim)
            case "segment":
                return _read_segment(body.segment)
            case "loss":
                return _read_loss(body.loss)
            case "ledger_closed":
                m = body.ledger_closed
                return LedgerClosed(m.incarnation, m.ledger, m.last, m.vouched_by)
    raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong into a catalog")


def _claim_message(claim: Claim) -> pb.Claim:
    return pb.Claim(
        application=claim.application,
        incarnation=claim.incarnation,
        created=claim.created,
        begin=position_message(claim.begin),
        at=claim.at,
        reason=claim.reason,
    )


def _read_claim(m: pb.Claim) -> Claim:
    return Claim(m.application, m.incarnation, m.created, read_position(m.begin), m.at, m.reason)


def _closed_message(closed: LedgerClosed) -> pb.LedgerClosed:
    return pb.LedgerClosed(incarnation=closed.incarnation, ledger=closed.ledger, last=closed.last, vouched_by=closed.vouched_by)


def _loss_message(loss: Loss) -> pb.Loss:
    return pb.Loss(
        start=position_message(loss.start),
        end=position_message(loss.end),
        reason=loss.reason,
        accepted_by=loss.accepted_by,
        at=loss.at,
        also=[pb.Range(start=position_message(first), end=position_message(last)) for first, last in loss.also],
        uncounted=loss.uncounted,
    )


def _read_loss(m: pb.Loss) -> Loss:
    also = tuple((read_position(each.start), read_position(each.end)) for each in m.also)
    return Loss(read_position(m.start), read_position(m.end), m.reason, m.accepted_by, m.at, also, m.uncounted)


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
        part_groups=[encode_parts(g) for g in group(segment.parts)],
        gaps=[gap_message(g) for g in segment.gaps],
        predecessor_uuid=segment.predecessor_uuid,
        predecessor_end=position_message(segment.predecessor_end),
        driver=segment.driver,
        driver_properties=[pb.Property(key=k, value=v) for k, v in segment.driver_properties],
        deleted_ledgers=segment.deleted_ledgers,
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
        tuple(part for data in m.part_groups for part in decode_parts(data)),
        read_gaps(m.gaps),
        m.predecessor_uuid,
        read_position(m.predecessor_end) if m.HasField("predecessor_end") else None,
        m.driver,
        tuple((p.key, p.value) for p in m.driver_properties),
        tuple(m.deleted_ledgers),
    )
