"""A ledger's record in the metadata store, formats 2 and 3. Pure.

    BookieMetadataFormatVersion <tab> 3 <newline> [varint length][LedgerMetadataFormat]
    BookieMetadataFormatVersion <tab> 2 <newline> [LedgerMetadataFormat as text]

As BookKeeper 4.17 writes and reads it. A record that is written again keeps what we do not know of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import Any

from google.protobuf import proto
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.metadata_text import merge_text, parse_text
from offloader.bookkeeper.model import NO_ENTRY, DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.errors import DamagedRecordError

_HEADER = re.compile(rb"BookieMetadataFormatVersion\t(\d{1,9})\n")
_TEXT, _BINARY = 2, 3
_SCALARS = {
    "quorumSize": "write_quorum",
    "ensembleSize": "ensemble_size",
    "ackQuorumSize": "ack_quorum",
    "length": "length",
    "lastEntryId": "last_entry",
    "state": "state",
    "digestType": "digest",
    "password": "password",
}
_END = ("length", "lastEntryId")
_BOOKIE = re.compile(r"(?!\.{1,2}$)[!-.0-~]+")  # a node's name; more than BookKeeper allows


def decode_metadata(record: bytes) -> LedgerMetadata:
    """Read a record. Raises DamagedRecordError, also for a format that is not supported."""
    version, body = _opened(record)
    return _to_model(_parsed(version, body), version, record)


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """The record, in its own format or, a new one, in the one it asks for. Only a new one gets a time of creation."""
    version, body = _opened(metadata.raw) if metadata.raw else (metadata.format_version, b"")
    if version not in (_TEXT, _BINARY) or version != metadata.format_version:
        raise ValueError(f"a record of format {version} cannot be written in format {metadata.format_version}")
    message = _parsed(version, body) if metadata.raw else LedgerMetadataFormat()
    _update(message, metadata, _to_model(message, version, metadata.raw) if metadata.raw else None)
    header = f"BookieMetadataFormatVersion\t{version}\n".encode()
    if version == _TEXT:
        return header + merge_text(message, body)
    output = BytesIO()
    proto.serialize_length_prefixed(message, output)
    return header + output.getvalue()


def _opened(record: bytes) -> tuple[int, bytes]:
    match = _HEADER.match(record)
    if match is None:
        raise DamagedRecordError(f"{record[:40]!r} is no beginning of a ledger's metadata")
    version = int(match[1])
    if version not in (_TEXT, _BINARY):
        raise DamagedRecordError(
            f"metadata of format {version} is not supported, only formats 2 and 3 (BookKeeper 4.2 and later)"
        )
    return version, record[match.end() :]


def _parsed(version: int, body: bytes) -> LedgerMetadataFormat:
    message = parse_text(body) if version == _TEXT else _parse_binary(body)
    if not message.IsInitialized():
        raise DamagedRecordError("a required field of a ledger's metadata is missing")
    return message


def _parse_binary(body: bytes) -> LedgerMetadataFormat:
    stream = BytesIO(body)
    try:
        message = proto.parse_length_prefixed(LedgerMetadataFormat, stream)
    except (DecodeError, ValueError, OverflowError) as error:
        raise DamagedRecordError(f"a ledger's metadata cannot be read: {error}") from error
    if message is None or stream.tell() != len(body):
        raise DamagedRecordError(f"a ledger's metadata of {len(body)} bytes are not as long as they say")
    for part in (message, *message.segment, *message.customMetadata):
        _check_part(part)
    return message


def _check_part(message: Any) -> None:
    """A known field among the unknown ones has a type, or a value of its enumeration, that we do not know: to ignore it
    would be wrong. A text that is not UTF-8 comes as bytes."""
    unknown = UnknownFieldSet(message)
    known = message.DESCRIPTOR.fields_by_number
    wrong = [known[n].name for n in (unknown[i].field_number for i in range(len(unknown))) if n in known]
    wrong += [
        field.name for field, value in message.ListFields() if field.type == field.TYPE_STRING and not _is_text(value)
    ]
    if wrong:
        raise DamagedRecordError(f"a ledger's metadata have a {wrong[0]} that we cannot read")


def _is_text(value: Any) -> bool:
    return all(isinstance(one, str) for one in ([value] if isinstance(value, bytes) else value))


def _to_model(message: LedgerMetadataFormat, version: int, record: bytes) -> LedgerMetadata:
    closed = message.state == LedgerMetadataFormat.CLOSED
    # without both it is the reader's choice
    has_digest = message.HasField("digestType") or message.HasField("password")
    metadata = LedgerMetadata(
        ensemble_size=message.ensembleSize,
        write_quorum=message.quorumSize,
        ack_quorum=message.ackQuorumSize if message.HasField("ackQuorumSize") else message.quorumSize,
        state=LedgerState(message.state),
        fragments=tuple(_fragment(segment) for segment in message.segment),
        digest=DigestType(message.digestType) if has_digest else DigestType.CRC32C,
        password=message.password,
        last_entry=message.lastEntryId if closed else NO_ENTRY,
        length=message.length if closed else 0,
        created_ms=message.ctime if message.HasField("ctime") else None,
        custom={one.key: one.value for one in message.customMetadata},
        format_version=version,
        raw=record,
    )
    _check(metadata)
    if closed and not message.HasField("lastEntryId"):
        raise DamagedRecordError("a closed ledger's metadata have no lastEntryId")
    return metadata


def _fragment(segment: LedgerMetadataFormat.Segment) -> Fragment:
    return Fragment(segment.firstEntryId, tuple(segment.ensembleMember))


def _check(metadata: LedgerMetadata) -> None:
    """Refuse what no ledger can have, but no dangerous choice: whoever looks into a ledger must see those."""
    firsts = [fragment.first_entry for fragment in metadata.fragments]
    members = [bookie for fragment in metadata.fragments for bookie in fragment.ensemble]
    sizes = (metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
    if min(sizes) < 1:
        quorums = "an ensemble of {}, a write quorum of {}, an ack quorum of {}".format(*sizes)
        raise DamagedRecordError(f"a ledger cannot have {quorums}")
    if not firsts or firsts[0] != 0 or any(a >= b for a, b in pairwise(firsts)):
        raise DamagedRecordError(f"a ledger's fragments cannot begin at the entries {firsts}")
    if not all(fragment.ensemble for fragment in metadata.fragments) or not all(map(_BOOKIE.fullmatch, members)):
        raise DamagedRecordError(f"a ledger cannot be on the bookies {members}")
    if metadata.last_entry < NO_ENTRY or metadata.length < 0:
        raise DamagedRecordError(f"a ledger cannot end with entry {metadata.last_entry} and {metadata.length} bytes")


def _update(message: LedgerMetadataFormat, metadata: LedgerMetadata, before: LedgerMetadata | None) -> None:
    """Set only what differs: a field that was absent stays so. But a closed ledger's end is always said."""
    for name, attribute in _SCALARS.items():
        value = getattr(metadata, attribute)
        if before is None or value != getattr(before, attribute) or (metadata.closed and name in _END):
            setattr(message, name, value)
    if before is None and metadata.created_ms is not None:
        message.ctime = metadata.created_ms
    old = LedgerMetadataFormat()
    old.CopyFrom(message)
    if before is None or metadata.fragments != before.fragments:
        del message.segment[:]
        message.segment.extend(_segments(metadata, old))
    if before is None or metadata.custom != before.custom:
        del message.customMetadata[:]
        message.customMetadata.extend(_custom(metadata, old))


def _segments(metadata: LedgerMetadata, old: LedgerMetadataFormat) -> Iterator[LedgerMetadataFormat.Segment]:
    kept = {_fragment(segment): segment for segment in old.segment}
    for one in metadata.fragments:
        yield kept.get(one) or LedgerMetadataFormat.Segment(firstEntryId=one.first_entry, ensembleMember=one.ensemble)


def _custom(metadata: LedgerMetadata, old: LedgerMetadataFormat) -> Iterator[LedgerMetadataFormat.CustomMetadata]:
    kept = {(one.key, one.value): one for one in old.customMetadata}
    for key, value in metadata.custom.items():
        yield kept.get((key, value)) or LedgerMetadataFormat.CustomMetadata(key=key, value=value)
