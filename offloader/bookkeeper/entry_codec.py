"""Entries as bookies keep them: header, digest, payload. Pure.

`[i64 ledger][i64 entry][i64 last confirmed][i64 length][digest][payload]`; a LAC that was sent by itself is
`[i64 ledger][i64 last confirmed][digest]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from offloader.bookkeeper.digests import Bytes, Digest
from offloader.bookkeeper.model import StoredEntry
from offloader.errors import IntegrityError
from offloader.ports.entry_source import RawEntry

_HEADER = Struct(">qqqq")
_IDS = Struct(">qq")
_SIZE = _HEADER.size
_LAC_SIZE = _IDS.size


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
