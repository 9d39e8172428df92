"""Accounts for every byte of a V2 data object: headers, zero fill, entries, padding; and for every index entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from offloader.errors import DamagedObjectError
from offloader.format.blocks import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    HEADER_SIZE,
    PADDING_SIZE,
    BlockHeader,
    Chunks,
    decode_header,
    padding,
)
from offloader.format.index import Index, IndexEntry, encode_part_index, ledger_info
from offloader.model import LedgerRange, merge_ranges


@dataclass(frozen=True, slots=True)
class Accounting:
    """What an object holds: length == 128 * blocks + 12 * entries + payload + padding, in which the parts' indexes are.
    Ledgers in the object's order."""

    length: int
    blocks: int
    entries: int
    payload: int
    padding: int
    ledgers: tuple[LedgerRange, ...]


def account(
    data: bytes | Iterable[bytes],
    index: Index,
    *,
    own: bool = False,
    equal_parts: bool = False,
    v1_ledger: int | None = None,
) -> Accounting:
    """Account for each byte of an object, given whole or as chunks of any sizes, of which one at a time is held.

    `own` says that we wrote it: exactly 4 bytes of padding, and behind those of a part's last block the part's index.
    `equal_parts`: more padding may stand before that.
    Pulsar's V2 blocks may have any number of bytes but none. `v1_ledger`: the object is a copy of what a broker has
    offloaded of this ledger, V1 blocks, which do not name it and may end without padding. Payloads are not looked at:
    their check is the parts' CRC32C. Raises DamagedObjectError naming the first offset that is wrong.
    """
    chunks = Chunks((data,) if isinstance(data, bytes) else data)
    walk = _Walk(chunks, index, own=own and v1_ledger is None, equal_parts=equal_parts, v1_ledger=v1_ledger)
    return walk.run()


def check_ledger_infos(index: Index, ledgers: Iterable[LedgerRange], timestamp: int) -> None:
    """Compare the ledgers' metadata in an index object of ours with the record. Raises DamagedObjectError."""
    try:
        expected = {held.ledger: ledger_info(held, timestamp) for held in ledgers}
    except ValueError as error:  # numbers that no index can hold
        raise DamagedObjectError(f"index: it is of a segment whose record no index can be of ({error})") from error
    found = {group.ledger: group.metadata for group in index.groups}
    for ledger in sorted(expected.keys() | found.keys()):
        if found.get(ledger) != expected.get(ledger):
            raise DamagedObjectError(f"index: its metadata of ledger {ledger} is not what the segment's record says")


