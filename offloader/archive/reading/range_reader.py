"""One object range under way: its index, its fetches, and what each answer gives.

Index objects are kept by their names: they never change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from offloader.archive.items import Missing, ReadItem
from offloader.archive.object_range import DataObject, ObjectRange
from offloader.archive.reading.checksums import PartChecksums, Proof
from offloader.archive.reading.scan import BrokenEntry, Scanner
from offloader.archive.reading.sparse_index import RangeFetch, SparseIndex, decode_sparse_index, fetches
from offloader.archive.reading.stores import OpenedStore
from offloader.archive.reading.verifier import OnDamage, RangeVerifier, sound_lead
from offloader.errors import DamagedObjectError, FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.format.blocks import HEADER_SIZE
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.metadata.layout import parse_topic_key
from offloader.model import MIB, Position, TopicName
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.bounded_reads import naming, read_index

T = TypeVar("T")
Body = tuple[bytes, Stat]

# More reports than this would help nobody.
MOST_DAMAGE = 1000
# A topic of 1 TiB has about 160 MiB of them.
CACHE_BYTES = 64 * MIB
_OVERHEAD = 1024


@dataclass(slots=True)
class LoadedIndex:
    """`proven`: the etag that the data object had when one of its blocks was seen to be of the index's ledger."""

    index: SparseIndex
    proven: str = ""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return 4 * self.index.offsets.itemsize * len(self.index) + _OVERHEAD


class IndexCache:
    """The indexes that were used last, within so many bytes. Safe to use from several threads."""

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._used = 0
        self._kept: OrderedDict[Hashable, LoadedIndex] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> LoadedIndex | None:
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
            return found

    def put(self, name: Hashable, loaded: LoadedIndex) -> LoadedIndex:
        """Keep an index; the one that is kept already where there is one."""
        with self._lock:
            kept = self._kept.setdefault(name, loaded)
            if kept is loaded:
                self._used += loaded.size
            while self._used > self._max_bytes and len(self._kept) > 1:
                self._used -= self._kept.popitem(last=False)[1].size
            return kept


# One for the process: its readers may share what never changes.
SHARED = IndexCache()


def deleted_meanwhile(store: ObjectStore, topic: TopicName, position: Position) -> str | None:
    """In words why a position of a segment is not there, where that is recorded; None: nothing says so, it is damage.
    Reads the head of the catalog, which says all that was ever deleted. Raises what the store raises."""
    try:
        head = Catalogs(store, "").head(topic)
    except (IntegrityError, FormatVersionError):
        return None  # a catalog that cannot be read says nothing
    found = range_of(head.removed.told, position)
    return None if found is None else found.told


def deleted_by_pulsar(stored: DataObject) -> str:
    """In words why an object that brokers own is not there."""
    return f"deleted by Pulsar: {stored.data_key} was bridged, and is not there any more"


@dataclass(slots=True)
class ReadStats:
    """What a reader asked of stores (indexes too), gave, and skipped: archived positions that it could not read, the
    first so many in `damaged`. Any thread may count a request."""

    requests: int = 0
    bytes_read: int = 0
    entries: int = 0
    skipped: int = 0
    damaged: list[Missing] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)

    def read(self, body: Body) -> Body:
        """Count a request's answer."""
        with self._lock:
            self.requests += 1
            self.bytes_read += len(body[0])
        return body

    def give(self, item: ReadItem) -> ReadItem:
        """Count what is given."""
        if not isinstance(item, Missing):
            self.entries += item.count
        elif item.damaged:
            self.skipped += item.entries.span
            if len(self.damaged) < MOST_DAMAGE:
                self.damaged.append(item)
        return item


class Submit(Protocol):
    """Begins a call, maybe in another thread. What it returns waits for the result, or raises what the call raised."""

    def __call__(self, call: Callable[[], T], /) -> Callable[[], T]: ...


