"""A part's index entries as columns: by how much each misses the step that the block format makes likely."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice

from offloader.metadata.group_columns import ColumnReader, ColumnWriter
from offloader.model import LedgerRange
from offloader.part_index import IndexEntry

# Of the block format: header and padding of a block, length and id of an entry. A wrong guess here costs room, nothing else.
PER_BLOCK = 132
PER_ENTRY = 12

# What `read_blocks` needs, and what only `read_index` does.
BLOCKS = ("index_count", "head_block", "step_block")
PLACES = (
    "head_ledger",
    "head_entry",
    "head_offset",
    "step_ledger",
    "step_entry",
    "step_offset",
    "across_offset",
    "block_length",
)


def write_index(w: ColumnWriter, index: Sequence[IndexEntry], expected: IndexEntry, ledgers: Sequence[LedgerRange]) -> None:
    """Add a part's entries. `expected`: what its first one is likely to be; `ledgers` are the part's."""
    w.add("index_count", len(index))
    if not index:
        return
    last = index[0]
    w.add("head_ledger", last.ledger - expected.ledger)
    w.add("head_entry", last.entry - expected.entry)
    w.add("head_block", last.block - expected.block)
    w.add("head_offset", last.offset - expected.offset)
    entries_in = _EntriesIn(ledgers)
    block_start = last.offset
    for e in index[1:]:
        w.add("step_block", e.block - last.block)
        w.add("step_ledger", e.ledger - last.ledger)
        if e.block == last.block:
            w.add("step_offset", e.offset - last.offset)
        else:
            w.add("across_offset", e.offset - last.offset)
            w.add("block_length", e.offset - block_start)
            block_start = e.offset
        w.add("step_entry", e.entry - entries_in.expected(last, e.ledger, e.block, e.offset))
        last = e


def read_blocks(r: ColumnReader, expected: int) -> tuple[int, int, int | None]:
    """How many entries the next part has, in how many blocks, and the last block's number (None: no entry)."""
    count = r.take("index_count")
    if count == 0:
        return 0, 0, None
    steps = islice(r.column("step_block"), count - 1)
    numbers = list(accumulate(steps, initial=r.take("head_block") + expected))
    if len(numbers) < count:
        raise ValueError("column step_block is too short")
    return count, len(set(numbers)), numbers[-1]


def read_index(r: ColumnReader, expected: IndexEntry, ledgers: Sequence[LedgerRange]) -> list[IndexEntry]:
    """The opposite of `write_index`."""
    count = r.take("index_count")
    if count == 0:
        return []
    last = IndexEntry(
        r.take("head_ledger") + expected.ledger,
        r.take("head_entry") + expected.entry,
        r.take("head_block") + expected.block,
        r.take("head_offset") + expected.offset,
    )
    index = [last]
    entries_in = _EntriesIn(ledgers)
    block_start = last.offset
    from_block_start = r.has("block_length")
    blocks, in_blocks, entries = r.column("step_block"), r.column("step_offset"), r.column("step_entry")
    ledger_ids, across = r.column("step_ledger"), r.column("block_length" if from_block_start else "across_offset")
    for _ in range(count - 1):
        block, ledger = next(blocks) + last.block, next(ledger_ids) + last.ledger
        if block == last.block:
            at = next(in_blocks) + last.offset
        else:
            at = block_start = next(across) + (block_start if from_block_start else last.offset)
        last = IndexEntry(ledger, next(entries) + entries_in.expected(last, ledger, block, at), block, at)
        index.append(last)
    return index


class _EntriesIn:
    """Guesses an index entry's entry id from its offset and the mean size of the part's entries."""

    def __init__(self, ledgers: Sequence[LedgerRange]) -> None:
        self._count = sum(x.count for x in ledgers)
        self._bytes = sum(x.size + PER_ENTRY * x.count for x in ledgers)
        self._starts = {x.ledger: x.first for x in ledgers}

    def expected(self, last: IndexEntry, ledger: int, block: int, offset: int) -> int:
        if ledger != last.ledger:
            return self._starts.get(ledger, 0)
        if self._bytes <= 0:
            return last.entry
        length = offset - last.offset - PER_BLOCK * (block - last.block)
        return last.entry + (length * self._count + self._bytes // 2) // self._bytes
