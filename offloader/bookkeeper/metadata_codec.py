"""A ledger's record in the metadata store, formats 2 and 3. Pure.

    BookieMetadataFormatVersion <tab> 3 <newline> [varint length][LedgerMetadataFormat]
    BookieMetadataFormatVersion <tab> 2 <newline> [LedgerMetadataFormat as text]

As BookKeeper 4.17 writes and reads it. A record that is written again keeps what we do not know of it. Protobuf's text
parser drops fields that it does not know, so we keep the text of those, and of each field that did not change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

from google.protobuf import proto, text_format
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.model import NO_ENTRY, DigestType, Fragment, LedgerMetadata, LedgerState
from offloader.errors import DamagedRecordError

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<open>[{<\[])
    |(?P<close>[}>\]])
    |(?P<mark>[:,;])
    |(?P<word>[^\s"'{}<>\[\]:,;\#]+)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?:[abfnrtv\\'"]|[0-3][0-7]{2}|[0-7]{1,2}(?![0-7])|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"""
)
_KNOWN = LedgerMetadataFormat.DESCRIPTOR.fields_by_name
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


class _Field(NamedTuple):
    name: str
    text: str

    @property
    def meaning(self) -> bytes:
        """What we know of it: the same for the same value, however it is written."""
        return text_format.Parse(self.text, LedgerMetadataFormat(), allow_unknown_field=True).SerializePartialToString()


def parse_text(body: bytes) -> LedgerMetadataFormat:
    """The message without what we do not know of it. Raises DamagedRecordError."""
    try:
        text = body.decode()
        if "\\" in _ESCAPE.sub("", text):
            raise text_format.ParseError("a backslash begins no escape sequence")  # the parser only warns
        return text_format.Parse(text, LedgerMetadataFormat(), allow_unknown_field=True)
    except (UnicodeError, text_format.ParseError, RecursionError) as error:
        raise DamagedRecordError(f"a ledger's metadata are no text that can be read: {error}") from error


def merge_text(message: LedgerMetadataFormat, before: bytes) -> bytes:
    """The message as text, with what `before`, from which it comes, has that we do not know."""
    old: defaultdict[bytes, list[str]] = defaultdict(list)
    unknown = []
    for field in _fields(before.decode()):
        if field.name in _KNOWN:
            old[field.meaning].append(field.text)
        else:
            unknown.append(field.text)
    new = _fields(text_format.MessageToString(message))
    texts = [old[meaning].pop(0) if old[meaning := field.meaning] else field.text for field in new]
    return "\n".join([*texts, *unknown, ""]).encode()


def _fields(text: str) -> Iterator[_Field]:
    """The outermost fields, each with its text."""
    for (begin, name), (end, _) in pairwise([*_beginnings(text), (len(text), "")]):
        yield _Field(name, text[begin:end].rstrip(" \t\r\n,;"))


def _beginnings(text: str) -> Iterator[tuple[int, str]]:
    """Where an outermost field's name stands: a word that a colon or a block follows and no colon precedes."""
    depth, before = 0, ""
    candidate: tuple[int, str] | None = None
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "space":
            continue
        if candidate is not None and word in (":", "{", "<"):
            yield candidate
        candidate = (token.start(), word) if kind == "word" and depth == 0 and before != ":" else None
        depth += (kind == "open") - (kind == "close")
        before = word


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
