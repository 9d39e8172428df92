"""The ledger-based format written as stock Pulsar writes it: we only read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from offloader.errors import FatalError
from offloader.format.blocks import ENTRY_HEADER, ENTRY_HEADER_SIZE, HEADER_SIZE, BlockHeader, padding
from offloader.format.v1 import LedgerIndex

INDEX_HEADER = Struct(">4siqqii")
INDEX_ENTRY = Struct(">qiq")

MAGIC = bytes.fromhex("de47de47")


def encode_ledger_index(index: LedgerIndex) -> bytes:
    """The V1 index object's bytes."""
    length = INDEX_HEADER.size + len(index.metadata) + len(index.entries) * INDEX_ENTRY.size
    header = INDEX_HEADER.pack(MAGIC, length, index.data_length, HEADER_SIZE, len(index.entries), len(index.metadata))
    return b"".join([header, index.metadata, *(INDEX_ENTRY.pack(e.entry, e.block, e.offset) for e in index.entries)])


def write_blocks(entries: Sequence[bytes], max_block_size: int) -> Iterator[bytes]:
    """A closed ledger's data object, block by block, cut as Pulsar cuts it.

    Raises FatalError for an entry that does not fit into a block, where Pulsar's writer loses it and everything after
    it.
    """
    remaining = sum(len(data) + ENTRY_HEADER_SIZE for data in entries)
    done = 0
    while done < len(entries):
        size = min(max_block_size, HEADER_SIZE + remaining)
        taken, used = _fitting(entries[done:], size)
        if not taken:
            length = len(entries[done])
            raise FatalError(
                f"entry {done} of {length} bytes needs blocks larger than {max_block_size}: raise the block size"
            )
        yield _block(BlockHeader(1, size, done, None), entries[done : done + taken])
        remaining -= used - HEADER_SIZE
        done += taken


def _fitting(entries: Iterable[bytes], size: int) -> tuple[int, int]:
    """How many of the entries fit into a block, and the bytes that they use of it, its header included."""
    used, count = HEADER_SIZE, 0
    for data in entries:
        growth = ENTRY_HEADER_SIZE + len(data)
        if used + growth > size:
            break
        used, count = used + growth, count + 1
    return count, used


def _block(header: BlockHeader, entries: Sequence[bytes]) -> bytes:
    pieces = [header.encode()]
    for entry, data in enumerate(entries, header.first_entry):
        pieces += (ENTRY_HEADER.pack(len(data), entry), data)
    pieces.append(padding(header.length - sum(map(len, pieces))))
    return b"".join(pieces)
