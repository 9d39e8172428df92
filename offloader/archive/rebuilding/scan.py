"""A full look at a data object and its index object, without any record of them."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from offloader.archive.reading.objects import READ_SIZE, naming, read_ranges
from offloader.archive.rebuilding.found import BlockFacts, FoundObject
from offloader.errors import DamagedObjectError
from offloader.format.entry import inspect
from offloader.format.index import Index, decode_index
from offloader.format.reader import Block, entries, read_blocks
from offloader.format.stats import StatsBuilder
from offloader.format.strict import account
from offloader.metadata.layout import data_key, index_key
from offloader.model import LedgerRange, TopicName
from offloader.storage.base import ObjectStore


def scan(store: ObjectStore, topic: TopicName, uuid: str) -> FoundObject:
    """Every byte accounted for, every entry's own checksum compared. Raises DamagedObjectError, ObjectNotFoundError."""
    with naming(index_key(topic, uuid)):
        index = decode_index(store.read(index_key(topic, uuid))[0])
    key = data_key(topic, uuid)
    walk = _Walk(store, key, index)
    with naming(key):
        stat = store.stat(key)
        if stat is not None and stat.size != index.data_length:
            raise DamagedObjectError(f"it has {stat.size} bytes, its index is of an object of {index.data_length}")
        account(walk.chunks(), index, own=True)
    with naming(index_key(topic, uuid)):
        ends, offloaded_at = _said(index, walk.blocks)
    return FoundObject(uuid, index.data_length, offloaded_at, ends, tuple(walk.blocks))


class _Walk:
    """The object's bytes, some whole blocks at a time, and what is in them."""

    def __init__(self, store: ObjectStore, key: str, index: Index) -> None:
        self.blocks: list[BlockFacts] = []
        self._store = store
        self._key = key
        self._index = index

    def chunks(self) -> Iterator[bytes]:
        """All of them; a chunk's blocks are looked at before it is given."""
        for begin, end in self._stretches():
            data = b"".join(read_ranges(self._store, self._key, begin, end))
            for block in read_blocks(data, begin):
                at = block.offset - begin
                self.blocks.append(_facts(block, crc32c(memoryview(data)[at : at + block.header.length])))
            yield data

    def _stretches(self) -> Iterator[tuple[int, int]]:
        starts: dict[int, int] = {}
        for entry in self._index.entries():
            starts[entry.block] = min(entry.offset, starts.get(entry.block, entry.offset))
        begin = 0
        for start in sorted(starts.values()):
            if start - begin >= READ_SIZE:
                yield begin, start
                begin = start
        yield begin, self._index.data_length


def _facts(block: Block, crc: int) -> BlockFacts:
    header, stats = block.header, StatsBuilder()
    count = size = first_size = 0
    for stored in entries(block):
        try:
            stats.add(inspect(stored.data))
        except DamagedObjectError as error:
            raise DamagedObjectError(f"offset {stored.offset}: {header.ledger}:{stored.entry}: {error}") from error
        first_size = first_size if count else len(stored.data)
        count, size = count + 1, size + len(stored.data)
    held = LedgerRange(header.ledger or 0, header.first_entry, header.first_entry + count - 1, count, size)
    return BlockFacts(block.offset, header.length, held, first_size, crc, stats.build())


def _said(index: Index, blocks: list[BlockFacts]) -> tuple[dict[int, int], int]:
    """What the index's metadata say of the ledgers, and when. Raises DamagedObjectError where the blocks contradict."""
    for group in index.groups:
        mine = [b.held for b in blocks if b.held.ledger == group.ledger]
        size = sum(held.size for held in mine)
        if group.info.size != size or not mine or group.info.entries <= mine[-1].last:
            raise DamagedObjectError(
                f"it has {group.info.size} bytes of ledger {group.ledger} up to entry {group.info.entries - 1}, the object {size}"
            )
    return {g.ledger: g.info.entries - 1 for g in index.groups}, max(g.info.timestamp for g in index.groups)
