"""A managed ledger's record with our offload contexts, and without them again: all else stays byte for byte; and how
large it is. Pure.

Field 5 of a ledger in the list is where brokers look (`getLedgerHandle`): with `complete` it names the object that they
read in place of BookKeeper. They keep no copy of what they do not know, but we do: unknown fields, the order of all
fields, properties (one of them counts the topic's messages) and the compression stay.

A broker reads a record whether or not it is compressed, whatever it is configured to write (`parseManagedLedgerInfo` of
3.0, 4.0 and 4.2 goes by the two first bytes).

Each context stays in the record as long as its ledger is listed, and ZooKeeper takes no value above its
`jute.maxbuffer`. A record that is just below could not be loaded any more: each load writes one ledger more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader._proto.managed_ledger_pb2 import OffloadContext as ContextMessage
from offloader.bridge.core.rounds import BridgedLedger
from offloader.config.units import format_size
from offloader.errors import DamagedRecordError, IntegrityError
from offloader.model import TopicName
from offloader.state.envelope import parse_message, unwrapped, wrapped
from offloader.state.managed_ledger import ManagedLedger, OffloadContext
from offloader.state.managed_ledger_codec import WHAT, decode_managed_ledger, encode_context, read_context

LEDGERS = 1  # of ManagedLedgerInfo
LEDGER_ID = 1  # of LedgerInfo
CONTEXT = 5
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST = 10  # bytes of a varint
_DRIVER = "google-cloud-storage"  # the longest name that brokers may have


def newest_of(topic: ManagedLedger) -> int:
    """The highest id of a list, -1 where it is empty."""
    return -1 if topic.greatest is None else topic.greatest


def first_unfit(topic: ManagedLedger) -> int:
    """From this ledger on none may have a context. A broker that loads a topic makes the newest ledger's part of its
    list anew, without context; of a terminated topic that is, sooner or later, the last one with entries: those behind
    it are empty, and leave the list."""
    newest = newest_of(topic)
    return newest if topic.terminated is None else min(newest, topic.terminated[0])


def with_contexts(record: bytes, contexts: Mapping[int, OffloadContext]) -> bytes:
    """The record with a context in each of these ledgers. One that has just this uuid, complete, stays as it is.

    Raises DamagedRecordError; IntegrityError for a ledger that is not in the list, and for one that has another
    context."""

    def put(ledger: int, fields: list[WireField]) -> list[bytes]:
        if ledger not in contexts:
            return [one.whole for one in fields]
        wanted = contexts[ledger]
        present = _context_of(ledger, fields)
        if present is not None and present.uuid == wanted.uuid and present.complete:
            return [one.whole for one in fields]
        if present is not None:
            raise IntegrityError(f"ledger {ledger} has another offload context already: {present.uuid}")
        ours = bytes_field(CONTEXT, encode_context(wanted))
        place = max(place for place, one in enumerate(fields, 1) if one.number <= CONTEXT)  # there is an id
        return [*(one.whole for one in fields[:place]), ours, *(one.whole for one in fields[place:])]

    after = _rewritten(record, put, contexts.keys())
    absent = sorted(contexts.keys() - {one.ledger for one in decode_managed_ledger(after).ledgers})
    if absent:
        raise IntegrityError(f"these ledgers are not in the list: {absent}")
    return after


def without_contexts(record: bytes, uuids: Mapping[int, str]) -> bytes:
    """The record without the contexts of these ledgers that have these uuids; others stay.

    Raises DamagedRecordError; IntegrityError for a ledger whose copy in BookKeeper is gone: its context is all that
    leads to its entries."""

    def take(ledger: int, fields: list[WireField]) -> list[bytes]:
        present = _context_of(ledger, fields) if ledger in uuids else None
        if present is None or present.uuid != uuids[ledger]:
            return [one.whole for one in fields]
        if present.bookkeeper_deleted:
            raise IntegrityError(f"ledger {ledger}: brokers have deleted BookKeeper's copy, so its context stays")
        return [one.whole for one in fields if one.number != CONTEXT or not one.value]

    return _rewritten(record, take, uuids.keys())


def _rewritten(record: bytes, change: Callable[[int, list[WireField]], list[bytes]], touched: Collection[int]) -> bytes:
    envelope, before = unwrapped(record)
    _parsed(before)
    differs = False
    pieces: list[bytes] = []
    for field in wire_fields(before):
        if field.number != LEDGERS:
            pieces.append(field.whole)
            continue
        if field.kind != BYTES:
            raise DamagedRecordError(f"the list of ledgers has a field of wire type {field.kind}")
        fields = list(wire_fields(field.value))
        changed = b"".join(change(_ledger_id(fields), fields))
        differs |= changed != field.value
        pieces.append(field.whole if changed == field.value else bytes_field(LEDGERS, changed))
    if not differs:
        return record  # also the very bytes of a compressed one
    after = b"".join(pieces)
    _compare(before, after, touched)
    return wrapped(envelope, after)


def _compare(before: bytes, after: bytes, touched: Collection[int]) -> None:
    """But for the contexts of the ledgers that are meant nothing has changed. Raises IntegrityError."""
    old, new = _parsed(before), _parsed(after)
    for one, other in zip(old.ledgerInfo, new.ledgerInfo, strict=True):
        if one.ledgerId in touched:
            one.ClearField("offloadContext")
            other.ClearField("offloadContext")
    if old.SerializeToString(deterministic=True) != new.SerializeToString(deterministic=True):
        raise IntegrityError("a managed ledger's record would change beyond its offload contexts; nothing is written")


def _parsed(record: bytes) -> ManagedLedgerInfo:
    return parse_message(record, ManagedLedgerInfo, WHAT)


def _ledger_id(fields: list[WireField]) -> int:
    ids = [one for one in fields if one.number == LEDGER_ID]
    if len(ids) != 1 or ids[0].kind != VARINT:
        raise DamagedRecordError(f"a ledger in the list has {len(ids)} ids")
    info = ManagedLedgerInfo.LedgerInfo.FromString(ids[0].whole)
    return info.ledgerId


def _context_of(ledger: int, fields: list[WireField]) -> OffloadContext | None:
    """None: there is none, or an empty one. Raises DamagedRecordError for several: readers would merge them."""
    found = [one for one in fields if one.number == CONTEXT and one.value]
    if len(found) > 1 or any(one.kind != BYTES for one in fields if one.number == CONTEXT):
        raise DamagedRecordError(f"ledger {ledger} has {len(found)} offload contexts in a form that nobody writes")
    return read_context(ContextMessage.FromString(found[0].value)) if found else None


class WireField(NamedTuple):
    """One field as it stands there: `whole` with its tag, `value` without it (of BYTES: without its length, too)."""

    number: int
    kind: int
    whole: bytes
    value: bytes


def wire_fields(data: bytes) -> Iterator[WireField]:
    """A message's fields in their order; joined, their `whole` is the message. Raises DamagedRecordError."""
    at = 0
    while at < len(data):
        tag, value = _varint(data, at)
        number, kind = tag >> 3, tag & 7
        if number < 1:
            raise DamagedRecordError(f"at byte {at} stands a field with the number {number}")
        begin, end = _extent(data, kind, value)
        if end > len(data):
            raise DamagedRecordError(f"field {number} at byte {at} is cut off")
        yield WireField(number, kind, data[at:end], data[begin:end])
        at = end


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes, or a message."""
    return _varint_bytes(number << 3 | BYTES) + _varint_bytes(len(value)) + value


def _extent(data: bytes, kind: int, value: int) -> tuple[int, int]:
    """From where to where the value that begins at `value` reaches."""
    if kind == VARINT:
        return value, _varint(data, value)[1]
    if kind == BYTES:
        length, begin = _varint(data, value)
        return begin, begin + length
    if kind in _FIXED:
        return value, value + _FIXED[kind]
    raise DamagedRecordError(f"at byte {value} stands a field of wire type {kind}, which nobody here writes")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a byte, and where it ends."""
    found = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, at + place + 1
    raise DamagedRecordError(f"at byte {at} a number has no end")


