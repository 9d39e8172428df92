"""Cuts a topic's entries into blocks and parts.

The same start, entries and layout give the same whole parts, wherever slices end: a part begins with a new block, and
the next slice begins where the last emitted part ended. Only the short last part depends on the end. A block's end
shows only when the next entry arrives, so the `offer` of the entry after a part emits it, or `finish` does."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.errors import IntegrityError
from offloader.format.blocks import ENTRY_HEADER, ENTRY_HEADER_SIZE, HEADER_SIZE, PADDING_SIZE, BlockHeader, padding
from offloader.format.consecutive import Consecutive
from offloader.format.entry import EntryFacts
from offloader.format.part_index import IndexEntry, encode_part_index, part_index_size
from offloader.format.stats import StatsBuilder
from offloader.model import EntryStats, Gap, LedgerRange, Part, SegmentLayout, merge_ranges

_BLOCK_OVERHEAD = HEADER_SIZE + PADDING_SIZE
_PADDING = padding(PADDING_SIZE)


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
        """Whether this entry would make the object larger than it may be.

        An object that holds nothing yet takes any entry."""
        size = ENTRY_HEADER_SIZE + data_len
        indexed = len(self._index)
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

        Raises IntegrityError for an entry that does not come after the one before."""
        growth = ENTRY_HEADER_SIZE + len(data)
        cut = None
        if not self._joins_block(ledger, entry, growth):
            cut = self._turn_block(ledger, entry)
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
        room = min(self._block_limit, self._limit - self._largest_index()) - self._end
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
        self._close_block(ends_part=True)
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

    def _turn_block(self, ledger: int, entry: int) -> CutPart | None:
        if (ledger, entry) < (self._ledger, self._next_entry):
            raise IntegrityError(
                f"entry {ledger}:{entry} came after {self._ledger}:{self._next_entry - 1}; read the slice again"
            )
        full = self._part_is_full()
        self._close_block(ends_part=full)
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

    def _close_block(self, *, ends_part: bool) -> None:
        if not self._open:
            return
        self._open = False
        self._block_limit = 0
        index = encode_part_index(self._index) if ends_part else b""
        self._end += len(index)
        length = self._end - self._block_start
        self._buffers[self._header_at] = BlockHeader(2, length, self._first_entry, self._ledger).encode()
        self._buffers += (_PADDING, index)
        count = self._next_entry - self._first_entry
        size = length - _BLOCK_OVERHEAD - ENTRY_HEADER_SIZE * count - len(index)
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
