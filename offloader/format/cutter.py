"""Cuts a topic's entries into blocks and parts.

The same start, entries and layout give the same whole parts, wherever slices end: a part begins with a new block, and
the next slice begins where the last emitted part ended. Only the short last part depends on the end. A block's end
shows only when the next entry arrives, so the `offer` of the entry after a part emits it, or `finish` does.

Parts of equal length (cuts version 3) end before the entry that does not fit, and padding fills them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from offloader.errors import FatalError, IntegrityError
from offloader.format.blocks import ENTRY_HEADER, ENTRY_HEADER_SIZE, HEADER_SIZE, PADDING_SIZE, BlockHeader, padding
from offloader.format.entry import EntryFacts, inspect
from offloader.format.index import IndexEntry, encode_part_index, part_index_size
from offloader.format.many import ManyFacts, StatsBuilder, inspect_all
from offloader.format.scan import Int64s
from offloader.model import V3, EntryStats, Gap, LedgerRange, Part, SegmentLayout, merge_ranges

_BLOCK_OVERHEAD = HEADER_SIZE + PADDING_SIZE
_ENTRY_HEADER = np.dtype([("length", ">i4"), ("entry", ">i8")])  # as blocks.ENTRY_HEADER


@dataclass(frozen=True)
class Consecutive:
    """`first`: the first one's id. `ends`: object bytes up to each entry's end, without those of blocks."""

    ledger: int
    first: int
    entries: Sequence[bytes]
    ends: Int64s
    facts: ManyFacts
    _inspected: dict[int, EntryFacts] = field(default_factory=dict, repr=False)  # at irregular ones, once

    @classmethod
    def of(cls, ledger: int, first: int, entries: Sequence[bytes]) -> Consecutive:
        """Look into all of them."""
        lengths = np.fromiter(map(len, entries), np.int64, len(entries))
        return cls(ledger, first, entries, np.cumsum(lengths + ENTRY_HEADER_SIZE), inspect_all(entries))

    def __len__(self) -> int:
        return len(self.entries)

    def before(self, number: int) -> int:
        """Object bytes before the entry of this number."""
        return int(self.ends[number - 1]) if number else 0

    def size(self, count: int) -> int:
        """The sum of the first entries' lengths."""
        return self.before(count) - count * ENTRY_HEADER_SIZE

    def facts_of(self, number: int) -> EntryFacts:
        """What one entry says of itself."""
        return self.facts.of(number) if self.regular_up_to(number) > number else self._irregular(number)

    def unreadable(self) -> list[int]:
        """The numbers of those that are no messages."""
        return [number for number in self.facts.irregular.tolist() if self._irregular(number).unreadable]

    def regular_up_to(self, number: int) -> int:
        """The first irregular entry at or after this one, or how many there are."""
        irregular = self.facts.irregular
        at = int(irregular.searchsorted(number))
        return int(irregular[at]) if at < len(irregular) else len(self)

    def fitting(self, size: int) -> int:
        """How many entries, from the first one on, end within so many object bytes."""
        return int(self.ends.searchsorted(size, side="right"))

    def pieces(self, first: int, behind: int) -> Iterator[bytes]:
        """Header and entry, header and entry, of the entries number `first` to `behind` - 1."""
        headers = np.empty(behind - first, _ENTRY_HEADER)
        headers["length"] = np.diff(self.ends[first:behind], prepend=self.before(first)) - ENTRY_HEADER_SIZE
        headers["entry"] = np.arange(self.first + first, self.first + behind)
        packed: list[bytes] = headers.view(f"V{ENTRY_HEADER_SIZE}").tolist()
        return chain.from_iterable(zip(packed, self.entries[first:behind], strict=True))

    def _irregular(self, number: int) -> EntryFacts:
        if number not in self._inspected:
            self._inspected[number] = inspect(self.entries[number])
        return self._inspected[number]


@dataclass(frozen=True, slots=True)
class CutPart:
    """A part's bytes, as pieces that are joined once, and what is in them."""

    number: int
    offset: int
    size: int
    buffers: list[bytes]
    blocks: int
    ledgers: tuple[LedgerRange, ...]
    index: tuple[IndexEntry, ...]
    stats: EntryStats

    def data(self) -> bytes:
        """The part's bytes: one copy, made anew by each call."""
        return b"".join(self.buffers)

    def to_part(self, etag: str, crc32c: int, gaps: tuple[Gap, ...] = ()) -> Part:
        """The uploaded part."""
        indexed = len(self.index)
        return Part(
            self.number, self.offset, self.size, etag, crc32c, self.blocks, self.ledgers, indexed, self.stats, gaps
        )


