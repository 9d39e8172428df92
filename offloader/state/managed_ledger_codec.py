"""The value of a managed ledger's node, and the offload contexts in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from uuid import UUID

from offloader._proto.managed_ledger_pb2 import KeyValue, ManagedLedgerInfo
from offloader._proto.managed_ledger_pb2 import OffloadContext as ContextMessage
from offloader.errors import DamagedRecordError
from offloader.state.envelope import decode_message, has_unknown_fields
from offloader.state.managed_ledger import ListedLedger, ManagedLedger, OffloadContext

WHAT = "managed ledger"
_HALF = 1 << 64  # a uuid's halves are signed numbers
_SIGN = 1 << 63


def decode_record(data: bytes) -> ManagedLedgerInfo:
    """The message in a managed ledger's node. Raises DamagedRecordError."""
    return decode_message(data, ManagedLedgerInfo, WHAT)


def decode_managed_ledger(
    data: bytes, version: int = 0, *, created_ms: int | None = None, born: int | None = None, modified_ms: int = 0
) -> ManagedLedger:
    """The value of the node /managed-ledgers/…; empty where it was only just created. The times and numbers are the
    node's. Raises DamagedRecordError."""
    info = decode_record(data)
    ledgers = sorted(map(_listed, info.ledgerInfo), key=attrgetter("ledger"))
    ids = [one.ledger for one in ledgers]
    if len(set(ids)) != len(ids) or any(min(one[:4]) < 0 for one in ledgers):
        raise DamagedRecordError(f"no managed ledger can have this list of ledgers: {ids}")
    end = info.terminatedPosition
    return ManagedLedger(
        ledgers=tuple(ledgers),
        version=version,
        terminated=(end.ledgerId, end.entryId) if info.HasField("terminatedPosition") else None,
        says_more=has_unknown_fields(info),
        created_ms=created_ms,
        born=born,
        modified_ms=modified_ms,
        properties=dict(_texts(info.properties)),
    )


def read_context(context: ContextMessage) -> OffloadContext | None:
    """None: an empty one, as brokers leave it where nothing is offloaded. Raises DamagedRecordError."""
    if not context.ByteSize():
        return None
    return OffloadContext(
        uuid=_uuid(context),
        complete=context.complete,
        bookkeeper_deleted=context.bookkeeperDeleted,
        properties=_shared(_texts(context.driverMetadata.properties)),
        driver=context.driverMetadata.name,
        timestamp_ms=context.timestamp,
    )


def encode_context(context: OffloadContext) -> bytes:
    """Just the bytes that a stock broker writes."""
    number = UUID(context.uuid).int
    message = ContextMessage(
        uidMsb=_signed(number >> 64),
        uidLsb=_signed(number % _HALF),
        complete=context.complete,
        bookkeeperDeleted=context.bookkeeper_deleted or None,
        timestamp=context.timestamp_ms,
    )
    message.driverMetadata.name = context.driver
    for key, value in context.properties:
        message.driverMetadata.properties.add(key=key, value=value)
    return message.SerializeToString()


def _listed(one: ManagedLedgerInfo.LedgerInfo) -> ListedLedger:
    context = read_context(one.offloadContext) if one.HasField("offloadContext") else None
    return ListedLedger(one.ledgerId, one.entries, one.size, one.timestamp, context)


def _texts(properties: Iterable[KeyValue]) -> tuple[tuple[str, str], ...]:
    """A proto2 string need not be UTF-8: then it is none that could be written again."""
    found = tuple((one.key, one.value) for one in properties)
    if not all(isinstance(text, str) for pair in found for text in pair):
        raise DamagedRecordError(f"this is no record of a {WHAT}: a property is no text")
    return found


@lru_cache(maxsize=256)
def _shared(properties: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Millions of ledgers have the same."""
    return properties


def _uuid(context: ContextMessage) -> str:
    if not context.HasField("uidMsb") or not context.HasField("uidLsb"):
        return ""
    return str(UUID(int=context.uidMsb % _HALF << 64 | context.uidLsb % _HALF))


def _signed(half: int) -> int:
    return half - _HALF if half & _SIGN else half
