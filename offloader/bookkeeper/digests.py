"""What protects an entry: CRC32C, CRC32, HMAC or nothing, over its header and its payload. Pure."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from offloader.bookkeeper.model import DigestType, LedgerMetadata

Bytes = bytes | memoryview


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
