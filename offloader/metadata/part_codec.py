"""Parts and their index entries as columns, each value as its difference from what the values before it predict.

1,000 open segments of 1 GiB have 125,000 parts and four million index entries. What cannot be predicted is stored:
etags, checksums, and by how much an index entry misses its step.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.columns import pack, unpack, unzigzag, zigzag
from offloader.model import EntryStats, Gap, GapKind, IndexEntry, LedgerRange, Part

# Complete groups never change, so that they are encoded once.
GROUP = 64
# Of the block format: header and padding of a block, length and id of an entry. A wrong guess here costs room, nothing else.
PER_BLOCK = 132
PER_ENTRY = 12

ZEROS = repeat(0)
NO_RANGE = LedgerRange(0, 0, -1, 0, 0)
KINDS = tuple(GapKind)
HEX_ETAG = re.compile("[0-9a-f]{32}")
TIMES = ("min_publish", "max_publish", "min_broker", "max_broker", "min_index", "max_index")


def group(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """The parts in groups of `GROUP`."""
    return [tuple(parts[i : i + GROUP]) for i in range(0, len(parts), GROUP)]


def encode_parts(parts: Sequence[Part]) -> bytes:
    """One group's bytes."""
    message = pb.PartGroup(count=len(parts), crcs=b"".join(struct.pack(">I", p.crc32c) for p in parts))
    if all(HEX_ETAG.fullmatch(p.etag) for p in parts):
        message.etags = b"".join(bytes.fromhex(p.etag) for p in parts)
    else:
        message.etag_texts.extend(p.etag for p in parts)
    writer = _Writer()
    before = _Before()
    for part in parts:
        _write_part(writer, part, before)
        before = _Before.of(part, before)
    writer.fill(message)
    return message.SerializeToString(deterministic=True)


def decode_parts(data: bytes) -> tuple[Part, ...]:
    """One group's parts. Raises ValueError and the like for damaged bytes."""
    message = pb.PartGroup.FromString(data)
    if message.etag_texts:
        etags = list(message.etag_texts)
    else:
        etags = [message.etags[i : i + 16].hex() for i in range(0, len(message.etags), 16)]
    crcs = [crc for (crc,) in struct.iter_unpack(">I", message.crcs)]
    if not len(etags) == len(crcs) == message.count:
        raise ValueError(f"{message.count} parts with {len(etags)} etags and {len(crcs)} checksums")
    reader = _Reader(message)
    before = _Before()
    parts = []
    try:
        for etag, crc in zip(etags, crcs, strict=True):
            part = _read_part(reader, etag, crc, before)
            parts.append(part)
            before = _Before.of(part, before)
    except StopIteration as error:
        raise ValueError("a column is too short") from error
    reader.check_empty()
    return tuple(parts)


class _Writer:
    """Collects columns by the names of `PartGroup`'s fields."""

    def __init__(self) -> None:
        self._columns: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, name: str, value: int) -> None:
        self._columns[name].append(value)

    def fill(self, message: pb.PartGroup) -> None:
        packed = {name: pack(values) for name, values in self._columns.items()}
        # The same offsets, told in two ways.
        shorter = min(("across_offset", "block_length"), key=lambda name: len(packed.get(name, b"")))
        packed.pop("block_length" if shorter == "across_offset" else "across_offset", None)
        for name, data in packed.items():
            setattr(message, name, data)


