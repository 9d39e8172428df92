"""The values of a topic's nodes: a protobuf message, raw or, where `managedLedgerInfoCompressionType` or
`managedCursorInfoCompressionType` say so, in an envelope. Pure.

    [47 78][int32 length][ManagedLedgerInfoMetadata][compressed message]
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfoMetadata
from offloader.errors import DamagedObjectError, DamagedRecordError
from offloader.format.compression import compress, decompress
from offloader.model import MIB

Compression = ManagedLedgerInfoMetadata.CompressionType

# A raw record cannot begin so: it would be a field of a wire type that does not exist.
MAGIC = bytes.fromhex("4778")
LARGEST = 256 * MIB  # a record has some hundred bytes for each ledger
HEADER = Struct(">2si")

_Record = TypeVar("_Record", bound=Message)


def decode_message(data: bytes, kind: type[_Record], what: str) -> _Record:
    """The message in a node's value, in an envelope or not. Raises DamagedRecordError."""
    return parse_message(unwrapped(data, what)[1], kind, what)


def parse_message(record: bytes, kind: type[_Record], what: str) -> _Record:
    """A raw message with all that is required of it. Raises DamagedRecordError."""
    try:
        message = kind.FromString(record)
    except DecodeError as error:
        raise DamagedRecordError(f"this is no record of a {what}: {error}") from error
    if not message.IsInitialized():
        raise DamagedRecordError(f"this is no record of a {what}: a required field is missing")
    return message


def unwrapped(data: bytes, what: str = "managed ledger") -> tuple[ManagedLedgerInfoMetadata | None, bytes]:
    """The envelope's own message, None where there is no envelope, and the record in it, uncompressed. Raises
    DamagedRecordError."""
    if not data.startswith(MAGIC):
        return None, data
    length = HEADER.unpack_from(data)[1] if len(data) >= HEADER.size else 0
    begin = HEADER.size + length
    if length < 1 or begin > len(data):
        raise DamagedRecordError(f"a {what}'s record of {len(data)} bytes is cut off in its header")
    try:
        metadata = ManagedLedgerInfoMetadata.FromString(data[HEADER.size : begin])
        size = metadata.uncompressedSize
        if size < 0:
            raise DamagedRecordError(f"a {what}'s record cannot have {size} bytes")
        # The codecs' numbers are those of messages.
        unpacked = decompress(metadata.compressionType, data[begin:], size, LARGEST)
    except (DecodeError, DamagedObjectError) as error:
        raise DamagedRecordError(f"this is no record of a {what}: {error}") from error
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


def has_unknown_fields(message: Message) -> bool:
    """Whether it, or anything in it, has a field that this version does not know."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() != message.ByteSize()


def unknown_fields(message: Message, where: str) -> tuple[str, ...]:
    """Fields that this version does not know, however deep, one line each."""
    if not has_unknown_fields(message):  # much faster than to look for them
        return ()
    return tuple(dict.fromkeys(f"{where} has {what}" for what in _unknown(message)))


def _unknown(message: Message) -> Iterator[str]:
    name = message.DESCRIPTOR.name
    unknown = UnknownFieldSet(message)
    for field in (unknown[at] for at in range(len(unknown))):
        yield f"the field {field.field_number} of {name}, which this version does not know"
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for part in value if descriptor.is_repeated else (value,):
                yield from _unknown(part)
