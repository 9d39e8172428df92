"""A segment's two objects: the index whole, the data object in ranges; only as far as they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from offloader.errors import DamagedObjectError
from offloader.format.blocks import HEADER_SIZE, BlockHeader, decode_header
from offloader.format.chunks import Chunks
from offloader.format.index import Index, decode_index
from offloader.format.reader import Block, entries
from offloader.metadata.layout import index_key
from offloader.model import MIB, IndexEntry, TopicName
from offloader.storage.base import ObjectStore

READ_SIZE = 4 * MIB


class Stored(NamedTuple):
    """An entry as it stands in a data object, its length field at `offset`."""

    ledger: int
    entry: int
    offset: int
    data: bytes


class _Stretch(NamedTuple):
    """The bytes `begin`..`end` of an object from an index entry to the next one, a block's header included where it `opens` one."""

    point: IndexEntry
    begin: int
    end: int
    opens: bool
    block_end: int


def read_index(store: ObjectStore, topic: TopicName, uuid: str) -> Index:
    """A segment's index. Raises ObjectNotFoundError, DamagedObjectError."""
    key = index_key(topic, uuid)
    with naming(key):
        return decode_index(store.read(key)[0])


def stored_entries(
    store: ObjectStore, key: str, index: Index, first: tuple[int, int], last: tuple[int, int], read_size: int = READ_SIZE
) -> Iterator[Stored]:
    """The entries from the last index entry at or before `first` up to the next one after `last`.

    What is in memory at a time: one range of `read_size` bytes, and what lies between two index entries. Raises
    DamagedObjectError naming object and offset.
    """
    with naming(key):
        stretches = _wanted(index, first, last)
        chunks = Chunks(read_ranges(store, key, stretches[0].begin, stretches[-1].end, read_size))
        for stretch in stretches:
            yield from _entries_of(stretch, chunks.take(stretch.end - stretch.begin))


def read_ranges(store: ObjectStore, key: str, begin: int, end: int, read_size: int = READ_SIZE) -> Iterator[bytes]:
    """The bytes `begin`..`end` of an object. Raises DamagedObjectError where it is shorter."""
    at = begin
    while at < end:
        data, _ = store.read(key, at, min(read_size, end - at))
        if not data:
            raise DamagedObjectError(f"offset {at}: the object ends here, {end - at} bytes are missing")
        at += len(data)
        yield data


@contextmanager
def naming(key: str) -> Iterator[None]:
    """Put the object's name into the message of a damage."""
    try:
        yield
    except DamagedObjectError as error:
        if str(error).startswith(key):
            raise
        raise DamagedObjectError(f"{key}: {error}") from error


def _wanted(index: Index, first: tuple[int, int], last: tuple[int, int]) -> list[_Stretch]:
    """What must be read to have `first`..`last`."""
    start = index.seek(*first)
    if start is None:
        raise DamagedObjectError(f"the index names no place from which {first[0]}:{first[1]} can be read")
    stretches = _stretches(sorted(index.entries(), key=lambda e: e.offset), index.data_length)
    return [s for s in stretches if s.point.offset >= start.offset and (s.point.ledger, s.point.entry) <= last]


def _stretches(points: list[IndexEntry], data_length: int) -> Iterator[_Stretch]:
    """The object, cut at its index entries."""
    block_ends = {before.block: after.offset for before, after in pairwise(points) if before.block != after.block}
    for before, point, after in zip([None, *points], points, [*points[1:], None], strict=False):
        block_end = block_ends.get(point.block, data_length)
        opens = before is None or before.block != point.block
        begin = point.offset if opens else point.offset + HEADER_SIZE
        end = block_end if after is None or after.block != point.block else after.offset + HEADER_SIZE
        yield _Stretch(point, begin, end, opens, block_end)


def _entries_of(stretch: _Stretch, data: bytes | memoryview) -> Iterator[Stored]:
    point, view = stretch.point, memoryview(data)
    if stretch.opens:
        _check_header(decode_header(view[:HEADER_SIZE], stretch.begin), stretch)
        view = view[HEADER_SIZE:]
    header = BlockHeader(2, len(view) + HEADER_SIZE, point.entry, point.ledger)
    for found in entries(Block(point.offset, header, view)):
        yield Stored(point.ledger, found.entry, found.offset, found.data)


def _check_header(header: BlockHeader, stretch: _Stretch) -> None:
    said = (header.ledger, header.first_entry, stretch.begin + header.length)
    expected = (stretch.point.ledger, stretch.point.entry, stretch.block_end)
    if said != expected:
        raise DamagedObjectError(
            f"offset {stretch.begin}: a block of {said[0]}:{said[1]} up to offset {said[2]}, where the index has "
            f"{expected[0]}:{expected[1]} up to {expected[2]}"
        )