class PartCutter:
    """Takes entries in order, gives whole parts.

    `offset`, `next_part` and `next_block` are those after the emitted parts: a new cutter that begins there and is
    offered the same entries goes on with the same bytes. `room` is what the object may still grow by."""

    def __init__(self, layout: SegmentLayout, *, first_part: int, offset: int, first_block: int, room: int) -> None:
        self.offset = offset
        self.next_part = first_part
        self.next_block = first_block
        self._layout = layout
        self._equal = layout.version == V3
        self._limit = offset + room
        self._end = offset  # the object's size if everything pending were written, but for the part's index
        self._open = False
        self._ledger, self._next_entry = -1, 0
        self._block_start = self._block_limit = self._index_limit = 0
        self._first_entry = self._header_at = 0
        self._begin_part()

    @property
    def pending_bytes(self) -> int:
        """Object bytes of the entries that are in no emitted part."""
        return self._end - self.offset + part_index_size(len(self._index))

    def would_exceed_room(self, data_len: int, ledger: int, entry: int) -> bool:
        """Whether this entry would make the object larger than it may be, or fits none of its parts.

        An object that holds nothing yet takes any entry, or raises what `offer` does."""
        size = ENTRY_HEADER_SIZE + data_len
        indexed = len(self._index)
        if self._equal and not self._fits_part(ledger, entry, size):
            begin, alone = self.offset + self._layout.part_size, _BLOCK_OVERHEAD + size + part_index_size(1)
            return self._end > 0 and (begin + alone > self._limit or alone > self._layout.part_size)
        if self._joins_block(ledger, entry, size):
            tail = part_index_size(indexed + (self._end + size > self._index_limit))
        else:
            size += _BLOCK_OVERHEAD
            tail = (
                part_index_size(indexed) + part_index_size(1) if self._part_is_full() else part_index_size(indexed + 1)
            )
        return self._end + size + tail > self._limit and self._end > 0

    def offer(self, ledger: int, entry: int, data: bytes, facts: EntryFacts) -> CutPart | None:
        """Take the next entry; returns the part that ended before it, if one did.

        Raises IntegrityError for an entry that does not come after the one before, FatalError for one that is too large
        for a part, where these are of equal length."""
        growth = ENTRY_HEADER_SIZE + len(data)
        cut = None
        full = not self._fits_part(ledger, entry, growth) if self._equal else self._part_is_full()
        if full and self._equal:
            self._check_fits_alone(ledger, entry, growth)
        if not self._joins_block(ledger, entry, growth) or (full and self._equal):
            cut = self._turn_block(ledger, entry, full=full)
        elif self._end + growth > self._index_limit:
            self._add_index(entry)
        self._buffers += (ENTRY_HEADER.pack(len(data), entry), data)
        self._end += growth
        self._next_entry = entry + 1
        self._stats.add(facts)
        return cut

    def offer_all(self, entries: Consecutive, number: int) -> tuple[int, CutPart | None]:
        """Take entries from this number on, up to the end of a block; returns how many, and the part that ended before
        them.

        What it cuts is what `offer` would. None taken: the next one would make the object larger than it may be. Raises
        IntegrityError as `offer`."""
        entry = entries.first + number
        size = int(entries.ends[number]) - entries.before(number)
        most = min(self._limit, self.offset + self._layout.part_size) if self._equal else self._limit
        room = min(self._block_limit, most - self._largest_index()) - self._end
        regular = entries.regular_up_to(number) > number
        if not regular or size > room or not self._joins_block(entries.ledger, entry, size):
            length = size - ENTRY_HEADER_SIZE
            if self.would_exceed_room(length, entries.ledger, entry):
                return 0, None
            return 1, self.offer(entries.ledger, entry, entries.entries[number], entries.facts_of(number))
        behind = min(entries.fitting(entries.before(number) + room), entries.regular_up_to(number))
        self._extend_block(entries, number, behind)
        return behind - number, None

    def finish(self) -> CutPart | None:
        """Everything that is pending as a last part, however short; None if nothing is."""
        if not self.pending_bytes:
            return None
        self._close_block(self._part_index())
        return self._emit()

    def _extend_block(self, entries: Consecutive, first: int, behind: int) -> None:
        """Entries that all fit into the open block."""
        begin = self._end - entries.before(first)
        indexed = first - 1
        while True:
            indexed = max(indexed + 1, entries.fitting(self._index_limit - begin))
            if indexed >= behind:
                break
            self._end = begin + entries.before(indexed)
            self._add_index(entries.first + indexed)
        self._buffers.extend(entries.pieces(first, behind))
        self._end = begin + entries.before(behind)
        self._next_entry = entries.first + behind
        self._stats.add_all(entries.facts, first, behind)

    def _joins_block(self, ledger: int, entry: int, growth: int) -> bool:
        return entry == self._next_entry and ledger == self._ledger and self._end + growth <= self._block_limit

    def _fits_part(self, ledger: int, entry: int, growth: int) -> bool:
        """Whether the part that is being cut, with its index, has room for this entry."""
        joins = self._joins_block(ledger, entry, growth)
        indexed = len(self._index) + (not joins or self._end + growth > self._index_limit)
        end = self._end + growth + (0 if joins else _BLOCK_OVERHEAD)
        return end + part_index_size(indexed) <= self.offset + self._layout.part_size

    def _check_fits_alone(self, ledger: int, entry: int, growth: int) -> None:
        most = self._layout.part_size - _BLOCK_OVERHEAD - ENTRY_HEADER_SIZE - part_index_size(1)
        size = growth - ENTRY_HEADER_SIZE
        if size > most:
            raise FatalError(
                f"entry {ledger}:{entry} of {size} bytes is too large for a part: with equalParts the largest is "
                f"{most}; raise partSizeInBytes"
            )

    def _turn_block(self, ledger: int, entry: int, *, full: bool) -> CutPart | None:
        if (ledger, entry) < (self._ledger, self._next_entry):
            raise IntegrityError(
                f"entry {ledger}:{entry} came after {self._ledger}:{self._next_entry - 1}; read the slice again"
            )
        self._close_block(self._part_index(fill=self._equal) if full else b"")
        cut = self._emit() if full else None
        self._open_block(ledger, entry)
        return cut

    def _part_is_full(self) -> bool:
        return self.pending_bytes >= self._layout.part_size

    def _largest_index(self) -> int:
        """What the part's index takes at most when the open block is full: no two index entries are less than a step
        apart but by one entry that is longer."""
        return part_index_size(len(self._index) + 2 * (self._layout.block_size // self._layout.index_step + 1))

    def _open_block(self, ledger: int, entry: int) -> None:
        self._open = True
        self._ledger, self._first_entry = ledger, entry
        self._block_start = self._end
        self._block_limit = self._block_start + self._layout.block_size
        self._header_at = len(self._buffers)
        self._buffers.append(b"")  # the header, known at the block's end
        self._blocks += 1
        self._end += _BLOCK_OVERHEAD
        self._add_index(entry)

    def _add_index(self, entry: int) -> None:
        """Let readers begin at this entry, so that they skip no more than one index step, or one entry."""
        position = self._end - PADDING_SIZE
        self._index_limit = self._end + self._layout.index_step
        self._index.append(IndexEntry(self._ledger, entry, self.next_block + self._blocks - 1, position - HEADER_SIZE))

    def _part_index(self, *, fill: bool = False) -> bytes:
        """What stands behind the last block's own padding; `fill`: with more of that, up to the part's length."""
        index = encode_part_index(self._index)
        left = self.offset + self._layout.part_size - self._end - len(index) if fill else 0
        return padding(PADDING_SIZE + left)[PADDING_SIZE:] + index

    def _close_block(self, tail: bytes) -> None:
        """`tail`: what stands behind the padding."""
        if not self._open:
            return
        self._open = False
        self._block_limit = 0
        self._end += len(tail)
        length = self._end - self._block_start
        self._buffers[self._header_at] = BlockHeader(2, length, self._first_entry, self._ledger).encode()
        self._buffers += (padding(PADDING_SIZE), tail)
        count = self._next_entry - self._first_entry
        size = length - _BLOCK_OVERHEAD - ENTRY_HEADER_SIZE * count - len(tail)
        self._ranges.append(LedgerRange(self._ledger, self._first_entry, self._next_entry, count=count, size=size))

    def _emit(self) -> CutPart:
        ledgers, index, stats = merge_ranges(self._ranges), tuple(self._index), self._stats.build()
        size = self._end - self.offset
        part = CutPart(self.next_part, self.offset, size, self._buffers, self._blocks, ledgers, index, stats)
        self.offset = self._end
        self.next_part += 1
        self.next_block += self._blocks
        self._begin_part()
        return part

    def _begin_part(self) -> None:
        self._buffers: list[bytes] = []
        self._blocks = 0
        self._ranges: list[LedgerRange] = []
        self._index: list[IndexEntry] = []
        self._stats = StatsBuilder()
