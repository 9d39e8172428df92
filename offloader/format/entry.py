"""A look into an entry's metadata. Payloads are never opened.

    [0e 02][u32 length][BrokerEntryMetadata]                        optional
    [0e 01][u32 crc32c][u32 length][MessageMetadata][payload]       the CRC32C covers everything after it
    [u32 length][MessageMetadata][payload]                          the same without checksum

A magic promises what follows it: where that does not hold, the frame is broken. Without a magic nothing is promised. An
entry that is no message, for the one reason or the other, cannot be looked into: it is stored as it is, and counted.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

import crc32c
from google.protobuf.message import DecodeError

from offloader._proto.pulsar_messages_pb2 import BrokerEntryMetadata, MessageHead, MessageMetadata
from offloader.errors import DamagedObjectError
from offloader.model import Transaction

MAGIC_BROKER_METADATA = b"\x0e\x02"
MAGIC_CHECKSUM = b"\x0e\x01"
# Pulsar's MarkerType values.
COMMIT_MARKER, ABORT_MARKER = 21, 22
_LENGTH = Struct(">I")
_CHECKSUM_HEADER = Struct(">2sI")


class EntryFacts(NamedTuple):
    """What an entry says of itself; None where it does not.

    `messages` is what a batch claims, 0 for what is no message and for a server-only marker. `broker_index` is the
    broker's count at the entry's last message. Times are in ms. `aborted`: the transaction whose abort this entry
    marks. `unreadable`: it is no message.
    """

    messages: int = 0
    publish_time: int | None = None
    broker_time: int | None = None
    broker_index: int | None = None
    aborted: Transaction | None = None
    unreadable: bool = False


UNREADABLE = EntryFacts(unreadable=True)


def inspect(data: bytes) -> EntryFacts:
    """Check an entry's checksum, where it has one, and read its metadata. Of a broken frame nothing is believed."""
    try:
        return _inspected(data)
    except DamagedObjectError:
        return UNREADABLE


def fault(data: bytes) -> str:
    """What is wrong with an entry's frame or checksum; empty: they hold, or it has none."""
    try:
        _inspected(data)
    except DamagedObjectError as error:
        return str(error)
    return ""


def _inspected(data: bytes) -> EntryFacts:
    broker_time = index = None
    at = 0
    if data.startswith(MAGIC_BROKER_METADATA):
        at = _after_broker_metadata(data)
        broker_time, index = _broker_facts(data[6:at])
    if data.startswith(MAGIC_CHECKSUM, at):
        _check_crc(data, at)
        at += _CHECKSUM_HEADER.size
    metadata = _message_head(data, at)
    if metadata is None:
        return EntryFacts(0, None, broker_time, index, unreadable=True)
    if not metadata.HasField("marker_type"):
        return EntryFacts(max(metadata.num_messages_in_batch, 0), metadata.publish_time, broker_time, index)
    aborted = transaction_of(metadata) if metadata.marker_type == ABORT_MARKER else None
    return EntryFacts(0, metadata.publish_time, broker_time, index, aborted)


def transaction_of(metadata: MessageMetadata | MessageHead) -> Transaction | None:
    """The transaction that an entry belongs to."""
    if not metadata.HasField("txnid_most_bits"):
        return None
    return metadata.txnid_most_bits, metadata.txnid_least_bits


def message_metadata(data: bytes) -> MessageMetadata | None:
    """An entry's whole message metadata; None for what is no message. Its checksum is not looked at."""
    try:
        at = _after_broker_metadata(data) if data.startswith(MAGIC_BROKER_METADATA) else 0
    except DamagedObjectError:
        return None
    at += _CHECKSUM_HEADER.size if data.startswith(MAGIC_CHECKSUM, at) else 0
    if len(data) < at + _LENGTH.size:
        return None
    begin = at + _LENGTH.size
    try:
        return MessageMetadata.FromString(data[begin : begin + _LENGTH.unpack_from(data, at)[0]])
    except DecodeError:
        return None


def crc_ok(data: bytes) -> bool:
    """Whether the entry's frame and its checksum hold; True where it has none."""
    try:
        at = _after_broker_metadata(data) if data.startswith(MAGIC_BROKER_METADATA) else 0
        if data.startswith(MAGIC_CHECKSUM, at):
            _check_crc(data, at)
    except DamagedObjectError:
        return False
    return True


def _after_broker_metadata(data: bytes) -> int:
    if len(data) < 6:
        raise DamagedObjectError(f"the entry ends inside its broker metadata, after {len(data)} bytes")
    end: int = 6 + _LENGTH.unpack_from(data, 2)[0]
    if end > len(data):
        raise DamagedObjectError(f"the entry's broker metadata would end at {end} of {len(data)} bytes")
    return end


def _broker_facts(encoded: bytes) -> tuple[int | None, int | None]:
    try:
        metadata = BrokerEntryMetadata.FromString(encoded)
    except DecodeError as e:
        raise DamagedObjectError("the entry's broker metadata cannot be parsed") from e
    broker_time = metadata.broker_timestamp if metadata.HasField("broker_timestamp") else None
    return broker_time, metadata.index if metadata.HasField("index") else None


def _check_crc(data: bytes, at: int) -> None:
    begin = at + _CHECKSUM_HEADER.size
    if len(data) < begin:
        raise DamagedObjectError(f"the entry ends inside its checksum, after {len(data)} bytes")
    said = _CHECKSUM_HEADER.unpack_from(data, at)[1]
    found = crc32c.crc32c(memoryview(data)[begin:])
    if found != said:
        raise DamagedObjectError(f"the entry's CRC32C is {found:08x} where its frame says {said:08x}")


def _message_head(data: bytes, at: int) -> MessageHead | None:
    begin = at + _LENGTH.size
    if len(data) < begin:
        return None
    end = begin + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        return None
    try:
        metadata = MessageHead.FromString(data[begin:end])
    except DecodeError:
        return None
    return metadata if metadata.HasField("publish_time") else None
