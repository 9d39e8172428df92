"""What a copy of a topic's subscriptions says: values, to and from bytes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from offloader._proto import metadata_pb2 as pb
from offloader.cursors.core.ledger_acks import BatchLeft, LedgerAcks
from offloader.cursors.core.piece_codec import decode_piece, encode_piece
from offloader.errors import DamagedRecordError
from offloader.metadata.envelope import unwrap_kind, wrap
from offloader.metadata.value_codec import damage_of, deltas, read_topic, sums, topic_message, word
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName, by_ledger

_WORD = 64
_BITS = (1 << _WORD) - 1


class CursorSource(StrEnum):
    """Where a part of a copy was read."""

    BROKER = "broker"  # its memory, by REST
    CURSOR_LEDGER = "cursor ledger"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class CopiedCursor:
    """A durable subscription of a user. `mark_delete`: everything up to and including it is acknowledged.

    `pieces`: by ledger what is acknowledged behind it, the same bytes for the same acknowledgements. `properties`:
    Pulsar's long ones. `sources`: where it was read. `missing`: what was not to be had, one line each. `damage`: why
    the copy of its pieces cannot be read; empty: it can."""

    name: str
    mark_delete: Place
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    properties: tuple[tuple[str, int], ...] = ()
    subscription_properties: tuple[tuple[str, str], ...] = ()
    replicated: bool = False
    sources: tuple[CursorSource, ...] = ()
    missing: tuple[str, ...] = ()
    damage: str = ""

    def check_damage(self) -> None:
        """Raises DamagedRecordError where its pieces cannot be read."""
        if self.damage:
            raise DamagedRecordError(self.damage)

    def acks(self) -> dict[int, LedgerAcks]:
        """By ledger. Raises DamagedRecordError."""
        self.check_damage()
        return {ledger: decode_piece(piece) for ledger, piece in self.pieces.items()}


@dataclass(frozen=True, slots=True)
class CursorCopy:
    """All of a topic's subscriptions at one moment, by name. `at`: when they were looked at, in ms since 1970.

    `broker_version`: empty where it is not known."""

    topic: TopicName
    incarnation: int
    at: int
    cursors: tuple[CopiedCursor, ...] = ()
    broker_version: str = ""

    def cursor(self, name: str) -> CopiedCursor | None:
        """One of them."""
        return next((one for one in self.cursors if one.name == name), None)


def pieces_of(
    mark_delete: Place,
    ranges: Iterable[AcknowledgedRange],
    batches: Iterable[PartlyAcknowledged],
    lengths: Sequence[tuple[int, int | None]],
) -> dict[int, bytes]:
    """What is acknowledged behind a mark-delete position, by ledger. `lengths`: as of `by_ledger`; a broker, too,
    leaves out what lies in other ledgers. Batches that are covered otherwise are left out. Raises ValueError."""
    acks: dict[int, LedgerAcks] = {}
    for one in by_ledger(ranges, lengths):
        acks.setdefault(one.ledger, LedgerAcks()).acknowledge(one.first, one.last)
    listed = {ledger for ledger, _ in lengths}
    for batch in batches:
        if batch.ledger in listed:
            left = left_of(batch.words)
            acks.setdefault(batch.ledger, LedgerAcks()).acknowledge_part(batch.entry, left.bit_length() + 1, left)
    if mark_delete[0] in acks:
        acks[mark_delete[0]].drop_before(mark_delete[1] + 1)
    return {ledger: encode_piece(found) for ledger, found in sorted(acks.items()) if found and ledger >= mark_delete[0]}


def whole_of(cursor: CopiedCursor) -> Iterator[EntryRange]:
    """The entries that are acknowledged behind the mark-delete position, in order. Raises DamagedRecordError."""
    for ledger, acks in sorted(cursor.acks().items()):
        yield from (EntryRange.closed(ledger, first, last) for first, last in acks.runs())


def parts_of(cursor: CopiedCursor) -> Iterator[PartlyAcknowledged]:
    """The batches of which a part is acknowledged, in order. Raises DamagedRecordError."""
    for ledger, acks in sorted(cursor.acks().items()):
        yield from (PartlyAcknowledged(ledger, entry, words_of(one)) for entry, one in sorted(acks.batches.items()))


def left_of(words: Iterable[int]) -> int:
    """The bits of an ack set as one number: bit n is 1 where message n is still to be delivered."""
    return sum((word & _BITS) << (_WORD * number) for number, word in enumerate(words))


def words_of(batch: BatchLeft) -> tuple[int, ...]:
    """The opposite of `left_of`: signed words, the lowest bits first, trailing zeros left out, as brokers send them."""
    count = -(-batch.left.bit_length() // _WORD)
    unsigned = ((batch.left >> _WORD * number) & _BITS for number in range(count))
    return tuple(word - (1 << _WORD) if word >> (_WORD - 1) else word for word in unsigned)


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
