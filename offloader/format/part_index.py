"""A part's index entries, at the part's end: behind the padding of its last block, where no reader of entries looks.

    per entry: [int64 ledger][int64 entry][int32 block][int64 offset], then [CRC32C of the entries]

So neither a receipt nor the journal carries index entries: sealing reads them back from the object that it has
completed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

from offloader.errors import DamagedObjectError
from offloader.model import Part

_ENTRY = Struct(">qqiq")
_CRC = Struct(">I")


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One mapping of the index object: reading may begin at `offset` + 128 with `entry`.

    `block` is the number of the block in the object, from 1 (`partId` in the format); `offset` is absolute.
    """

    ledger: int
    entry: int
    block: int
    offset: int


def part_index_size(count: int) -> int:
    """How many bytes so many entries take at a part's end. A part without an entry has no index."""
    return count * _ENTRY.size + _CRC.size if count else 0


def encode_part_index(entries: Collection[IndexEntry]) -> bytes:
    """The bytes at the end of a part with these entries."""
    packed = b"".join(_ENTRY.pack(e.ledger, e.entry, e.block, e.offset) for e in entries)
    return packed + _CRC.pack(crc32c(packed)) if packed else b""


def is_part_index(data: bytes) -> bool:
    """Whether these are the bytes of an index, of whatever part."""
    whole = len(data) > _CRC.size and (len(data) - _CRC.size) % _ENTRY.size == 0
    return whole and data[-_CRC.size :] == _CRC.pack(crc32c(data[: -_CRC.size]))


def decode_part_index(data: bytes, part: Part) -> Iterable[IndexEntry]:
    """The entries of a part, from its last `part_index_size(part.indexed)` bytes. Raises DamagedObjectError."""
    end = part.offset + part.size
    packed, said = data[: -_CRC.size], data[-_CRC.size :]
    if len(data) != part_index_size(part.indexed) or said != _CRC.pack(crc32c(packed)):
        raise DamagedObjectError(
            f"offset {end - part_index_size(part.indexed)}: the index of part {part.number} is damaged"
        )
    return (IndexEntry(*fields) for fields in _ENTRY.iter_unpack(packed))
