"""From the bytes of a metadata store's nodes, and of a cursor's last entry, to what they refer to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from offloader._proto.managed_ledger_pb2 import SchemaLocator
from offloader.errors import DamagedRecordError
from offloader.lifecycle.ledgers.references import LocatorNode, UnreadableNode
from offloader.state.envelope import has_unknown_fields, parse_message
from offloader.state.subscription import COMPACTED_LEDGER, CursorState, is_bucket
from offloader.state.subscription_codec import decode_cursor_entry, decode_cursor_node

_Read = TypeVar("_Read")


def or_unreadable(read: Callable[[], _Read], version: int) -> _Read | UnreadableNode:
    """What it returns; damage is a value, too."""
    try:
        return read()
    except DamagedRecordError as error:
        return UnreadableNode(version, str(error).partition("\n")[0])


def decode_references(
    value: bytes, version: int, *, created_ms: int | None = None, born: int | None = None
) -> CursorState:
    """A cursor's node without all that names no ledger: a scan has those of all topics in memory. Raises
    DamagedRecordError."""
    return _referring(decode_cursor_node(value, version, created_ms=created_ms, born=born))


def decode_last_entry(payload: bytes, cursor_ledger: int) -> CursorState:
    """The same of the last entry of a cursor's ledger. Raises DamagedRecordError, also for another program's form."""
    state = decode_cursor_entry(payload)
    if state.mark_delete is None:
        raise DamagedRecordError(state.unknown[0])
    return replace(_referring(state), cursor_ledger=cursor_ledger)


def _referring(state: CursorState) -> CursorState:
    return replace(
        state,
        ranges=(),
        batches=(),
        properties=tuple(one for one in state.properties if one[0] == COMPACTED_LEDGER),
        subscription_properties=tuple(filter(is_bucket, state.subscription_properties)),
    )


def decode_locator(
    value: bytes, version: int, *, created_ms: int | None = None, born: int | None = None
) -> LocatorNode:
    """A schema locator's node. Raises DamagedRecordError."""
    locator = parse_message(value, SchemaLocator, "schema locator")
    entries = (locator.info, *locator.index)
    ledgers = sorted({one.position.ledgerId for one in entries})
    if ledgers[0] < 0:
        raise DamagedRecordError("this is no record of a schema locator: a ledger's id is negative")
    versions = {one.version for one in entries}
    whole = min(versions) == 0 and len(versions) == locator.info.version + 1
    return LocatorNode(version, tuple(ledgers), whole, has_unknown_fields(locator), created_ms, born)
