"""What a segment's record says of an object that a broker's own offloader wrote (V1): parts, and a finer index. Pure.

Every byte is gone over: headers, entries with consecutive ids from 0 on, padding. Parts are whole blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from crc32c import crc32c

from offloader.errors import DamagedObjectError, FatalError
from offloader.format.blocks import (
    ENTRY_HEADER_SIZE,
    HEADER_SIZE,
    BlockEntry,
    BlockHeader,
    Chunks,
    decode_header,
    padding_fault,
    read_entries,
)
from offloader.format.cutter import Consecutive
from offloader.format.index import IndexEntry
from offloader.format.many import StatsBuilder
from offloader.model import MIB, LedgerRange, Part, SegmentLayout

LARGEST_BLOCK = 256 * MIB
"""Who reads a segment holds a part in memory, which has whole blocks. Brokers make blocks of 64 MiB by default."""
_AT_ONCE = 4096  # entries


@dataclass(frozen=True, slots=True)
class ExaminedLedger:
    """What an object holds: entries 0 to `last` of together `payload` bytes."""

    parts: tuple[Part, ...]
    index: tuple[IndexEntry, ...]
    last: int
    payload: int


def examine(chunks: Iterable[bytes], size: int, ledger: int, cuts: SegmentLayout) -> ExaminedLedger:
    """Go over an object of `size` bytes once, a block in memory at a time. Raises DamagedObjectError naming the first
    offset that is wrong; FatalError for a block that is too large for a part."""
    walk = _Walk(Chunks(chunks), size, ledger, cuts)
    while walk.next_block():
        pass
    return walk.ended()


class _Walk:
    def __init__(self, chunks: Chunks, size: int, ledger: int, cuts: SegmentLayout) -> None:
        self._chunks = chunks
        self._size = size
        self._ledger = ledger
        self._cuts = cuts
        self._parts: list[Part] = []
        self._index: list[IndexEntry] = []
        self._block = 0
        self._entry = 0  # the next one
        self._crc = 0
        self._begin_part()

    def next_block(self) -> bool:
        """False: the object has ended."""
        if self._chunks.at_end():
            return False
        begin = self._chunks.position
        encoded = bytes(self._chunks.take(HEADER_SIZE))
        header = decode_header(encoded, begin)
        self._check(header, begin)
        if begin > self._offset and begin - self._offset + header.length > self._cuts.part_size:
            self._end_part(begin)
        contents = self._chunks.take(header.length - HEADER_SIZE)
        missing = begin + header.length - self._chunks.position
        if missing:
            raise DamagedObjectError(f"offset {self._chunks.position}: {missing} bytes of the block are missing")
        self._crc = crc32c(contents, crc32c(encoded, self._crc))
        self._block += 1
        self._blocks += 1
        self._take(contents, begin)
        return True

    def ended(self) -> ExaminedLedger:
        if self._blocks:
            self._end_part(self._chunks.position)
        if not self._parts:
            raise DamagedObjectError("offset 0: the object is empty")
        payload = sum(part.ledgers[0].size for part in self._parts)
        return ExaminedLedger(tuple(self._parts), tuple(self._index), self._entry - 1, payload)

    def _check(self, header: BlockHeader, begin: int) -> None:
        if header.ledger is not None:
            raise DamagedObjectError(f"offset {begin}: a streaming block in the object of ledger {self._ledger}")
        if header.first_entry != self._entry:
            raise DamagedObjectError(
                f"offset {begin}: a block from entry {header.first_entry} on, where {self._entry} belongs"
            )
        if header.length > self._size - begin:
            raise DamagedObjectError(f"offset {begin}: a block of {header.length} bytes, behind the object's end")
        if header.length > LARGEST_BLOCK:
            raise FatalError(
                f"offset {begin}: a block of {header.length} bytes is larger than a part may be ({LARGEST_BLOCK}): "
                "take this topic's ledgers over with --rewrite"
            )

    def _take(self, contents: bytes | memoryview, begin: int) -> None:
        """A block's entries and its padding."""
        first, end = self._entry, begin + HEADER_SIZE
        stored = read_entries(contents, begin + HEADER_SIZE, first)
        while group := list(islice(stored, _AT_ONCE)):
            self._count(Consecutive.of(self._ledger, self._entry, [one.data for one in group]))
            for one in group:
                self._point(one, opens=one.entry == first)
            end = group[-1].offset + ENTRY_HEADER_SIZE + len(group[-1].data)
        if self._entry == first:
            raise DamagedObjectError(f"offset {begin}: the block holds no entry")
        fault = padding_fault(contents[end - begin - HEADER_SIZE :])
        if fault is not None:
            raise DamagedObjectError(f"offset {end + fault}: neither an entry nor padding")

    def _count(self, entries: Consecutive) -> None:
        at = 0
        while at < len(entries):
            regular = entries.regular_up_to(at)
            if regular > at:
                self._stats.add_all(entries.facts, at, regular)
            if regular < len(entries):
                self._stats.add(entries.facts_of(regular))
            at = regular + 1
        self._entry += len(entries)
        self._payload += entries.size(len(entries))

    def _point(self, one: BlockEntry, *, opens: bool) -> None:
        """An index entry for a block's first entry, and for one about every step."""
        offset = one.offset - HEADER_SIZE
        if opens or offset - self._index[-1].offset >= self._cuts.index_step:
            self._index.append(IndexEntry(self._ledger, one.entry, self._block, offset))

    def _begin_part(self) -> None:
        self._offset = self._chunks.position
        self._first = self._entry
        self._blocks = self._crc = self._payload = 0
        self._stats = StatsBuilder()

    def _end_part(self, end: int) -> None:
        count = self._entry - self._first
        held = LedgerRange(self._ledger, self._first, self._entry, count=count, size=self._payload)
        self._parts.append(
            Part(
                number=len(self._parts) + 1,
                offset=self._offset,
                size=end - self._offset,
                etag="",  # the upload had other parts
                crc32c=self._crc,
                blocks=self._blocks,
                ledgers=(held,),
                indexed=0,
                stats=self._stats.build(),
            )
        )
        self._begin_part()
        self._offset = end
