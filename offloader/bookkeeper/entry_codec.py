"""Entries as bookies keep them: header, digest, payload. Pure.

`[i64 ledger][i64 entry][i64 last confirmed][i64 length][digest][payload]`; a LAC that was sent by itself is
`[i64 ledger][i64 last confirmed][digest]`. The digest (CRC32C, CRC32, HMAC or nothing) is over header and payload.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from offloader.bookkeeper.model import DigestType, LedgerMetadata, StoredEntry
from offloader.errors import IntegrityError
from offloader.ports.entry_source import RawEntry

Bytes = bytes | memoryview
_HEADER = Struct(">qqqq")
_IDS = Struct(">qq")
_SIZE = _HEADER.size
_LAC_SIZE = _IDS.size


class Digest(NamedTuple):
    """How a ledger's entries are protected: `size` bytes between an entry's header and its payload, made `of` them."""

    size: int
    of: Callable[[Bytes, Bytes], bytes]


def digest_for(metadata: LedgerMetadata) -> Digest:
    """How this ledger's entries are protected. Pulsar's default is CRC32C."""
    match metadata.digest:
        case DigestType.CRC32C:
            return Digest(4, lambda header, payload: int(crc32c(payload, crc32c(header))).to_bytes(4))
        case DigestType.CRC32:
            return Digest(8, lambda header, payload: zlib.crc32(payload, zlib.crc32(header)).to_bytes(8))
        case DigestType.HMAC:
            return _hmac(metadata.password)
        case DigestType.DUMMY:
            return Digest(0, lambda _header, _payload: b"")


def master_key(password: bytes) -> bytes:
    """The 20 bytes that a bookie asks for before it adds to a ledger or fences it."""
    return _sha1(b"ledger", password)


def _hmac(password: bytes) -> Digest:
    keyed = hmac.new(_sha1(b"mac", password), digestmod=hashlib.sha1)

    def of(header: Bytes, payload: Bytes) -> bytes:
        one = keyed.copy()
        one.update(header)
        one.update(payload)
        return one.digest()

    return Digest(keyed.digest_size, of)


def _sha1(purpose: bytes, password: bytes) -> bytes:
    return hashlib.sha1(purpose + password, usedforsecurity=False).digest()


def encode(entry: StoredEntry, digest: Digest) -> bytes:
    """The bytes that a bookie keeps."""
    header = _HEADER.pack(entry.ledger, entry.entry, entry.last_confirmed, entry.length)
    return header + digest.of(header, entry.payload) + entry.payload


def decode(stored: Bytes, digest: Digest, ledger: int, entry: int | None = None) -> StoredEntry:
    """Check and take apart; `entry` None: any (a ledger's last one). Raises IntegrityError."""
    stored = bytes(stored)
    start = _SIZE + digest.size
    what = f"entry {ledger}:{'?' if entry is None else entry}"
    if len(stored) < start:
        raise IntegrityError(f"{what}: {len(stored)} bytes are too few for a stored entry")
    header, payload = stored[:_SIZE], stored[start:]
    if stored[_SIZE:start] != digest.of(header, payload):
        raise IntegrityError(f"{what}: its digest does not match its bytes")
    found_ledger, found_entry, last_confirmed, length = _HEADER.unpack(header)
    if found_ledger != ledger or (entry is not None and found_entry != entry):
        raise IntegrityError(f"{what}: the bookie answered with entry {found_ledger}:{found_entry}")
    return StoredEntry(found_ledger, found_entry, last_confirmed, length, payload)


def raw_entries(stored: Sequence[bytes], digest: Digest, ledger: int, first: int) -> list[RawEntry]:
    """Check consecutive entries from `first` on. Raises IntegrityError. Several times faster than `decode` for each."""
    start, digest_of = _SIZE + digest.size, digest.of
    entries = []
    for number, data in enumerate(stored, first):
        header, payload = data[:_SIZE], data[start:]
        if header[:_LAC_SIZE] != _IDS.pack(ledger, number) or data[_SIZE:start] != digest_of(header, payload):
            decode(data, digest, ledger, number)  # says what is wrong
        entries.append(RawEntry(ledger, number, payload))
    return entries


def encode_lac(ledger: int, last_confirmed: int, digest: Digest) -> bytes:
    """What a writer sends by WRITE_LAC."""
    header = _IDS.pack(ledger, last_confirmed)
    return header + digest.of(header, b"")


def decode_lac(body: Bytes, digest: Digest, ledger: int) -> int:
    """The last confirmed entry that a writer sent by itself. Raises IntegrityError."""
    body = bytes(body)
    header = body[:_LAC_SIZE]
    if len(body) != _LAC_SIZE + digest.size or body[_LAC_SIZE:] != digest.of(header, b""):
        raise IntegrityError(f"ledger {ledger}: the digest of its last confirmed entry does not match")
    found, last_confirmed = _IDS.unpack(header)
    if found != ledger:
        raise IntegrityError(f"ledger {ledger}: the bookie answered with the last confirmed entry of ledger {found}")
    return int(last_confirmed)