def _varint_bytes(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


@dataclass(frozen=True, slots=True)
class RecordSize:
    """As it is stored. `most`: what we let it become."""

    stored: int
    compressed: bool
    most: int

    @property
    def advice(self) -> str:
        """What makes room, where more than half is taken; empty: nothing needs to."""
        if 2 * self.stored <= self.most:
            return ""
        text = (
            f"the topic's record has {format_size(self.stored)} of {format_size(self.most)} (bridge.recordSizeInBytes)"
        )
        return f"{text}: {_less(compressed=self.compressed)}"


def size_of(record: bytes, most: int) -> RecordSize:
    """Of a record as it was read. Raises DamagedObjectError."""
    return RecordSize(len(record), unwrapped(record)[0] is not None, most)


def no_room(topic: TopicName, record: bytes, ledgers: Iterable[BridgedLedger], bucket: str, most: int) -> str:
    """Why the contexts of these may not be put in, in one line that says what to do; empty: there is room. Raises
    IntegrityError."""
    named = (("bucket", urlsplit(bucket).netloc),)
    plain = {one.ledger for one in decode_managed_ledger(record).ledgers if one.context is None}
    now = 1 << 41  # as long as any time is
    contexts = {
        one.ledger: OffloadContext(one.uuid, complete=True, properties=named, driver=_DRIVER, timestamp_ms=now)
        for one in ledgers
        if one.ledger in plain
    }
    after = len(with_contexts(record, contexts))
    if after <= most:
        return ""
    less = _less(compressed=size_of(record, most).compressed)
    return (
        f"{topic}: its record has {format_size(len(record))} in ZooKeeper, and would have {format_size(after)}, more "
        f"than bridge.recordSizeInBytes ({format_size(most)}): {less}"
    )


def _less(*, compressed: bool) -> str:
    fewer = "let the topic have fewer ledgers (retention, larger ones: managedLedgerMaxEntriesPerLedger)"
    return fewer if compressed else f"set managedLedgerInfoCompressionType=ZSTD in broker.conf, or {fewer}"
