"""Reads blocks and their entries back, V1 and V2, of ours and of Pulsar's writing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from offloader.errors import DamagedObjectError
from offloader.format.blocks import ENTRY_HEADER, ENTRY_HEADER_SIZE, HEADER_SIZE, BlockHeader, decode_header, end_fault


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