class _Reader:
    """Gives the columns' values in the order in which they were added."""

    def __init__(self, message: pb.PartGroup) -> None:
        fields = [f.name for f, value in message.ListFields() if isinstance(value, bytes) and f.name not in ("etags", "crcs")]
        self._columns: dict[str, Iterator[int]] = {name: iter(unpack(getattr(message, name))) for name in fields}

    def has(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> Iterator[int]:
        return self._columns.get(name, ZEROS)

    def take(self, name: str) -> int:
        return next(self.column(name))

    def check_empty(self) -> None:
        for name, column in self._columns.items():
            if next(column, None) is not None:
                raise ValueError(f"column {name} has values left")


@dataclass(frozen=True, slots=True)
class _Before:
    """What the next part's values are compared with."""

    number: int = 0
    end: int = 0
    block: int = 0
    range: LedgerRange = NO_RANGE
    publish_time: int = 0
    index: int = -1

    @classmethod
    def of(cls, part: Part, before: _Before) -> _Before:
        stats = part.stats
        return cls(
            part.number,
            part.offset + part.size,
            part.index[-1].block if part.index else before.block + part.blocks,
            part.ledgers[-1] if part.ledgers else before.range,
            before.publish_time if stats.max_publish_time is None else stats.max_publish_time,
            before.index if stats.max_index is None else stats.max_index,
        )


def _write_part(w: _Writer, part: Part, before: _Before) -> None:
    w.add("number", part.number - before.number - 1)
    w.add("offset", part.offset - before.end)
    _write_ledgers(w, part.ledgers, before.range)
    _write_index(w, part, before)
    w.add("blocks", part.blocks - _blocks(part.index))
    w.add("size", part.size - _size(part.ledgers, part.blocks))
    _write_stats(w, part.stats, part.entries, before)
    w.add("gap_count", len(part.gaps))
    for gap in part.gaps:
        w.add("gap_kind", KINDS.index(gap.kind))
        w.add("gap_ledger", gap.ledger)
        w.add("gap_first", gap.first)
        w.add("gap_last", gap.last - gap.first)


def _read_part(r: _Reader, etag: str, crc: int, before: _Before) -> Part:
    number = r.take("number") + before.number + 1
    offset = r.take("offset") + before.end
    ledgers = _read_ledgers(r, before.range)
    index = _read_index(r, ledgers, offset, before)
    blocks = r.take("blocks") + _blocks(index)
    size = r.take("size") + _size(ledgers, blocks)
    stats = _read_stats(r, sum(x.count for x in ledgers), before)
    gaps = tuple([_read_gap(r) for _ in range(r.take("gap_count"))])
    return Part(number, offset, size, etag, crc, blocks, ledgers, index, stats, gaps)


def _read_gap(r: _Reader) -> Gap:
    kind, ledger, first = KINDS[r.take("gap_kind")], r.take("gap_ledger"), r.take("gap_first")
    return Gap(kind, ledger, first, first + r.take("gap_last"))


def _blocks(index: Sequence[IndexEntry]) -> int:
    return len({e.block for e in index})


def _size(ledgers: Sequence[LedgerRange], blocks: int) -> int:
    return blocks * PER_BLOCK + sum(x.size + PER_ENTRY * x.count for x in ledgers)


def _write_ledgers(w: _Writer, ledgers: Sequence[LedgerRange], before: LedgerRange) -> None:
    w.add("ledger_count", len(ledgers) - 1)
    for x in ledgers:
        w.add("ledger_id", x.ledger - before.ledger)
        w.add("ledger_first", x.first - _next_entry(x.ledger, before))
        w.add("ledger_entries", x.count)
        w.add("ledger_last", x.last - (x.first + x.count - 1))
        w.add("ledger_bytes", x.size)
        w.add("ledger_closed", 0 if x.closed_with is None else 1 + zigzag(x.closed_with - x.last))
        before = x


def _read_ledgers(r: _Reader, before: LedgerRange) -> tuple[LedgerRange, ...]:
    ledgers = []
    for _ in range(r.take("ledger_count") + 1):
        ledger = r.take("ledger_id") + before.ledger
        first = r.take("ledger_first") + _next_entry(ledger, before)
        count = r.take("ledger_entries")
        last = r.take("ledger_last") + first + count - 1
        size, closed = r.take("ledger_bytes"), r.take("ledger_closed")
        before = LedgerRange(ledger, first, last, count, size, None if closed == 0 else unzigzag(closed - 1) + last)
        ledgers.append(before)
    return tuple(ledgers)


def _next_entry(ledger: int, before: LedgerRange) -> int:
    return before.last + 1 if ledger == before.ledger else 0


def _head(ledgers: Sequence[LedgerRange], offset: int, before: _Before) -> IndexEntry:
    """The index entry that a part begins with."""
    first = ledgers[0] if ledgers else before.range
    return IndexEntry(first.ledger, first.first, before.block + 1, offset)


def _write_index(w: _Writer, part: Part, before: _Before) -> None:
    w.add("index_count", len(part.index))
    if not part.index:
        return
    expected, last = _head(part.ledgers, part.offset, before), part.index[0]
    w.add("head_ledger", last.ledger - expected.ledger)
    w.add("head_entry", last.entry - expected.entry)
    w.add("head_block", last.block - expected.block)
    w.add("head_offset", last.offset - expected.offset)
    entries_in = _EntriesIn(part.ledgers)
    block_start = last.offset
    for e in part.index[1:]:
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


def _read_index(r: _Reader, ledgers: Sequence[LedgerRange], offset: int, before: _Before) -> tuple[IndexEntry, ...]:
    count = r.take("index_count")
    if count == 0:
        return ()
    head = _head(ledgers, offset, before)
    last = IndexEntry(
        r.take("head_ledger") + head.ledger,
        r.take("head_entry") + head.entry,
        r.take("head_block") + head.block,
        r.take("head_offset") + head.offset,
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
    return tuple(index)


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


def _write_stats(w: _Writer, stats: EntryStats, entries: int, before: _Before) -> None:
    values = _times(stats)
    w.add("messages", stats.messages - entries)
    w.add("times_known", sum(1 << i for i, value in enumerate(values) if value is not None))
    known: dict[str, int] = {}
    for name, value in zip(TIMES, values, strict=True):
        if value is not None:
            w.add(name, value - _expected_time(name, known, stats.messages, before))
            known[name] = value


def _read_stats(r: _Reader, entries: int, before: _Before) -> EntryStats:
    messages = r.take("messages") + entries
    mask = r.take("times_known")
    known: dict[str, int] = {}
    for i, name in enumerate(TIMES):
        if mask >> i & 1:
            known[name] = r.take(name) + _expected_time(name, known, messages, before)
    values = [known.get(name) for name in TIMES]
    return EntryStats(messages, *values)


def _times(stats: EntryStats) -> tuple[int | None, ...]:
    return (
        stats.min_publish_time,
        stats.max_publish_time,
        stats.min_broker_time,
        stats.max_broker_time,
        stats.min_index,
        stats.max_index,
    )


def _expected_time(name: str, known: dict[str, int], messages: int, before: _Before) -> int:
    match name:
        case "min_publish":
            return before.publish_time
        case "max_publish" | "min_broker":
            return known.get("min_publish", before.publish_time)
        case "max_broker":
            return known.get("max_publish", before.publish_time)
        case "min_index":
            return before.index + 1
        case _:
            return known.get("min_index", before.index + 1) + messages - 1
