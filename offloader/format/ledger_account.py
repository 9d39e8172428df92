"""Accounts for every byte of a ledger's data object (V1): headers, entries, padding, and every entry of its index.

Its blocks may be V2 blocks, the first one with a V1 header. Those of ours that ended a part still have the part's index
behind their padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from offloader.errors import DamagedObjectError
from offloader.format.blocks import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    HEADER_SIZE,
    PADDING_SIZE,
    BlockHeader,
    Chunks,
    decode_header,
    padding_fault,
)
from offloader.format.entry import crc_ok
from offloader.format.index import IndexEntry, is_part_index
from offloader.format.v1 import LedgerIndex
from offloader.model import MIB

_LONGEST_PART_INDEX = 16 * MIB


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """What an object holds: entries 0..`entries` - 1 with `payload` bytes. `digest` is the same for the same entries,
    however they are cut into blocks. `damaged`: entries whose own checksum does not match, and the offsets at which
    they stand."""

    entries: int
    payload: int
    digest: str
    damaged: tuple[tuple[int, int], ...] = ()


def account_ledger(chunks: Iterable[bytes], ledger: int, index: LedgerIndex) -> LedgerAccount:
    """Go over an object once. Raises DamagedObjectError naming the first offset that format or index deny."""
    return _Walk(Chunks(chunks), ledger, index).run()


def account_blocks(chunks: Iterable[bytes], ledger: int, index: LedgerIndex, first: int) -> tuple[int, int]:
    """Of some blocks of an object, from entry `first` on, as if they were all of it: `index` has their entries, with
    offsets from 0 and blocks from 1. Payloads are not looked at: whoever asks knows the bytes' sums. Returns the entry
    behind them and the size of their payload; raises as `account_ledger`."""
    found = _Outline(Chunks(chunks), ledger, index, first).run()
    return found.entries, found.payload


class _Walk:
    def __init__(self, chunks: Chunks, ledger: int, index: LedgerIndex, first: int = 0) -> None:
        self._chunks = chunks
        self._ledger = ledger
        self._length = index.data_length
        self._index = iter(index.entries)
        self._due = next(self._index, None)
        self._block = 0
        self._entry = first
        self._padded = True  # the block before ends with a byte of padding
        self._payload = 0
        self._digest = sha256()
        self._damaged: list[tuple[int, int]] = []

    def run(self) -> LedgerAccount:
        while not self._chunks.at_end():
            self._next_block()
        end = self._chunks.position
        if end != self._length:
            raise DamagedObjectError(f"offset {end}: the object ends here, its index says at {self._length}")
        if self._due is not None:
            raise DamagedObjectError(
                f"offset {self._due.offset + HEADER_SIZE}: no entry begins where {self._due} points"
            )
        return LedgerAccount(self._entry, self._payload, self._digest.hexdigest(), tuple(self._damaged))

    def _next_block(self) -> None:
        begin = self._chunks.position
        header = decode_header(self._chunks.take(HEADER_SIZE), begin)
        if header.ledger not in (None, self._ledger):
            raise DamagedObjectError(
                f"offset {begin}: a block of ledger {header.ledger} among those of ledger {self._ledger}"
            )
        if header.first_entry != self._entry:
            raise DamagedObjectError(
                f"offset {begin}: a block from entry {header.first_entry} on, where {self._entry} belongs"
            )
        if begin + header.length > self._length:
            raise DamagedObjectError(
                f"offset {begin}: a block of {header.length} bytes goes beyond the end at {self._length}"
            )
        if self._due is None or self._due.offset != begin:
            raise DamagedObjectError(f"offset {begin}: the index does not name this block's first entry")
        self._check_apart(header, begin)
        self._block += 1
        self._entries(begin + header.length)
        if self._entry == header.first_entry:
            raise DamagedObjectError(f"offset {begin}: the block holds no entry")

    def _check_apart(self, header: BlockHeader, begin: int) -> None:
        """Readers take the magic of a V2 block for the length of another entry, unless padding stands before it."""
        if header.version == 2 and not self._padded:
            raise DamagedObjectError(f"offset {begin}: no padding stands before a block of a streaming object")

    def _entries(self, end: int) -> None:
        while True:
            at = self._chunks.position
            head = self._chunks.take(min(ENTRY_HEADER_SIZE, end - at))
            if len(head) < ENTRY_HEADER_SIZE or head[0] > 127:  # a negative length
                self._end(at, end, head)
                return
            length, entry = ENTRY_HEADER.unpack(head)
            if entry != self._entry:
                raise DamagedObjectError(f"offset {at + 4}: entry {entry} stands where {self._entry} belongs")
            if at + ENTRY_HEADER_SIZE + length > end:
                raise DamagedObjectError(f"offset {at}: entry {entry} of {length} bytes is longer than its block")
            self._check_index(at)
            self._take(at, length)

    def _end(self, at: int, end: int, head: bytes | memoryview) -> None:
        """What is behind a block's entries."""
        self._padded = end > at
        begin = at
        if end - at > _LONGEST_PART_INDEX + ENTRY_HEADER_SIZE:
            begin = end - _LONGEST_PART_INDEX - (end - at) % PADDING_SIZE  # where the padding's pattern begins again
            self._chunks.take_padding(at, begin, head)
            head = b""
        tail = bytes(head) + bytes(self._chunks.take(end - begin - len(head)))
        if len(tail) < end - begin:
            raise DamagedObjectError(
                f"offset {begin + len(tail)}: {end - begin - len(tail)} bytes of padding are missing"
            )
        # An index begins with a ledger's id, which is not negative as the padding's bytes are.
        fault = padding_fault(tail)
        if fault is not None and (begin + fault < at + PADDING_SIZE or not is_part_index(tail[fault:])):
            raise DamagedObjectError(f"offset {begin + fault}: neither padding nor a part's index ends the block")

    def _take(self, at: int, length: int) -> None:
        data = bytes(self._chunks.take(length))
        if len(data) < length:
            raise DamagedObjectError(f"offset {at}: {length - len(data)} bytes of entry {self._entry} are missing")
        if not crc_ok(data):
            self._damaged.append((self._entry, at))
        self._digest.update(length.to_bytes(4, "big"))
        self._digest.update(data)
        self._entry, self._payload = self._entry + 1, self._payload + length

    def _check_index(self, at: int) -> None:
        due = self._due
        if due is None or due.offset + HEADER_SIZE > at:
            return
        if due != IndexEntry(self._ledger, self._entry, self._block, at - HEADER_SIZE):
            raise DamagedObjectError(
                f"offset {due.offset + HEADER_SIZE}: the index has {due} near entry {self._entry} at {at}"
            )
        self._due = next(self._index, None)


class _Outline(_Walk):
    def _take(self, at: int, length: int) -> None:
        missing = self._chunks.skip(length)
        if missing:
            raise DamagedObjectError(f"offset {at}: {missing} bytes of entry {self._entry} are missing")
        self._entry, self._payload = self._entry + 1, self._payload + length
