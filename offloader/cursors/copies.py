"""What a copy of a topic's subscriptions says: values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from offloader.cursors.core.ledger_acks import BatchLeft, LedgerAcks
from offloader.cursors.core.piece_codec import decode_piece, encode_piece
from offloader.errors import DamagedRecordError
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
