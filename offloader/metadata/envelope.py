"""What stands around every record: magic, CRC32C, format version, token; the body compressed where that helps."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from crc32c import crc32c
from google.protobuf.message import DecodeError

from offloader._proto import metadata_pb2 as pb
from offloader.errors import DamagedRecordError, FatalError, FormatVersionError
from offloader.model import MIB

MAGIC = b"PSOM"
FORMAT_VERSION = 2
# Of records about deletions and of all behind them in a log: who does not know these would take what went for damage.
DELETIONS_VERSION = 3
HEAD = struct.Struct(">4sI")
LARGEST = 256 * MIB  # of a body; a thousand open segments take some ten


@dataclass(frozen=True, slots=True)
class UnwrappedRecord:
    """A record read back: its token and its body, of which `kind` is the only part that is set."""

    token: str
    kind: str
    body: pb.Body


def wrap(token: str, body: pb.Body, format_version: int = FORMAT_VERSION) -> bytes:
    """The bytes of a record. Raises FatalError for one that `unwrap` would refuse."""
    plain = body.SerializeToString(deterministic=True)
    if len(plain) > LARGEST:
        raise FatalError(f"a record of {len(plain)} bytes is larger than any that is read again ({LARGEST})")
    small = zlib.compress(plain, 1)
    record = pb.Record(format_version=format_version, token=token, body=plain)
    if len(small) < len(plain):
        record.body, record.compressed = small, True
    data = record.SerializeToString(deterministic=True)
    return HEAD.pack(MAGIC, crc32c(data)) + data


def encode_fence(token: str) -> bytes:
    """The bytes of a fence: it stands behind a former owner's last record, and nothing follows it."""
    return wrap(token, pb.Body(fence=pb.Fence()))


def unwrap(key: str, data: bytes) -> UnwrappedRecord:
    """The record that `key` holds. Raises DamagedRecordError; FormatVersionError for another version's."""
    if len(data) < HEAD.size or HEAD.unpack_from(data) != (MAGIC, crc32c(data[HEAD.size :])):
        raise DamagedRecordError(f"{key}: {len(data)} bytes that are no record or do not match their checksum")
    try:
        record = pb.Record.FromString(data[HEAD.size :])
        if record.format_version > DELETIONS_VERSION:
            raise FormatVersionError(
                f"{key} has format version {record.format_version}, this version reads up to {DELETIONS_VERSION}: run "
                "a newer one"
            )
        if record.format_version < FORMAT_VERSION:
            raise FormatVersionError(
                f"{key} has format version {record.format_version}, which only an older version reads: choose "
                "another bucket or folder"
            )
        body = pb.Body.FromString(_inflated(record.body) if record.compressed else record.body)
    except (DecodeError, zlib.error) as error:
        raise DamagedRecordError(f"{key}: {error}") from error
    kind = body.WhichOneof("kind")
    if kind is None:
        raise FormatVersionError(f"{key} is of a kind that this version does not know: run a newer one")
    return UnwrappedRecord(record.token, kind, body)


def unwrap_kind(key: str, data: bytes, kind: str) -> UnwrappedRecord:
    """As `unwrap`, of a key that holds records of one kind only."""
    opened = unwrap(key, data)
    if opened.kind != kind:
        raise DamagedRecordError(f"{key}: a {opened.kind} record does not belong here")
    return opened


def _inflated(data: bytes) -> bytes:
    """What was compressed, and not more of it than a record may have."""
    stream = zlib.decompressobj()
    plain = stream.decompress(data, LARGEST + 1)
    if len(plain) > LARGEST or not stream.eof or stream.unused_data:
        raise zlib.error("the body is no whole record, or has more bytes than any")
    return plain
