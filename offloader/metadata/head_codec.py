"""A catalog's head, to and from its message: it stands in every record of the log."""

from __future__ import annotations

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, NewestSegment
from offloader.metadata.value_codec import position_message, read_position, read_topic, topic_message
from offloader.model import Ending, Position


def head_message(head: CatalogHead) -> pb.Head:
    """See `read_head`."""
    return pb.Head(
        topic=topic_message(head.topic),
        next_slot=head.next_slot,
        claim=None if head.claim is None else claim_message(head.claim),
        begin=position_message(head.begin),
        end=position_message(head.end),
        last_uuid="" if head.last is None else head.last.uuid,
        last_end=None if head.last is None else position_message(head.last.end),
        generation=head.generation,
        newest=None if head.newest is None else _newest_message(head.newest),
        closed=[closed_message(each) for each in head.closed],
        segments=head.segments,
        entries=head.entries,
        size=head.size,
    )


def read_head(m: pb.Head) -> CatalogHead:
    """See `head_message`."""
    return CatalogHead(
        read_topic(m.topic),
        read_claim(m.claim) if m.HasField("claim") else None,
        _optional(m, "begin"),
        _optional(m, "end"),
        _read_newest(m.newest) if m.HasField("newest") else None,
        tuple(map(read_closed, m.closed)),
        m.next_slot,
        m.segments,
        m.entries,
        m.size,
        Ending(m.last_uuid, read_position(m.last_end)) if m.HasField("last_end") else None,
        m.generation,
    )


def claim_message(claim: Claim) -> pb.Claim:
    """See `read_claim`."""
    return pb.Claim(
        application=claim.application,
        incarnation=claim.incarnation,
        created=claim.created,
        begin=position_message(claim.begin),
        at=claim.at,
        reason=claim.reason,
        former=claim.former,
        token=claim.token,
    )


def read_claim(m: pb.Claim) -> Claim:
    """See `claim_message`."""
    created = m.created if m.HasField("created") else None
    return Claim(m.application, m.incarnation, created, read_position(m.begin), m.at, m.reason, m.former, m.token)


def closed_message(closed: LedgerClosed) -> pb.LedgerClosed:
    """See `read_closed`."""
    return pb.LedgerClosed(
        incarnation=closed.incarnation,
        ledger=closed.ledger,
        last=closed.last,
        vouched_by=closed.vouched_by,
        followed_by=closed.followed_by,
    )


def read_closed(m: pb.LedgerClosed) -> LedgerClosed:
    """See `closed_message`."""
    followed_by = m.followed_by if m.HasField("followed_by") else None
    return LedgerClosed(m.incarnation, m.ledger, m.last, m.vouched_by, followed_by)


def _newest_message(newest: NewestSegment) -> pb.NewestSegment:
    return pb.NewestSegment(
        uuid=newest.uuid,
        start=position_message(newest.start),
        end=position_message(newest.end),
        size=newest.size,
        crc32c=newest.crc32c,
    )


def _read_newest(m: pb.NewestSegment) -> NewestSegment:
    return NewestSegment(m.uuid, read_position(m.start), read_position(m.end), m.size, m.crc32c)


def _optional(m: pb.Head, field: str) -> Position | None:
    return read_position(getattr(m, field)) if m.HasField(field) else None
