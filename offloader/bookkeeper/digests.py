"""What protects an entry: CRC32C, CRC32, HMAC or nothing, over its header and its payload. Pure."""

from __future__ import annotations

import hashlib
import hmac
import zlib
from typing import Protocol

from crc32c import crc32c

from offloader.bookkeeper.model import DigestType, LedgerMetadata

Bytes = bytes | memoryview


class Digest(Protocol):
    """One ledger's way of protecting its entries. `size`: bytes between an entry's header and its payload."""

    size: int

    def of(self, header: Bytes, payload: Bytes) -> bytes:
        """The digest of the header (without the digest itself) and the payload."""
        ...


class Crc32c:
    """CRC-32C, 4 bytes: Pulsar's default."""

    size = 4

    def of(self, header: Bytes, payload: Bytes) -> bytes:
        """See `Digest`."""
        return int(crc32c(payload, crc32c(header))).to_bytes(4)


class Crc32:
    """CRC-32 as a long, 8 bytes."""

    size = 8

    def of(self, header: Bytes, payload: Bytes) -> bytes:
        """See `Digest`."""
        return zlib.crc32(payload, zlib.crc32(header)).to_bytes(8)


class Hmac:
    """HMAC-SHA1, 20 bytes, with a key made of the ledger's password."""

    size = 20

    def __init__(self, password: bytes) -> None:
        self._hmac = hmac.new(_sha1(b"mac", password), digestmod=hashlib.sha1)

    def of(self, header: Bytes, payload: Bytes) -> bytes:
        """See `Digest`."""
        one = self._hmac.copy()
        one.update(header)
        one.update(payload)
        return one.digest()


class Dummy:
    """Nothing, 0 bytes."""

    size = 0

    def of(self, header: Bytes, payload: Bytes) -> bytes:  # noqa: ARG002 (the interface's signature)
        """See `Digest`."""
        return b""


def digest_for(metadata: LedgerMetadata) -> Digest:
    """How this ledger's entries are protected."""
    match metadata.digest:
        case DigestType.CRC32C:
            return Crc32c()
        case DigestType.CRC32:
            return Crc32()
        case DigestType.HMAC:
            return Hmac(metadata.password)
        case DigestType.DUMMY:
            return Dummy()


def master_key(password: bytes) -> bytes:
    """What a bookie asks for before it adds to a ledger or fences it: 20 bytes made of the ledger's password."""
    return _sha1(b"ledger", password)


def _sha1(purpose: bytes, password: bytes) -> bytes:
    return hashlib.sha1(purpose + password, usedforsecurity=False).digest()
