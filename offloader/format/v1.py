"""The ledger-based format (PIP-17): one data and one index object per closed ledger, which stock brokers read.

    index: [de 47 de 47][int32 index length][int64 data length][int64 128][int32 entry count][int32 metadata length]
           [LedgerMetadataFormat][20 bytes per entry, as in V2]

As Pulsar's tiered-storage-jcloud 4.0.8 writes and reads it. Pulsar's readers go by the index alone: they skip block
headers unread, so the data object's blocks may be V2 blocks of that ledger.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct

from google.protobuf.message import DecodeError

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.errors import DamagedObjectError, IntegrityError
from offloader.format.blocks import HEADER_SIZE
from offloader.format.index import INDEX_ENTRY, IndexEntry, decode_entries

MAGIC = bytes.fromhex("de47de47")
_HEADER = Struct(">4siqqii")  # magic, index length, data length, data header length, entry count, metadata length


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """A V1 index object. The ledger's id is not in it, but in its key. `metadata` is kept byte for byte."""

    data_length: int
    metadata: bytes
    entries: tuple[IndexEntry, ...]

    @property
    def ledger_metadata(self) -> LedgerMetadataFormat:
        """BookKeeper's record of the ledger."""
        return LedgerMetadataFormat.FromString(self.metadata)


def encode_ledger_index(data_length: int, metadata: bytes, entries: Iterable[IndexEntry]) -> bytes:
    """A V1 index object's bytes. Raises IntegrityError for what no reader takes: it must begin with entry 0."""
    packed = [INDEX_ENTRY.pack(entry.entry, entry.block, entry.offset) for entry in entries]
    length = _HEADER.size + len(metadata) + len(packed) * INDEX_ENTRY.size
    encoded = b"".join(
        [_HEADER.pack(MAGIC, length, data_length, HEADER_SIZE, len(packed), len(metadata)), metadata, *packed]
    )
    try:
        decode_ledger_index(encoded, 0)
    except DamagedObjectError as error:
        raise IntegrityError(f"this is no ledger's index: {error}") from error
    return encoded


def decode_ledger_index(data: bytes, ledger: int) -> LedgerIndex:
    """Read a V1 index object. Raises DamagedObjectError naming the offset of what is wrong."""
    if len(data) < _HEADER.size:
        raise DamagedObjectError(f"index: {len(data)} bytes are too few")
    magic, length, data_length, header_length, count, metadata_length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DamagedObjectError(f"index offset 0: {magic.hex()} is not the magic of a ledger's index")
    if header_length != HEADER_SIZE:
        raise DamagedObjectError(f"index offset 16: data header length {header_length} is not {HEADER_SIZE}")
    entries_at = _HEADER.size + metadata_length
    if count < 1 or metadata_length < 0 or not length == entries_at + count * INDEX_ENTRY.size == len(data):
        raise DamagedObjectError(
            f"index offset 4: {count} entries and {metadata_length} bytes of metadata make no {len(data)} bytes"
        )
    metadata = data[_HEADER.size : entries_at]
    _check_metadata(metadata)
    entries = decode_entries(data, entries_at, count, ledger, data_length)
    if entries[0].entry != 0:
        raise DamagedObjectError(f"index offset {entries_at}: it begins with entry {entries[0].entry} and not with 0")
    return LedgerIndex(data_length, metadata, entries)


def _check_metadata(metadata: bytes) -> None:
    fault = f"index offset {_HEADER.size}: the ledger's metadata cannot be parsed"
    try:
        complete = LedgerMetadataFormat.FromString(metadata).IsInitialized()
    except DecodeError as e:
        raise DamagedObjectError(fault) from e
    if not complete:
        raise DamagedObjectError(fault)