class RangeRead:
    """Reads one range: `begin`, then `take` the answer to each of `fetches`, then `finish`.

    It asks for its index at once, so that this is there when the range before it ends.
    """

    def __init__(
        self,
        object_range: ObjectRange,
        opened: OpenedStore,
        on_damage: OnDamage,
        indexes: IndexCache,
        stats: ReadStats,
        submit: Submit,
    ) -> None:
        self._range = object_range
        self._object = object_range.object
        self._store = opened.store
        self._name = (opened.identity, object_range.object.index_key)
        self._indexes = indexes
        self._stats = stats
        self._verifier = RangeVerifier(object_range, on_damage)
        self._checksums = PartChecksums(object_range.split_points)
        self._held: list[ReadItem] = []
        self._failure: DamagedObjectError | ObjectNotFoundError | None = None
        self._etag = ""
        self._deleted = False
        self._index: Callable[[], LoadedIndex] | None = None
        if object_range.split_points:
            kept = indexes.get(self._name)
            self._index = submit(self._load) if kept is None else partial(_same, kept)

    def begin(self) -> Iterator[ReadItem]:
        """What comes before all entries."""
        return self._verifier.begin()

    def fetches(self, read_size: int) -> Iterator[RangeFetch]:
        """What is to be read, until nothing more is wanted."""
        if self._index is None:
            return
        try:
            self._loaded = self._index()
            with naming(self._object.index_key):
                self._loaded.index.check_length(self._object.size)
                planned = list(fetches(self._loaded.index, self._range.runs, read_size, self._range.split_points))
            self._scanner = Scanner(self._loaded.index, self._range.incarnation)
        except (DamagedObjectError, ObjectNotFoundError) as error:
            self._failure = error  # told of in its turn
            return
        for fetch in planned:
            if self._satisfied:
                return
            yield fetch

    @property
    def _satisfied(self) -> bool:
        """Whether nothing more matters. A part that has begun is read to its end, for its checksum's sake."""
        return self._verifier.satisfied and not self._checksums.is_open

    def read(self, fetch: RangeFetch) -> Body:
        """Ask the store; in any thread."""
        return self._stats.read(self._store.read(self._object.data_key, fetch.begin, fetch.end - fetch.begin))

    def take(self, fetch: RangeFetch, answer: Callable[[], Body]) -> Iterator[ReadItem]:
        """What a fetch gives, in its turn."""
        if self._satisfied or self._deleted:
            return
        try:
            data, stat = answer()
            usable = self._is_whole(fetch, stat) and self._is_of_the_index(fetch, stat)
        except ObjectNotFoundError as error:
            self._absent(error)
            return
        if not usable:
            return
        if not self._checksums.goes_on(fetch.begin):
            yield from self._unproven()
        proof = self._checksums.add(fetch.begin, data)
        try:
            self._held += self._scanned(fetch, data)
            if proof is Proof.WRONG:
                # What an entry shows says more exactly where than its part's sum.
                self._held = list(
                    self._verifier.wrong_part(*self._checksums.ended, list(self._verifier.checked(self._held)))
                )
        except DamagedObjectError:
            yield from sound_lead(self._held)
            raise
        if self._scanner.headers:
            self._loaded.proven = stat.etag
        if proof is Proof.NONE:
            yield from self._unproven()
        elif proof is not Proof.OPEN:
            yield from self._given()

    def _given(self) -> Iterator[ReadItem]:
        """What was held back until its part was checked."""
        held, self._held = self._held, []
        held.reverse()
        while held:
            yield held.pop()  # no name of ours keeps its bytes

    def _unproven(self) -> Iterator[ReadItem]:
        """Entries that no part's checksum proves, because the part was not read whole or has none: their own do."""
        for item in self._given():
            yield from self._verifier.checked([item])

    def finish(self) -> Iterator[ReadItem]:
        """Give the rest: entries of a part that did not come whole, and what could not be read."""
        yield from self._unproven()
        if self._failure is not None:
            self._absent(self._failure)
        yield from self._verifier.finish()

    def _absent(self, error: DamagedObjectError | ObjectNotFoundError) -> None:
        """An object that is not there may have been deleted since the plan was made: then the catalog says so now. What
        brokers own, nobody else deletes."""
        if isinstance(error, ObjectNotFoundError) and self._object.is_bridged:
            self._deleted = True
            self._verifier.deleted(deleted_by_pulsar(self._object))
            return
        if isinstance(error, ObjectNotFoundError) and parse_topic_key(self._object.data_key) is not None:
            told = deleted_meanwhile(self._store, self._range.topic, self._range.end)
            if told is not None:
                self._deleted = True
                self._verifier.deleted(told)
                return
        self._verifier.unreadable(error)

    def _scanned(self, fetch: RangeFetch, data: bytes) -> Iterator[ReadItem]:
        for found in self._scanner.scan(fetch, data):
            if isinstance(found, BrokenEntry):
                self._verifier.fault(found)
            else:
                yield from self._verifier.take(found)

    def _load(self) -> LoadedIndex:
        key = self._object.index_key
        data, _ = self._stats.read(read_index(self._store, key))
        with naming(key):
            return self._indexes.put(self._name, LoadedIndex(decode_sparse_index(data, self._object.ledger)))

    def _is_whole(self, fetch: RangeFetch, stat: Stat) -> bool:
        """Whether the object has its size; if not, its blocks' headers may still tell what to read of a ledger."""
        said = self._loaded.index.data_length
        if stat.size < said:
            self._fault(fetch, f"offset {stat.size}: the object ends here, {said - stat.size} bytes are missing")
        elif stat.size > said:
            self._fault(fetch, f"offset {said}: the object should end here, and has {stat.size - said} bytes more")
        return stat.size == said or self._object.ledger is None

    def _is_of_the_index(self, fetch: RangeFetch, stat: Stat) -> bool:
        """Whether the object is the one that the index describes. Only a block's header names the ledger. A fetch that
        begins inside a block has none: unless we saw one of this very object before, we read the block's header."""
        if self._etag not in ("", stat.etag):
            self._fault(fetch, f"offset {fetch.begin}: the object was replaced while it was read")
            return False
        self._etag = stat.etag
        index, number = self._loaded.index, fetch.first
        if fetch.continues or index.opens(number) or self._loaded.proven == stat.etag:
            return True
        begin = index.offsets[index.block_of(number)[0]]
        header, seen = self._stats.read(self._store.read(self._object.data_key, begin, HEADER_SIZE))
        if seen.etag != stat.etag:
            self._fault(fetch, f"offset {begin}: the object was replaced while it was read")
            return False
        try:
            self._scanner.check_header(number, header)
        except DamagedObjectError as error:
            self._fault(fetch, str(error))
        return True

    def _fault(self, fetch: RangeFetch, why: str) -> None:
        index = self._loaded.index
        self._verifier.fault(BrokenEntry(index.ledgers[fetch.first], index.entries[fetch.first], why))


def _same(loaded: LoadedIndex) -> LoadedIndex:
    return loaded
