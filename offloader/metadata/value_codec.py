"""Values that journal and catalog records share, to and from their messages."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError
from offloader.model import Gap, GapKind, LedgerRange, Position, SegmentLayout, TopicName

Word = TypeVar("Word", bound=StrEnum)


@contextmanager
def damage_of(key: str) -> Iterator[None]:
    """Whatever goes wrong while a record is decoded is damage of `key`."""
    try:
        yield
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, DecodeError, zlib.error, struct.error) as error:
        raise DamagedRecordError(f"{key}: {error}") from error


def word(kind: type[Word], text: str) -> Word:
    """The enum's member. A word that is not known is a newer version's."""
    try:
        return kind(text)
    except ValueError:
        raise FormatVersionError(
            f"{text!r} is a {kind.__name__} that this version does not know: run a newer one"
        ) from None


def unknown_fields(message: Message) -> bytes:
    """The fields of a message that this version does not know, as they stood."""
    rest = type(message)()
    rest.CopyFrom(message)
    for field, _ in message.ListFields():
        rest.ClearField(field.name)
    return bytes(rest.SerializeToString(deterministic=True))


def topic_message(topic: TopicName) -> pb.TopicId:
    """See `read_topic`."""
    return pb.TopicId(tenant=topic.tenant, namespace=topic.namespace_part, name=topic.name)


def read_topic(message: pb.TopicId) -> TopicName:
    """See `topic_message`."""
    return TopicName(message.tenant, message.namespace, message.name)


def position_message(position: Position | None) -> pb.Position | None:
    """See `read_position`. None stays None: the field is not set."""
    if position is None:
        return None
    return pb.Position(incarnation=position.incarnation, ledger=position.ledger, entry=position.entry)


def read_position(message: pb.Position) -> Position:
    """See `position_message`."""
    return Position(message.incarnation, message.ledger, message.entry)


def cuts_message(cuts: SegmentLayout) -> pb.Cuts:
    """See `read_cuts`."""
    return pb.Cuts(
        part_size=cuts.part_size, block_size=cuts.block_size, index_step=cuts.index_step, version=cuts.version
    )


def read_cuts(message: pb.Cuts) -> SegmentLayout:
    """See `cuts_message`."""
    return SegmentLayout(message.part_size, message.block_size, message.index_step, message.version)


def ledger_message(x: LedgerRange) -> pb.LedgerRange:
    """See `read_ledgers`. A record has first and last entry, both included."""
    return pb.LedgerRange(
        ledger=x.ledger, first=x.first, last=x.last, count=x.count, size=x.size, closed_with=x.closed_with
    )


def read_ledgers(messages: Iterable[pb.LedgerRange]) -> tuple[LedgerRange, ...]:
    """See `ledger_message`."""
    return tuple(
        LedgerRange(m.ledger, m.first, m.last + 1, count=m.count, size=m.size, closed_with=_closed_with(m))
        for m in messages
    )


def _closed_with(message: pb.LedgerRange) -> int | None:
    return message.closed_with if message.HasField("closed_with") else None


def gap_message(gap: Gap) -> pb.Gap:
    """See `read_gaps`."""
    return pb.Gap(kind=gap.kind, ledger=gap.ledger, first=gap.first, last=gap.last)


def read_gaps(messages: Iterable[pb.Gap]) -> tuple[Gap, ...]:
    """See `gap_message`."""
    return tuple(Gap(m.ledger, m.first, m.last + 1, kind=word(GapKind, m.kind)) for m in messages)
