"""Values that have messages unlike them, to and from these; and what is wrong with a record."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from itertools import accumulate, chain, pairwise
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FormatVersionError, RemovedFeatureError
from offloader.metadata.deletions import DeletionReason
from offloader.metadata.layout import topic_of
from offloader.model import Gap, GapKind, LedgerRange, Position, Source, Taking, TopicName

Word = TypeVar("Word", bound=StrEnum)

LAST_COMMIT = "1db0db3f"
"""The last one that supported what `REMOVED` names."""
REMOVED: Mapping[type[StrEnum], tuple[str, str]] = {
    Source: ("referenced", "migrate --reference"),  # a segment whose object was the brokers' own
    Taking: ("reference", "migrate --reference"),  # a claim by which segments became such
    DeletionReason: ("bridged", "bridge.keepSegments: false"),  # segments went where brokers had copies of them
}
"""Words that older records have, and of what: whoever reads one stops, and deletes, rebuilds and judges nothing."""


@contextmanager
def damage_of(key: str) -> Iterator[None]:
    """Whatever goes wrong while a record is decoded is damage of `key`. Raises DamagedRecordError; RemovedFeatureError,
    which names the topic, for a word of `REMOVED`."""
    try:
        yield
    except RemovedFeatureError as error:
        topic, _ = topic_of(key)
        raise RemovedFeatureError(f"{key if topic is None else f'{topic}: {key}'}: {error}") from None
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, DecodeError, zlib.error, struct.error) as error:
        raise DamagedRecordError(f"{key}: {error}") from error


def word(kind: type[Word], text: str) -> Word:
    """The enum's member. A word that is not known is a newer version's, or was removed."""
    try:
        return kind(text)
    except ValueError:
        old, feature = REMOVED.get(kind, ("", ""))
        if text == old:
            raise removed(f"it says {text!r} ({feature})") from None
        raise FormatVersionError(
            f"{text!r} is a {kind.__name__} that this version does not know: run a newer one"
        ) from None


def removed(what: str) -> RemovedFeatureError:
    """The error that refuses something of `REMOVED`."""
    return RemovedFeatureError(f"{what}, which was removed: the last commit that supported it is {LAST_COMMIT}")


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


def position_message(position: Position) -> pb.Position:
    """See `read_position`."""
    return pb.Position(incarnation=position.incarnation, ledger=position.ledger, entry=position.entry)


def read_position(message: pb.Position) -> Position:
    """See `position_message`."""
    return Position(message.incarnation, message.ledger, message.entry)


def ledger_message(x: LedgerRange) -> pb.LedgerRange:
    """See `read_ledger`. A record has first and last entry, both included."""
    return pb.LedgerRange(
        ledger=x.ledger, first=x.first, last=x.last, count=x.count, size=x.size, closed_with=x.closed_with
    )


def read_ledger(m: pb.LedgerRange) -> LedgerRange:
    """See `ledger_message`."""
    closed_with = m.closed_with if m.HasField("closed_with") else None
    return LedgerRange(m.ledger, m.first, m.last + 1, count=m.count, size=m.size, closed_with=closed_with)


def gap_message(gap: Gap) -> pb.Gap:
    """See `read_gap`. A record has first and last entry, both included."""
    return pb.Gap(kind=gap.kind, ledger=gap.ledger, first=gap.first, last=gap.last)


def read_gap(m: pb.Gap) -> Gap:
    """See `gap_message`."""
    return Gap(m.ledger, m.first, m.last + 1, kind=word(GapKind, m.kind))


def deltas(values: Iterable[int]) -> list[int]:
    """Each value's difference from the one before, the first one's from 0, modulo 2^64."""
    return [wrapped(after - before) for before, after in pairwise(chain((0,), values))]


def sums(steps: Iterable[int]) -> list[int]:
    """The opposite of `deltas`."""
    return [wrapped(value) for value in accumulate(steps)]


def wrapped(number: int) -> int:
    """As a signed number of 64 bits."""
    return (number + 2**63) % 2**64 - 2**63
