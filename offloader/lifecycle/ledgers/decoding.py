"""From the bytes of a metadata store's nodes, and of a cursor's last entry, to what they refer to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from sys import intern
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.managed_ledger_pb2 import OffloadContext, PositionInfo, SchemaLocator
from offloader.bookkeeper.managed_ledgers import decode_cursor_record, decode_record
from offloader.errors import DamagedRecordError
from offloader.lifecycle.ledgers.kinds import ledger_of
from offloader.lifecycle.ledgers.references import (
    BUCKET_PREFIX,
    COMPACTED_LEDGER,
    CursorNode,
    LastEntry,
    ListedData,
    ListNode,
    LocatorNode,
    OffloadedCopy,
    UnreadableNode,
)

_HALF = 2**64  # a uuid's halves are signed numbers

_Node = TypeVar("_Node")
_Dated = TypeVar("_Dated", ListNode, CursorNode, LocatorNode)


def read_list(
    value: bytes, version: int, created_ms: int | None = None, born: int | None = None
) -> ListNode | UnreadableNode:
    """A managed ledger's node; empty, raw or compressed."""
    return _dated(_read(_list, value, version), created_ms, born)


def read_cursor(
    value: bytes, version: int, created_ms: int | None = None, born: int | None = None
) -> CursorNode | UnreadableNode:
    """A cursor's node, raw or compressed. An empty one is damaged: brokers write them whole."""
    return _dated(_read(_cursor, value, version), created_ms, born)


def read_locator(
    value: bytes, version: int, created_ms: int | None = None, born: int | None = None
) -> LocatorNode | UnreadableNode:
    """A schema locator's node."""
    return _dated(_read(_locator, value, version), created_ms, born)


def read_last_entry(payload: bytes, cursor_ledger: int) -> LastEntry | UnreadableNode:
    """The last entry of the ledger of a cursor `__compaction`. Another program's form (JSON) cannot be read."""
    return _read(_last_entry, payload, cursor_ledger)


def _dated(found: _Dated | UnreadableNode, created_ms: int | None, born: int | None) -> _Dated | UnreadableNode:
    return found if isinstance(found, UnreadableNode) else replace(found, created_ms=created_ms, born=born)


def _read(decode: Callable[[bytes, int], _Node], value: bytes, version: int) -> _Node | UnreadableNode:
    try:
        return decode(value, version)
    except (DamagedRecordError, DecodeError) as error:
        return UnreadableNode(version, str(error).partition("\n")[0])


def _list(value: bytes, version: int) -> ListNode:
    info = decode_record(value)
    ledgers = sorted(
        ListedData(one.ledgerId, one.entries, one.size, one.timestamp, _copy(one.offloadContext))
        for one in info.ledgerInfo
    )
    if _impossible([one.ledger for one in ledgers]):
        raise DamagedRecordError("no managed ledger can have such a list: a ledger's id is negative or stands twice")
    return ListNode(version, tuple(ledgers), _says_more(info))


def _impossible(ids: list[int]) -> bool:
    return len(set(ids)) != len(ids) or any(one < 0 for one in ids)


def _copy(context: OffloadContext) -> OffloadedCopy | None:
    if not context.ListFields():
        return None
    has_uuid = context.HasField("uidMsb") and context.HasField("uidLsb")
    uuid = str(UUID(int=context.uidMsb % _HALF * _HALF + context.uidLsb % _HALF)) if has_uuid else ""
    bucket = next((one.value for one in context.driverMetadata.properties if one.key == "bucket"), "")
    return OffloadedCopy(uuid, context.complete, context.bookkeeperDeleted, intern(bucket))


def _cursor(value: bytes, version: int) -> CursorNode:
    info = decode_cursor_record(value)
    if not all(isinstance(text, str) for one in info.cursorProperties for text in (one.name, one.value)):
        raise DamagedRecordError("this is no record of a cursor: a property is no text")
    buckets = {one.name: one.value for one in info.cursorProperties if one.name.startswith(BUCKET_PREFIX)}
    known = {name: ledger for name, text in buckets.items() if (ledger := ledger_of(text)) is not None}
    return CursorNode(
        version=version,
        ledger=info.cursorsLedgerId if info.cursorsLedgerId >= 0 else None,
        view=_view({one.name: one.value for one in info.properties}),
        buckets=known,
        says_more=len(known) < len(buckets) or _says_more(info),
    )


def _view(properties: Mapping[str, int]) -> int | None:
    view = properties.get(COMPACTED_LEDGER, -1)
    return view if view >= 0 else None


def _locator(value: bytes, version: int) -> LocatorNode:
    locator = SchemaLocator.FromString(value)
    if not locator.IsInitialized():
        raise DamagedRecordError("this is no schema locator: a required field is missing")
    entries = (locator.info, *locator.index)
    ledgers = sorted({one.position.ledgerId for one in entries})
    if ledgers[0] < 0:
        raise DamagedRecordError("this is no schema locator: a ledger's id is negative")
    versions = {one.version for one in entries}
    whole = min(versions) == 0 and len(versions) == locator.info.version + 1
    return LocatorNode(version, tuple(ledgers), whole, _says_more(locator))


def _last_entry(payload: bytes, cursor_ledger: int) -> LastEntry:
    position = PositionInfo.FromString(payload)
    if not position.IsInitialized():
        raise DamagedRecordError("this is no cursor's position: a required field is missing")
    view = _view({one.name: one.value for one in position.properties})
    return LastEntry(cursor_ledger, view, _says_more(position))


def _says_more(message: Message) -> bool:
    """Whether it, or anything in it, has a field that we do not know."""
    if len(UnknownFieldSet(message)):
        return True
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            parts = value if descriptor.is_repeated else (value,)
            if any(_says_more(part) for part in parts):
                return True
    return False
