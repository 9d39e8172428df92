"""The block: 128 bytes of header, entries of one ledger with consecutive ids, padding.

Layout as Pulsar's tiered-storage-jcloud 4.0.8 writes it; all integers are big-endian and signed. V1 (PIP-17) and V2
(PIP-76) differ in the magic and in V2's ledger id. The Javadoc of Pulsar's header classes describes another layout than
their code.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from offloader.errors import DamagedObjectError

HEADER_SIZE = 128
ENTRY_HEADER_SIZE = 12
PADDING_SIZE = 4  # of our own blocks; Pulsar's V2 reader takes a block without padding for longer than it is

MAGIC_V1 = bytes.fromhex("fbdbabcb")
MAGIC_V2 = bytes.fromhex("26a66d32")
PADDING_PATTERN = bytes.fromhex("fedcdead")

ENTRY_HEADER = Struct(">iq")  # length, entry id
_HEADER = Struct(">4sqqqq92s")  # magic, header length, block length, first entry, ledger (V1: zero), zero
_ZERO_FILL = bytes(92)
_PIECE = PADDING_PATTERN * 16384


class BlockHeader(NamedTuple):
    """`length`: of the whole block in bytes, with header and padding. `ledger` is None in V1, which does not say it."""

    version: int
    length: int
    first_entry: int
    ledger: int | None

    def encode(self) -> bytes:
        magic = MAGIC_V1 if self.ledger is None else MAGIC_V2
        return _HEADER.pack(magic, HEADER_SIZE, self.length, self.first_entry, self.ledger or 0, _ZERO_FILL)


def decode_header(data: bytes | memoryview, at: int) -> BlockHeader:
    """Read a block's header from the first 128 bytes of `data`, which stand at `at` in the object.

    Raises DamagedObjectError naming the offset of the first field that is wrong.
    """
    if len(data) < HEADER_SIZE:
        raise DamagedObjectError(f"offset {at}: {len(data)} bytes are too few for a block header")
    magic, header_length, length, first_entry, ledger, fill = _HEADER.unpack_from(data)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise DamagedObjectError(f"offset {at}: {magic.hex()} is not the magic of a block")
    if header_length != HEADER_SIZE:
        raise DamagedObjectError(f"offset {at + 4}: header length {header_length} is not {HEADER_SIZE}")
    if length <= HEADER_SIZE:
        raise DamagedObjectError(f"offset {at + 12}: block length {length} leaves no room for an entry")
    if first_entry < 0:
        raise DamagedObjectError(f"offset {at + 20}: first entry {first_entry} is negative")
    if ledger < 0 or (magic == MAGIC_V1 and ledger != 0):
        raise DamagedObjectError(f"offset {at + 28}: {ledger} cannot stand in place of the ledger id")
    if fill != _ZERO_FILL:
        raise DamagedObjectError(f"offset {at + 36 + _first_nonzero(fill)}: the header's fill is not zero")
    return (
        BlockHeader(1, length, first_entry, None) if magic == MAGIC_V1 else BlockHeader(2, length, first_entry, ledger)
    )


def padding(size: int) -> bytes:
    """The pattern, repeated and cut off."""
    return (PADDING_PATTERN * (size // len(PADDING_PATTERN) + 1))[:size]


def padding_fault(data: bytes | memoryview, done: int = 0) -> int | None:
    """Where `data` stops being padding, None if it is all padding. `done` bytes of the same padding stand before it."""
    phase = done % len(PADDING_PATTERN)
    size = len(_PIECE) - len(PADDING_PATTERN)
    for begin in range(0, len(data), size):
        piece = bytes(data[begin : begin + size])
        if piece != _PIECE[phase : phase + len(piece)]:
            return begin + next(i for i, byte in enumerate(piece) if byte != _PIECE[phase + i])
    return None


def end_fault(data: bytes | memoryview, done: int = 0) -> int | None:
    """The same of what ends a block's entries: a part's index may stand behind the padding's first bytes."""
    return padding_fault(data[: max(PADDING_SIZE - done, 0)], done)


def _first_nonzero(fill: bytes) -> int:
    return len(fill) - len(fill.lstrip(b"\0"))
