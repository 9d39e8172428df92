"""Parts as columns, each value as its difference from what the values before it predict.

1,000 open segments of 1 GiB have 125,000 parts and four million index entries. What cannot be predicted is stored:
etags, checksums, and by how much an index entry misses its step. Index entries are read when they are asked for, which few are.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from offloader._proto import metadata_pb2 as pb
from offloader.metadata.columns import unzigzag, zigzag
from offloader.metadata.group_columns import COLUMNS, ColumnReader, ColumnWriter
from offloader.metadata.index_codec import BLOCKS, PER_BLOCK, PER_ENTRY, PLACES, read_blocks, read_index, write_index
from offloader.metadata.value_codec import damage_of
from offloader.model import EntryStats, Gap, GapKind, LedgerRange, Part
from offloader.part_index import IndexEntry, PartIndex

# Complete groups never change, so that they are encoded once.
GROUP = 64
# Groups whose index entries stay unpacked: those that seals and records under way go through, part by part.
UNPACKED = 8

PART_COLUMNS = tuple(name for name in COLUMNS if name not in PLACES)
NO_INDEX = PartIndex()
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
    writer = ColumnWriter()
    before = _Before()
    for part in parts:
        before = _write_part(writer, part, before)
    writer.fill(message)
    return message.SerializeToString(deterministic=True)


def decode_parts(data: bytes) -> tuple[Part, ...]:
    """One group's parts, their index entries still in `data`. Raises ValueError and the like for damaged bytes."""
    message = pb.PartGroup.FromString(data)
    if message.etag_texts:
        etags = list(message.etag_texts)
    else:
        etags = [message.etags[i : i + 16].hex() for i in range(0, len(message.etags), 16)]
    crcs = [crc for (crc,) in struct.iter_unpack(">I", message.crcs)]
    if not len(etags) == len(crcs) == message.count:
        raise ValueError(f"{message.count} parts with {len(etags)} etags and {len(crcs)} checksums")
    reader = ColumnReader(message, PART_COLUMNS)
    before = _Before()
    parts = []
    try:
        for place, (etag, crc) in enumerate(zip(etags, crcs, strict=True)):
            part, before = _read_part(reader, etag, crc, before, data, place)
            parts.append(part)
    except StopIteration as error:
        raise ValueError("a column is too short") from error
    reader.check_empty()
    return tuple(parts)


class _StoredIndex(PartIndex):
    """The index entries of a part in the bytes of its group. Reading them raises DamagedRecordError."""

    __slots__ = ("_count", "_group", "_place")

    def __init__(self, count: int, group: bytes, place: int) -> None:
        super().__init__()
        self._count = count
        self._group = group
        self._place = place

    @property
    def packed(self) -> bytes:
        return _indexes_of(self._group)[self._place]

    def __len__(self) -> int:
        return self._count


@lru_cache(maxsize=UNPACKED)
def _indexes_of(data: bytes) -> tuple[bytes, ...]:
    """The packed index entries of a group's parts."""
    with damage_of("index entries in a journal or catalog"):
        parts = decode_parts(data)
        reader = ColumnReader(pb.PartGroup.FromString(data), (*BLOCKS, *PLACES))
        before = _Before()
        indexes = []
        try:
            for part in parts:
                entries = read_index(reader, _first_entry(part.ledgers, part.offset, before), part.ledgers)
                indexes.append(PartIndex.of(entries).packed)
                before = before.then(part, entries[-1].block if entries else None)
        except StopIteration as error:
            raise ValueError("a column is too short") from error
        reader.check_empty()
        return tuple(indexes)


@dataclass(frozen=True, slots=True)
class _Before:
    """What the next part's values are compared with."""

    number: int = 0
    end: int = 0
    block: int = 0
    range: LedgerRange = NO_RANGE
    publish_time: int = 0
    index: int = -1

    def then(self, part: Part, last_block: int | None) -> _Before:
        """After one more part; `last_block` is that of its last index entry."""
        stats = part.stats
        return _Before(
            part.number,
            part.offset + part.size,
            self.block + part.blocks if last_block is None else last_block,
            part.ledgers[-1] if part.ledgers else self.range,
            self.publish_time if stats.max_publish_time is None else stats.max_publish_time,
            self.index if stats.max_index is None else stats.max_index,
        )


