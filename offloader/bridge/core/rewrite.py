"""A managed ledger's record with our offload contexts, and without them again: all else stays byte for byte. Pure.

Field 5 of a ledger in the list is where brokers look (`getLedgerHandle`): with `complete` it names the object that they
read in place of BookKeeper. They keep no copy of what they do not know, but we do: unknown fields, the order of all
fields, properties (one of them counts the topic's messages) and the compression stay.

A broker reads a record whether or not it is compressed, whatever it is configured to write (`parseManagedLedgerInfo` of
3.0, 4.0 and 4.2 goes by the two first bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from google.protobuf.message import DecodeError

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata, OffloadContext
from offloader.bookkeeper.managed_ledgers import unwrapped, wrapped
from offloader.bridge.core.wire import BYTES, VARINT, WireField, bytes_field, wire_fields
from offloader.errors import DamagedObjectError, DamagedRecordError, IntegrityError

LEDGERS = 1  # of ManagedLedgerInfo
LEDGER_ID = 1  # of LedgerInfo
CONTEXT = 5
_HALF = 1 << 64
_SIGN = 1 << 63


@dataclass(frozen=True, slots=True)
class OffloadContextFacts:
    """What a context says. `driver`: its name as the brokers are configured. `properties`: of the driver, in the order
    in which they are written. `timestamp`: ms; brokers count the deletion lag from there."""

    uuid: str
    driver: str
    properties: tuple[tuple[str, str], ...]
    timestamp: int


@dataclass(frozen=True, slots=True)
class RecordedLedger:
    """A ledger in the list. `entries`, `size`: 0 until it is closed there. `uuid`: of its context, None without one;
    `timestamp`: the context's, ms."""

    ledger: int
    entries: int
    size: int
    uuid: str | None = None
    complete: bool = False
    bookkeeper_deleted: bool = False
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """A record as it was read. The list is in no order; the newest ledger is the one with the highest id. `end`: the
    last position, ledger and entry, of a topic that is terminated."""

    ledgers: Mapping[int, RecordedLedger]
    end: tuple[int, int] | None = None

    @property
    def newest(self) -> int:
        """The highest id, -1 where the list is empty."""
        return max(self.ledgers, default=-1)

    @property
    def first_unfit(self) -> int:
        """From this ledger on none may have a context. A broker that loads a topic makes the newest ledger's part of
        its list anew, without context; of a terminated topic that is, sooner or later, the last one with entries: those
        behind it are empty, and leave the list."""
        return self.newest if self.end is None else min(self.newest, self.end[0])


def recorded(record: bytes) -> RecordedTopic:
    """What a record says. Raises DamagedRecordError."""
    info = _parsed(_opened(record)[1])
    found: dict[int, RecordedLedger] = {}
    for one in info.ledgerInfo:
        if one.ledgerId in found or min(one.ledgerId, one.entries, one.size) < 0:
            raise DamagedRecordError(f"no managed ledger can list ledger {one.ledgerId} like this")
        found[one.ledgerId] = _ledger(one)
    end = info.terminatedPosition
    return RecordedTopic(found, (end.ledgerId, end.entryId) if info.HasField("terminatedPosition") else None)


def with_contexts(record: bytes, contexts: Mapping[int, OffloadContextFacts]) -> bytes:
    """The record with a context in each of these ledgers. One that has just this uuid, complete, stays as it is.

    Raises DamagedRecordError; IntegrityError for a ledger that is not in the list, and for one that has another
    context."""

    def put(ledger: int, fields: list[WireField]) -> list[bytes]:
        if ledger not in contexts:
            return [one.whole for one in fields]
        facts = contexts[ledger]
        present = _context_of(ledger, fields)
        if present is not None and _uuid(present) == facts.uuid and present.complete:
            return [one.whole for one in fields]
        if present is not None:
            raise IntegrityError(f"ledger {ledger} has another offload context already: {_uuid(present)}")
        ours = bytes_field(CONTEXT, _encoded(facts))
        place = max(place for place, one in enumerate(fields, 1) if one.number <= CONTEXT)  # there is an id
        return [*(one.whole for one in fields[:place]), ours, *(one.whole for one in fields[place:])]

    after = _rewritten(record, put, contexts.keys())
    absent = sorted(contexts.keys() - recorded(after).ledgers.keys())
    if absent:
        raise IntegrityError(f"these ledgers are not in the list: {absent}")
    return after


def without_contexts(record: bytes, uuids: Mapping[int, str]) -> bytes:
    """The record without the contexts of these ledgers that have these uuids; others stay.

    Raises DamagedRecordError; IntegrityError for a ledger whose copy in BookKeeper is gone: its context is all that
    leads to its entries."""

    def take(ledger: int, fields: list[WireField]) -> list[bytes]:
        present = _context_of(ledger, fields) if ledger in uuids else None
        if present is None or _uuid(present) != uuids[ledger]:
            return [one.whole for one in fields]
        if present.bookkeeperDeleted:
            raise IntegrityError(f"ledger {ledger}: brokers have deleted BookKeeper's copy, so its context stays")
        return [one.whole for one in fields if one.number != CONTEXT or not one.value]

    return _rewritten(record, take, uuids.keys())


def _rewritten(record: bytes, change: Callable[[int, list[WireField]], list[bytes]], touched: Collection[int]) -> bytes:
    envelope, before = _opened(record)
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


def _opened(record: bytes) -> tuple[ManagedLedgerInfoMetadata | None, bytes]:
    try:
        return unwrapped(record)
    except (DecodeError, DamagedObjectError) as error:
        raise DamagedRecordError(f"this is no record of a managed ledger: {error}") from error


def _parsed(record: bytes) -> ManagedLedgerInfo:
    try:
        info = ManagedLedgerInfo.FromString(record)
    except DecodeError as error:
        raise DamagedRecordError(f"this is no record of a managed ledger: {error}") from error
    if not info.IsInitialized():
        raise DamagedRecordError("this is no record of a managed ledger: a required field is missing")
    return info


def _ledger(one: ManagedLedgerInfo.LedgerInfo) -> RecordedLedger:
    context = one.offloadContext
    if not one.HasField("offloadContext") or not context.ByteSize():
        return RecordedLedger(one.ledgerId, one.entries, one.size)
    return RecordedLedger(
        one.ledgerId,
        one.entries,
        one.size,
        _uuid(context),
        context.complete,
        context.bookkeeperDeleted,
        context.timestamp,
    )


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
    return OffloadContext.FromString(found[0].value) if found else None


def _encoded(facts: OffloadContextFacts) -> bytes:
    number = UUID(facts.uuid).int
    context = OffloadContext(
        uidMsb=_signed(number >> 64), uidLsb=_signed(number % _HALF), complete=True, timestamp=facts.timestamp
    )
    context.driverMetadata.name = facts.driver
    for key, value in facts.properties:
        context.driverMetadata.properties.add(key=key, value=value)
    return context.SerializeToString()


def _uuid(context: OffloadContext) -> str:
    return str(UUID(int=context.uidMsb % _HALF << 64 | context.uidLsb % _HALF))


def _signed(half: int) -> int:
    return half - _HALF if half & _SIGN else half
