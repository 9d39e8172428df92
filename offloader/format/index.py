"""The V2 index object, which says where reading of a ledger may begin in the data object; and a part's own index.

    [3d 1f b0 bc][int32 index length][int64 data length][int64 128]
    per ledger: [int64 ledger][int32 entry count][int32 metadata length][LedgerInfo][20 bytes per entry]
    entry: [int64 first entry][int32 block number][int64 offset]     reading begins at offset + 128

Layout as Pulsar's tiered-storage-jcloud 4.0.8 writes it. Pulsar's order of ledgers is that of a Java HashMap; ours
ascends.

A part's index stands at the part's end, behind the padding of its last block, where no reader of entries looks:

    per entry: [int64 ledger][int64 entry][int32 block][int64 offset], then [CRC32C of the entries]

So neither a receipt nor the journal carries index entries: sealing reads them back from the object that it has
completed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct

from crc32c import crc32c
from google.protobuf.message import DecodeError

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.errors import DamagedObjectError, IntegrityError
from offloader.format.blocks import ENTRY_HEADER_SIZE, HEADER_SIZE
from offloader.model import LedgerRange, Part

OBJECT_META = {"s3managedledgeroffloaderformatversion": "1"}
"""Of data and index objects. Pulsar's readers check this one key; there is no version 2 (see docs/format.md)."""
MAGIC = bytes.fromhex("3d1fb0bc")
INDEX_ENTRY = Struct(">qiq")  # entry, block number, offset
_HEADER = Struct(">4siqq")  # magic, index length, data length, data header length
_GROUP_HEADER = Struct(">qii")  # ledger, entry count, metadata length
_PART_ENTRY = Struct(">qqiq")
_PART_CRC = Struct(">I")


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
    return count * _PART_ENTRY.size + _PART_CRC.size if count else 0


def encode_part_index(entries: Collection[IndexEntry]) -> bytes:
    """The bytes at the end of a part with these entries."""
    packed = b"".join(_PART_ENTRY.pack(e.ledger, e.entry, e.block, e.offset) for e in entries)
    return packed + _PART_CRC.pack(crc32c(packed)) if packed else b""


def is_part_index(data: bytes) -> bool:
    """Whether these are the bytes of an index, of whatever part."""
    whole = len(data) > _PART_CRC.size and (len(data) - _PART_CRC.size) % _PART_ENTRY.size == 0
    return whole and data[-_PART_CRC.size :] == _PART_CRC.pack(crc32c(data[: -_PART_CRC.size]))


def decode_part_index(data: bytes, part: Part) -> Iterable[IndexEntry]:
    """The entries of a part, from its last `part_index_size(part.indexed)` bytes. Raises DamagedObjectError."""
    end = part.offset + part.size
    packed, said = data[: -_PART_CRC.size], data[-_PART_CRC.size :]
    if len(data) != part_index_size(part.indexed) or said != _PART_CRC.pack(crc32c(packed)):
        raise DamagedObjectError(
            f"offset {end - part_index_size(part.indexed)}: the index of part {part.number} is damaged"
        )
    return (IndexEntry(*fields) for fields in _PART_ENTRY.iter_unpack(packed))


@dataclass(frozen=True, slots=True)
class IndexGroup:
    """One ledger's entries, ascending. `metadata` is its encoded LedgerInfo, kept byte for byte."""

    ledger: int
    metadata: bytes
    entries: tuple[IndexEntry, ...]

    @property
    def info(self) -> ManagedLedgerInfo.LedgerInfo:
        """The ledger's record. Of our own objects: `size` is the sum of its entries' lengths in this segment; `entries`
        is the last entry id + 1, of the closed ledger where that is known, of this segment otherwise."""
        return ManagedLedgerInfo.LedgerInfo.FromString(self.metadata)


@dataclass(frozen=True, slots=True)
class Index:
    """A decoded index object; groups ascend by ledger."""

    data_length: int
    groups: tuple[IndexGroup, ...]

    def entries(self) -> Iterator[IndexEntry]:
        """All index entries, in the order of their ledgers and entry ids."""
        return (entry for group in self.groups for entry in group.entries)

    def seek(self, ledger: int, entry: int) -> IndexEntry | None:
        """The last index entry at or before an entry of a ledger; None: the object has none of that ledger so early."""
        for group in self.groups:
            if group.ledger == ledger:
                after = bisect_right(group.entries, entry, key=lambda e: e.entry)
                return group.entries[after - 1] if after else None
        return None


def encode_index(data_length: int, groups: Iterable[IndexGroup]) -> bytes:
    """The index object's bytes: the same for the same groups in any order."""
    body = b"".join(_encode_group(group) for group in sorted(groups, key=lambda g: g.ledger))
    return _HEADER.pack(MAGIC, _HEADER.size + len(body), data_length, HEADER_SIZE) + body