def _write_part(w: ColumnWriter, part: Part, before: _Before) -> _Before:
    index = tuple(part.index)
    w.add("number", part.number - before.number - 1)
    w.add("offset", part.offset - before.end)
    _write_ledgers(w, part.ledgers, before.range)
    write_index(w, index, _first_entry(part.ledgers, part.offset, before), part.ledgers)
    w.add("blocks", part.blocks - len({e.block for e in index}))
    w.add("size", part.size - _size(part.ledgers, part.blocks))
    _write_stats(w, part.stats, part.entries, before)
    w.add("gap_count", len(part.gaps))
    for gap in part.gaps:
        w.add("gap_kind", KINDS.index(gap.kind))
        w.add("gap_ledger", gap.ledger)
        w.add("gap_first", gap.first)
        w.add("gap_last", gap.last - gap.first)
    return before.then(part, index[-1].block if index else None)


def _read_part(r: ColumnReader, etag: str, crc: int, before: _Before, data: bytes, place: int) -> tuple[Part, _Before]:
    number = r.take("number") + before.number + 1
    offset = r.take("offset") + before.end
    ledgers = _read_ledgers(r, before.range)
    entries, indexed_blocks, last_block = read_blocks(r, before.block + 1)
    index = _StoredIndex(entries, data, place) if entries else NO_INDEX
    blocks = r.take("blocks") + indexed_blocks
    size = r.take("size") + _size(ledgers, blocks)
    stats = _read_stats(r, sum(x.count for x in ledgers), before)
    gaps = tuple([_read_gap(r) for _ in range(r.take("gap_count"))])
    part = Part(number, offset, size, etag, crc, blocks, ledgers, index, stats, gaps)
    return part, before.then(part, last_block)


def _first_entry(ledgers: Sequence[LedgerRange], offset: int, before: _Before) -> IndexEntry:
    """The index entry that a part is likely to begin with."""
    first = ledgers[0] if ledgers else before.range
    return IndexEntry(first.ledger, first.first, before.block + 1, offset)


def _read_gap(r: ColumnReader) -> Gap:
    kind, ledger, first = KINDS[r.take("gap_kind")], r.take("gap_ledger"), r.take("gap_first")
    return Gap(kind, ledger, first, first + r.take("gap_last"))


def _size(ledgers: Sequence[LedgerRange], blocks: int) -> int:
    return blocks * PER_BLOCK + sum(x.size + PER_ENTRY * x.count for x in ledgers)


def _write_ledgers(w: ColumnWriter, ledgers: Sequence[LedgerRange], before: LedgerRange) -> None:
    w.add("ledger_count", len(ledgers) - 1)
    for x in ledgers:
        w.add("ledger_id", x.ledger - before.ledger)
        w.add("ledger_first", x.first - _next_entry(x.ledger, before))
        w.add("ledger_entries", x.count)
        w.add("ledger_last", x.last - (x.first + x.count - 1))
        w.add("ledger_bytes", x.size)
        w.add("ledger_closed", 0 if x.closed_with is None else 1 + zigzag(x.closed_with - x.last))
        before = x


def _read_ledgers(r: ColumnReader, before: LedgerRange) -> tuple[LedgerRange, ...]:
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


def _write_stats(w: ColumnWriter, stats: EntryStats, entries: int, before: _Before) -> None:
    values = _times(stats)
    w.add("messages", stats.messages - entries)
    w.add("times_known", sum(1 << i for i, value in enumerate(values) if value is not None))
    known: dict[str, int] = {}
    for name, value in zip(TIMES, values, strict=True):
        if value is not None:
            w.add(name, value - _expected_time(name, known, stats.messages, before))
            known[name] = value
    w.add("aborted_count", len(stats.aborted))
    for most, least in stats.aborted:
        w.add("aborted_most", most)
        w.add("aborted_least", least)


def _read_stats(r: ColumnReader, entries: int, before: _Before) -> EntryStats:
    messages = r.take("messages") + entries
    mask = r.take("times_known")
    known: dict[str, int] = {}
    for i, name in enumerate(TIMES):
        if mask >> i & 1:
            known[name] = r.take(name) + _expected_time(name, known, messages, before)
    values = [known.get(name) for name in TIMES]
    aborted = tuple([(r.take("aborted_most"), r.take("aborted_least")) for _ in range(r.take("aborted_count"))])
    return EntryStats(messages, *values, aborted=aborted)


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
