"""A topic's record in Pulsar's metadata store: raw, or compressed in an envelope (`managedLedgerInfoCompressionType`). Pure.

[47 78][int32 length][ManagedLedgerInfoMetadata][compressed ManagedLedgerInfo]
"""

from __future__ import annotations

from struct import Struct

from google.protobuf.message import DecodeError

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo, ManagedLedgerInfoMetadata
from offloader.archive.messages.compression import decompress
from offloader.errors import DamagedObjectError, DamagedRecordError
from offloader.model import MIB

# A raw record cannot begin so: it would be a field of a wire type that does not exist.
MAGIC = bytes.fromhex("4778")
LARGEST = 256 * MIB  # a record has some hundred bytes for each ledger
_HEADER = Struct(">2si")


def decode_record(data: bytes) -> ManagedLedgerInfo:
    """The value of the node /managed-ledgers/`managed_ledger_name`. Raises DamagedRecordError."""
    try:
        info = ManagedLedgerInfo.FromString(_unpacked(data) if data.startswith(MAGIC) else data)
    except (DecodeError, DamagedObjectError) as error:
        raise DamagedRecordError(f"this is no record of a managed ledger: {error}") from error
    if not info.IsInitialized():
        raise DamagedRecordError("this is no record of a managed ledger: a required field is missing")
    return info


def _unpacked(data: bytes) -> bytes:
    length = _HEADER.unpack_from(data)[1] if len(data) >= _HEADER.size else 0
    begin = _HEADER.size + length
    if length < 1 or begin > len(data):
        raise DamagedRecordError(f"a managed ledger's record of {len(data)} bytes is cut off in its header")
    metadata = ManagedLedgerInfoMetadata.FromString(data[_HEADER.size : begin])
    size = metadata.uncompressedSize
    if size < 0:
        raise DamagedRecordError(f"a managed ledger's record cannot have {size} bytes")
    # The codecs' numbers are those of messages.
    unpacked = decompress(metadata.compressionType, data[begin:], size, LARGEST)
    if len(unpacked) != size:
        raise DamagedRecordError(f"a managed ledger's record has {len(unpacked)} bytes, not {size}")
    return bytes(unpacked)