def index_of_segment(
    entries: Iterable[IndexEntry], ledgers: Iterable[LedgerRange], data_length: int, timestamp: int
) -> bytes:
    """The index object of a segment, of its parts' entries: `ledgers` as its record has them (one range per ledger),
    `timestamp` in ms.

    Raises IntegrityError where parts and record speak of different ledgers.
    """
    ledgers = tuple(ledgers)
    by_ledger: dict[int, list[IndexEntry]] = {}
    for entry in entries:
        by_ledger.setdefault(entry.ledger, []).append(entry)
    if sorted(by_ledger) != sorted(r.ledger for r in ledgers):
        raise IntegrityError(f"the parts hold ledgers {sorted(by_ledger)}, the segment's record names {ledgers}")
    groups = (IndexGroup(r.ledger, ledger_info(r, timestamp), tuple(by_ledger[r.ledger])) for r in ledgers)
    return encode_index(data_length, groups)


def ledger_info(held: LedgerRange, timestamp: int) -> bytes:
    """The encoded LedgerInfo of our own index objects, see `IndexGroup.info`."""
    last = held.last if held.closed_with is None else held.closed_with
    info = ManagedLedgerInfo.LedgerInfo(ledgerId=held.ledger, entries=last + 1, size=held.size, timestamp=timestamp)
    return info.SerializeToString(deterministic=True)


def decode_index(data: bytes) -> Index:
    """Read an index object. Raises DamagedObjectError naming the offset of what is wrong."""
    if len(data) < _HEADER.size:
        raise DamagedObjectError(f"index: {len(data)} bytes are too few")
    magic, length, data_length, header_length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DamagedObjectError(f"index offset 0: {magic.hex()} is not the magic of a streaming index")
    if length != len(data):
        raise DamagedObjectError(f"index offset 4: it says that it has {length} bytes, and has {len(data)}")
    if header_length != HEADER_SIZE:
        raise DamagedObjectError(f"index offset 16: data header length {header_length} is not {HEADER_SIZE}")
    groups = tuple(sorted(_decode_groups(data, data_length), key=lambda g: g.ledger))
    _check_groups(groups)
    return Index(data_length, groups)


def decode_entries(data: bytes, at: int, count: int, ledger: int, data_length: int) -> tuple[IndexEntry, ...]:
    """Read `count` index entries from `at`. DamagedObjectError where they do not ascend or leave the data object."""
    packed = memoryview(data)[at : at + count * INDEX_ENTRY.size]
    entries = tuple(
        IndexEntry(ledger, entry, block, offset) for entry, block, offset in INDEX_ENTRY.iter_unpack(packed)
    )
    entry, block, offset = -1, 1, -1
    last_offset = data_length - HEADER_SIZE - ENTRY_HEADER_SIZE
    for number, found in enumerate(entries):
        if not (entry < found.entry and block <= found.block and offset < found.offset <= last_offset):
            raise DamagedObjectError(
                f"index offset {at + number * INDEX_ENTRY.size}: {found} is out of order or out of range"
            )
        entry, block, offset = found.entry, found.block, found.offset
    return entries


def _encode_group(group: IndexGroup) -> bytes:
    header = _GROUP_HEADER.pack(group.ledger, len(group.entries), len(group.metadata))
    return b"".join([header, group.metadata, *(INDEX_ENTRY.pack(e.entry, e.block, e.offset) for e in group.entries)])


def _decode_groups(data: bytes, data_length: int) -> Iterator[IndexGroup]:
    at = _HEADER.size
    while at < len(data):
        if at + _GROUP_HEADER.size > len(data):
            raise DamagedObjectError(f"index offset {at}: {len(data) - at} bytes are too few for a ledger")
        ledger, count, metadata_length = _GROUP_HEADER.unpack_from(data, at)
        begin = at + _GROUP_HEADER.size
        entries_at = begin + metadata_length
        end = entries_at + count * INDEX_ENTRY.size
        if ledger < 0 or count < 1 or metadata_length < 0 or end > len(data):
            raise DamagedObjectError(f"index offset {at}: ledger {ledger} with {count} entries does not fit")
        metadata = data[begin:entries_at]
        _check_metadata(metadata, ledger, begin)
        yield IndexGroup(ledger, metadata, decode_entries(data, entries_at, count, ledger, data_length))
        at = end


def _check_metadata(metadata: bytes, ledger: int, at: int) -> None:
    try:
        info = ManagedLedgerInfo.LedgerInfo.FromString(metadata)
    except DecodeError as e:
        raise DamagedObjectError(f"index offset {at}: the metadata of ledger {ledger} cannot be parsed") from e
    said = info.ledgerId if info.HasField("ledgerId") else None
    if said != ledger:
        raise DamagedObjectError(f"index offset {at}: the metadata of ledger {ledger} says ledger {said}")


def _check_groups(groups: tuple[IndexGroup, ...]) -> None:
    if not groups:
        raise DamagedObjectError("index: it names no ledger")
    for before, after in pairwise(groups):
        if before.ledger == after.ledger:
            raise DamagedObjectError(f"index: ledger {after.ledger} stands in it twice")
