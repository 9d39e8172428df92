"""The block: 128 bytes of header, entries of one ledger with consecutive ids, padding. Written, and read back: V1 and
V2, of ours and of Pulsar's writing.

Layout as Pulsar's tiered-storage-jcloud 4.0.8 writes it; all integers are big-endian and signed. V1 (PIP-17) and V2
(PIP-76) differ in the magic and in V2's ledger id. The Javadoc of Pulsar's header classes describes another layout than
their code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class Chunks:
    """Goes once over the chunks, holding one at a time. `position` is the offset in the object."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self.position = 0

    def at_end(self) -> bool:
        """Whether no byte is left."""
        while not self._rest:
            following = next(self._chunks, None)
            if following is None:
                return True
            self._rest = memoryview(following)
        return False

    def some(self, most: int) -> memoryview:
        """Up to `most` bytes, none only at the object's end (or where none are asked for)."""
        if not self._rest and self.at_end():
            return self._rest
        piece, self._rest = self._rest[:most], self._rest[most:]
        self.position += len(piece)
        return piece

    def take(self, count: int) -> bytes | memoryview:
        """`count` bytes, fewer only at the object's end."""
        pieces: list[memoryview] = []
        while count and not self.at_end():
            pieces.append(self.some(count))
            count -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, count: int) -> int:
        """Go on by `count` bytes; returns how many of them the object does not have."""
        while count and not self.at_end():
            count -= len(self.some(count))
        return count

    def take_padding(self, begin: int, end: int, head: bytes | memoryview) -> None:
        """Go on to `end`; from `begin`, where `head` was taken, all is padding. Raises DamagedObjectError."""
        at, piece = begin, head
        while True:
            fault = padding_fault(piece, at - begin)
            if fault is not None:
                raise DamagedObjectError(f"offset {at + fault}: neither an entry nor padding")
            at += len(piece)
            if at == end:
                return
            piece = self.some(end - at)
            if not piece:
                raise DamagedObjectError(f"offset {at}: {end - at} bytes of padding are missing")


class Block(NamedTuple):
    """A block at `offset` of its object. `contents` is everything after its header."""

    offset: int
    header: BlockHeader
    contents: memoryview


class BlockEntry(NamedTuple):
    """An entry's bytes, and where its length field stands in the object."""

    entry: int
    data: bytes
    offset: int


def read_blocks(data: bytes | memoryview, base_offset: int = 0) -> Iterator[Block]:
    """The blocks in `data`, which begins with one, at `base_offset` of its object, and ends with one.

    Raises DamagedObjectError naming the offset of what is wrong.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        header = decode_header(view[at : at + HEADER_SIZE], base_offset + at)
        end = at + header.length
        if end > len(view):
            missing = end - len(view)
            raise DamagedObjectError(
                f"offset {base_offset + at}: {missing} bytes of this block of {header.length} are missing"
            )
        yield Block(base_offset + at, header, view[at + HEADER_SIZE : end])
        at = end


def entries(block: Block) -> Iterator[BlockEntry]:
    """A block's entries, then a check of what ends them. Raises DamagedObjectError."""
    begin = block.offset + HEADER_SIZE
    end = begin
    for found in read_entries(block.contents, begin, block.header.first_entry):
        end = found.offset + ENTRY_HEADER_SIZE + len(found.data)
        yield found
    fault = end_fault(block.contents[end - begin :])
    if fault is not None:
        raise DamagedObjectError(f"offset {end + fault}: neither an entry nor padding")


def read_entries(data: bytes | memoryview, base_offset: int, first_entry: int) -> Iterator[BlockEntry]:
    """Entries with consecutive ids from `first_entry` on, up to their block's end: a negative length, or less than 12
    bytes.

    For reading from the middle of a block, where an index entry points. `data` may go on after the block only if that
    has padding, as all V2 blocks have: a V2 header's magic reads as a length. Raises DamagedObjectError.
    """
    view = memoryview(data)
    at, expected = 0, first_entry
    while at + ENTRY_HEADER_SIZE <= len(view):
        length, entry = ENTRY_HEADER.unpack_from(view, at)
        if length < 0:
            return
        if entry != expected:
            raise DamagedObjectError(f"offset {base_offset + at + 4}: entry {entry} stands where {expected} belongs")
        begin = at + ENTRY_HEADER_SIZE
        if begin + length > len(view):
            raise DamagedObjectError(f"offset {base_offset + at}: entry {entry} of {length} bytes is cut off")
        yield BlockEntry(entry, bytes(view[begin : begin + length]), base_offset + at)
        at, expected = begin + length, expected + 1