class _Walk:
    """One pass over an object."""

    def __init__(self, chunks: Chunks, index: Index, *, own: bool, equal_parts: bool, v1_ledger: int | None) -> None:
        self._chunks = chunks
        self._data_length = index.data_length
        self._own = own
        self._equal_parts = equal_parts
        self._v1_ledger = v1_ledger
        self._index = iter(sorted(index.entries(), key=lambda e: e.offset))
        self._due = next(self._index, None)
        self._ranges: list[LedgerRange] = []  # one per block
        self._padding = 0
        self._part_index: list[IndexEntry] = []  # those whose part has not ended

    def run(self) -> Accounting:
        while not self._chunks.at_end():
            self._block()
        length = self._chunks.position
        if length != self._data_length:
            raise DamagedObjectError(f"offset {length}: the object ends here, its index says at {self._data_length}")
        if self._own and self._part_index:
            raise DamagedObjectError(f"offset {length}: the object ends here, and its last part's index is missing")
        if self._due is not None:
            raise DamagedObjectError(
                f"offset {self._due.offset + HEADER_SIZE}: no entry begins where {self._due} points"
            )
        count, payload = sum(r.count for r in self._ranges), sum(r.size for r in self._ranges)
        return Accounting(length, len(self._ranges), count, payload, self._padding, merge_ranges(self._ranges))

    def _block(self) -> None:
        begin = self._chunks.position
        header = decode_header(self._chunks.take(HEADER_SIZE), begin)
        ledger = self._ledger_of(header, begin)
        if self._due is None or self._due.offset != begin:
            raise DamagedObjectError(f"offset {begin}: the index does not name this block's first entry")
        self._check_order(ledger, header.first_entry, begin)
        self._entries(ledger, header.first_entry, begin + header.length)

    def _ledger_of(self, header: BlockHeader, begin: int) -> int:
        if header.ledger is None and self._v1_ledger is not None:
            return self._v1_ledger
        if header.ledger is None:
            raise DamagedObjectError(f"offset {begin}: a ledger-based block in a streaming object")
        if self._v1_ledger is not None:
            raise DamagedObjectError(f"offset {begin}: a streaming block in a copy of ledger {self._v1_ledger}")
        return header.ledger

    def _check_order(self, ledger: int, first_entry: int, begin: int) -> None:
        if self._ranges and (ledger, first_entry) <= (self._ranges[-1].ledger, self._ranges[-1].last):
            before = self._ranges[-1]
            raise DamagedObjectError(
                f"offset {begin}: {ledger}:{first_entry} comes after {before.ledger}:{before.last}"
            )

    def _entries(self, ledger: int, first_entry: int, end: int) -> None:
        """A block's entries and its padding."""
        entry, size = first_entry, 0
        while True:
            at = self._chunks.position
            head = self._chunks.take(min(ENTRY_HEADER_SIZE, end - at))
            if len(head) < ENTRY_HEADER_SIZE or head[0] > 127:  # a negative length
                break
            length, found = ENTRY_HEADER.unpack(head)
            self._check_entry(at, found, entry, end - at - ENTRY_HEADER_SIZE - length)
            self._check_index(at, ledger, entry)
            missing = self._chunks.skip(length)
            if missing:
                raise DamagedObjectError(
                    f"offset {self._chunks.position}: {missing} bytes of {ledger}:{entry} are missing"
                )
            entry, size = entry + 1, size + length
        if entry == first_entry:
            raise DamagedObjectError(f"offset {at}: the block holds no entry")
        self._ranges.append(LedgerRange(ledger, first_entry, entry, count=entry - first_entry, size=size))
        self._check_padding(at, end, head)

    def _check_entry(self, at: int, found: int, expected: int, room: int) -> None:
        if found != expected:
            raise DamagedObjectError(f"offset {at + 4}: entry {found} stands where {expected} belongs")
        if room < 0:
            raise DamagedObjectError(f"offset {at}: entry {found} is {-room} bytes longer than its block")

    def _check_index(self, at: int, ledger: int, entry: int) -> None:
        due = self._due
        if due is None or due.offset + HEADER_SIZE > at:
            return
        block = len(self._ranges) + 1
        if due != IndexEntry(ledger, entry, block, at - HEADER_SIZE):
            raise DamagedObjectError(
                f"offset {due.offset + HEADER_SIZE}: the index has {due} near entry {ledger}:{entry} at {at}"
            )
        if self._own:
            self._part_index.append(due)
        self._due = next(self._index, None)

    def _check_padding(self, begin: int, end: int, head: bytes | memoryview) -> None:
        size = end - begin
        if self._own and size > PADDING_SIZE:
            self._check_part_index(begin, size, head)
        elif (size < 1 and self._v1_ledger is None) or (self._own and size != PADDING_SIZE):
            raise DamagedObjectError(f"offset {begin}: {size} bytes of padding")
        else:
            self._chunks.take_padding(begin, end, head)
        self._padding += size

    def _check_part_index(self, begin: int, size: int, head: bytes | memoryview) -> None:
        expected = padding(PADDING_SIZE) + encode_part_index(self._part_index)
        fill = size - len(expected) if self._equal_parts else 0
        if fill >= ENTRY_HEADER_SIZE + PADDING_SIZE:
            # `head` is of padding alone then, and so is what ends on its pattern's period.
            end = begin + fill - fill % PADDING_SIZE
            self._chunks.take_padding(begin, end, head)
            begin, size, head = end, size - (end - begin), b""
            fill = size - len(expected)
        expected = padding(PADDING_SIZE + max(fill, 0)) + expected[PADDING_SIZE:]
        if size != len(expected):
            raise DamagedObjectError(
                f"offset {begin}: {size} bytes of padding and part index, where {len(expected)} belong"
            )
        if bytes(head) + bytes(self._chunks.take(size - len(head))) != expected:
            raise DamagedObjectError(f"offset {begin}: padding and part index are not those of the part's blocks")
        self._part_index.clear()
