"""An `EntrySource` that reads bookies, and brokers' V1 objects where BookKeeper has a ledger no more."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from struct import Struct

from offloader.bookkeeper.bookie_source import BookKeeperReader, BookKeeperSource
from offloader.errors import DamagedObjectError, DataLostError, ObjectNotFoundError
from offloader.format.blocks import HEADER_SIZE, Chunks, decode_header
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import EntryRange, Gap, TopicName, Walk
from offloader.ports.entry_source import Extent, RawEntry
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_index, read_ranges

ENTRY = Struct(">iq")
AT_ONCE = 64  # entries


class OffloadedSource:
    """`stored`: bookies, which are asked first. `stock`: the bucket of Pulsar's own offloader."""

    def __init__(self, stored: BookKeeperSource, stock: ObjectStore) -> None:
        self.stored = stored
        self._stock = stock

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> OffloadedReader:
        return OffloadedReader(
            self.stored, self._stock, topic, (ledger, entry), max_bytes, extent or self.stored.closed_ledgers(topic)
        )

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """As bookies: nothing is missing."""
        return self.stored.explain(topic, missing, limit=limit)

    def close(self) -> None:
        """End the connections."""
        self.stored.close()
        self._stock.close()


class OffloadedReader:
    """An `EntryReader`: of bookies, but for the ledgers that they have no more."""

    def __init__(
        self,
        stored: BookKeeperSource,
        stock: ObjectStore,
        topic: TopicName,
        start: tuple[int, int],
        max_bytes: int,
        extent: Extent,
    ) -> None:
        self._stored = stored
        self._stock = stock
        self._topic = topic
        self._next = start
        self._max_bytes = max_bytes
        self._extent = extent
        self._copy: Iterator[RawEntry] | None = None
        self._bookies = self._open()

    def read(self, timeout: float) -> list[RawEntry]:
        """See `EntryReader.read`. Also raises DataLostError for a ledger that is in neither place, and
        DamagedObjectError for a brokers' object that is."""
        if self._copy is None:
            try:
                return self._advanced(self._bookies.read(timeout))
            except DataLostError as lost:
                self._copy = self._begin_copy(self._bookies.ledger, lost)
        found = self._advanced(list(self._some(self._copy)))
        if not found:  # behind that ledger, bookies again
            self._copy, self._next = None, (self._next[0] + 1, 0)
            self._bookies.close()
            self._bookies = self._open()
        return found

    def close(self) -> None:
        self._bookies.close()

    def _open(self) -> BookKeeperReader:
        return self._stored.open(self._topic, *self._next, max_bytes=self._max_bytes, extent=self._extent)

    def _advanced(self, found: list[RawEntry]) -> list[RawEntry]:
        if found:
            self._next = found[-1].ledger, found[-1].entry + 1
        return found

    def _some(self, entries: Iterator[RawEntry]) -> Iterator[RawEntry]:
        held = 0
        for one in islice(entries, AT_ONCE):
            yield one
            held += len(one.data)
            if held >= self._max_bytes // 4:
                return

    def _begin_copy(self, ledger: int, lost: DataLostError) -> Iterator[RawEntry]:
        """Raises DataLostError where brokers have completed no copy, or its objects are gone."""
        end = Walk(self._extent.ledgers, None, self._extent.last).end_of(ledger)
        uuid = self._stored.offloaded(self._topic).get(ledger)
        if uuid is None or end is None:
            raise lost
        first = max(self._next[1], 0) if self._next[0] == ledger else 0
        self._next = ledger, first
        try:
            index, _ = read_index(self._stock, index_key(uuid, ledger))
        except ObjectNotFoundError:
            raise lost from None
        with naming(index_key(uuid, ledger)):
            decoded = decode_ledger_index(index, ledger)
        blocks = decoded.entries
        at = blocks[max(bisect_right(blocks, first, key=lambda one: one.entry) - 1, 0)].offset
        return self._entries(data_key(uuid, ledger), EntryRange(ledger, first, end), at, decoded.data_length)

    def _entries(self, key: str, wanted: EntryRange, begin: int, end: int) -> Iterator[RawEntry]:
        chunks = Chunks(read_ranges(self._stock, key, begin, end))
        after = None
        with naming(key):
            for one in stored_entries(chunks, begin, wanted.ledger):
                if after is not None and one.entry != after:
                    raise DamagedObjectError(f"entry {one.entry} where {after} belongs")
                after = one.entry + 1
                if one.entry >= wanted.after:
                    return
                if one.entry >= wanted.first:
                    yield one
            if after is None or after < wanted.after:
                raise DamagedObjectError(f"it ends before entry {wanted.last}")


def stored_entries(chunks: Chunks, offset: int, ledger: int) -> Iterator[RawEntry]:
    """The entries from the block on that begins at `offset`; one is in memory at a time."""
    while not chunks.at_end():
        begin = offset + chunks.position
        header = decode_header(bytes(chunks.take(HEADER_SIZE)), begin)
        if header.ledger is not None:
            raise DamagedObjectError(f"offset {begin}: a streaming block in the object of ledger {ledger}")
        end = chunks.position + header.length - HEADER_SIZE
        while end - chunks.position >= ENTRY.size:
            head = bytes(chunks.take(ENTRY.size))
            if len(head) < ENTRY.size:
                raise DamagedObjectError(f"offset {offset + chunks.position}: the object ends within an entry")
            length, entry = ENTRY.unpack(head)
            if length < 0:
                break  # padding
            if length > end - chunks.position:
                raise DamagedObjectError(f"offset {offset + chunks.position}: an entry reaches beyond its block")
            data = bytes(chunks.take(length))
            if len(data) < length:
                raise DamagedObjectError(f"offset {offset + chunks.position}: the object ends within an entry")
            yield RawEntry(ledger, entry, data)
        chunks.skip(end - chunks.position)
