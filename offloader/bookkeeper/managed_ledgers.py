"""A topic's own nodes in Pulsar's metadata store: its ledger list and its cursors. Pure.

The values are raw or, where `managedLedgerInfoCompressionType` or `managedCursorInfoCompressionType` say so, in an
envelope: [47 78][int32 length][ManagedLedgerInfoMetadata][compressed message]
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TypeVar
from urllib.parse import quote_plus, unquote_plus
from uuid import UUID

from google.protobuf.message import DecodeError, Message

from offloader._proto.managed_ledger_pb2 import ManagedCursorInfo, ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.bookkeeper.api import ListedLedger, ManagedCursor, ManagedLedger
from offloader.errors import DamagedObjectError, DamagedRecordError
from offloader.format.compression import compress, decompress
from offloader.model import MIB, TopicName

Compression = ManagedLedgerInfoMetadata.CompressionType

# BookKeeper's custom metadata of a ledger: whose it is.
OWNER = "pulsar/managed-ledger"

# Of managed ledgers that are no topics: brokers list none of them among those that they have loaded.
PENDING_ACK_SUFFIX = "__transaction_pending_ack"
TRANSACTION_LOG_PREFIX = "pulsar/system/persistent/__transaction_log_"

# A raw record cannot begin so: it would be a field of a wire type that does not exist.
MAGIC = bytes.fromhex("4778")
LARGEST = 256 * MIB  # a record has some hundred bytes for each ledger
HEADER = Struct(">2si")

_Record = TypeVar("_Record", bound=Message)


def managed_ledger_name(topic: TopicName) -> str:
    """`tenant/namespace/persistent/topic`, the topic as Java's URLEncoder encodes it."""
    return f"{topic.tenant}/{topic.namespace_part}/persistent/{encoded(topic.name)}"


def topic_of(name: str) -> TopicName:
    """The topic of a managed ledger. Raises ValueError for one that is no persistent topic's."""
    pieces = name.split("/")
    if len(pieces) != 4 or pieces[2] != "persistent" or not all(pieces):
        raise ValueError(f"{name!r} is not the managed ledger of a persistent topic: tenant/namespace/persistent/topic")
    return TopicName(pieces[0], pieces[1], decoded(pieces[3]))


def is_no_topic(name: str) -> bool:
    """Whether a managed ledger is of transactions: no broker says that it has it loaded."""
    return name.startswith(TRANSACTION_LOG_PREFIX) or decoded(name).endswith(PENDING_ACK_SUFFIX)


def encoded(name: str) -> str:
    """The name of a node for a topic's or cursor's local name, as Java's URLEncoder encodes it."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decoded(node: str) -> str:
    """The local name that a node's name stands for."""
    return unquote_plus(node)


def managed_ledger_of(custom: Mapping[str, bytes]) -> str:
    """The managed ledger's name in a ledger's custom metadata; "" where it is none of a topic's."""
    return custom.get(OWNER, b"").decode(errors="replace")


def decode_record(data: bytes) -> ManagedLedgerInfo:
    """The value of the node /managed-ledgers/`managed_ledger_name`. Raises DamagedRecordError."""
    return _decoded(data, ManagedLedgerInfo, "managed ledger")


def offloaded_copies(record: bytes) -> dict[int, str]:
    """The ledgers of which brokers have completed a copy, and its uuid. Raises DamagedRecordError."""
    listed = decode_record(record).ledgerInfo
    return {
        one.ledgerId: str(UUID(int=_unsigned(one.offloadContext.uidMsb) << 64 | _unsigned(one.offloadContext.uidLsb)))
        for one in listed
        if one.offloadContext.complete and one.offloadContext.HasField("uidMsb")
    }


def _unsigned(half: int) -> int:
    return half & (1 << 64) - 1


def decode_managed_ledger(data: bytes, version: int) -> ManagedLedger:
    """The same as a ledger list, in the order of the ledgers. Raises DamagedRecordError."""
    info = decode_record(data)
    ledgers = sorted(ListedLedger(one.ledgerId, one.entries, one.size) for one in info.ledgerInfo)
    ids = [one.ledger for one in ledgers]
    if len(set(ids)) != len(ids) or any(min(one) < 0 for one in ledgers):
        raise DamagedRecordError(f"no managed ledger can have this list of ledgers: {ids}")
    end = info.terminatedPosition
    terminated = (end.ledgerId, end.entryId) if info.HasField("terminatedPosition") else None
    return ManagedLedger(tuple(ledgers), version, data, terminated)


def decode_cursor_record(data: bytes) -> ManagedCursorInfo:
    """The value of a cursor's node. Raises DamagedRecordError."""
    return _decoded(data, ManagedCursorInfo, "cursor")


def decode_cursor(data: bytes) -> ManagedCursor:
    """The same as what a reader needs of it. Raises DamagedRecordError."""
    info = decode_cursor_record(data)
    has_position = info.HasField("markDeleteLedgerId") and info.HasField("markDeleteEntryId")
    return ManagedCursor(
        ledger=info.cursorsLedgerId if info.cursorsLedgerId >= 0 else None,
        mark_delete=(info.markDeleteLedgerId, info.markDeleteEntryId) if has_position else None,
        deleted=tuple(
            ((r.lowerEndpoint.ledgerId, r.lowerEndpoint.entryId), (r.upperEndpoint.ledgerId, r.upperEndpoint.entryId))
            for r in info.individualDeletedMessages
        ),
        last_active_ms=info.lastActive if info.HasField("lastActive") else None,
    )


def _decoded(data: bytes, kind: type[_Record], what: str) -> _Record:
    try:
        record = kind.FromString(unwrapped(data, what)[1])
    except (DecodeError, DamagedObjectError) as error:
        raise DamagedRecordError(f"this is no record of a {what}: {error}") from error
    if not record.IsInitialized():
        raise DamagedRecordError(f"this is no record of a {what}: a required field is missing")
    return record


def unwrapped(data: bytes, what: str = "managed ledger") -> tuple[ManagedLedgerInfoMetadata | None, bytes]:
    """The envelope's own message, None where there is no envelope, and the record in it, uncompressed. Raises
    DamagedRecordError, DamagedObjectError, DecodeError."""
    if not data.startswith(MAGIC):
        return None, data
    length = HEADER.unpack_from(data)[1] if len(data) >= HEADER.size else 0
    begin = HEADER.size + length
    if length < 1 or begin > len(data):
        raise DamagedRecordError(f"a {what}'s record of {len(data)} bytes is cut off in its header")
    metadata = ManagedLedgerInfoMetadata.FromString(data[HEADER.size : begin])
    size = metadata.uncompressedSize
    if size < 0:
        raise DamagedRecordError(f"a {what}'s record cannot have {size} bytes")
    # The codecs' numbers are those of messages.
    unpacked = decompress(metadata.compressionType, data[begin:], size, LARGEST)
    if len(unpacked) != size:
        raise DamagedRecordError(f"a {what}'s record has {len(unpacked)} bytes, not {size}")
    return metadata, bytes(unpacked)


def wrapped(envelope: ManagedLedgerInfoMetadata | None, record: bytes) -> bytes:
    """The node's value for a record: in an envelope like that one, with the same codec; None: without any."""
    if envelope is None:
        return record
    metadata = ManagedLedgerInfoMetadata()
    metadata.CopyFrom(envelope)
    metadata.uncompressedSize = len(record)
    head = metadata.SerializeToString()
    return HEADER.pack(MAGIC, len(head)) + head + compress(metadata.compressionType, record)
