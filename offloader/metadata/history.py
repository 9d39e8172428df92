"""A catalog's records as readers need them: manifests say where records are, so that only wanted ones are read."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.metadata.catalog_codec import LogRecord, decode_slot, opening
from offloader.metadata.layout import manifest_key, records_key, slot_key
from offloader.metadata.log import LARGEST_RECORD, READERS, read_record
from offloader.metadata.manifest import (
    FAN,
    Manifest,
    ManifestNode,
    ManifestRow,
    before_next,
    frontier,
    leaf,
    merged,
    row_of,
)
from offloader.metadata.manifest_codec import decode_manifest, read_manifest
from offloader.metadata.state import CatalogFold, CatalogHead, TopicCatalog
from offloader.model import Position
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

T = TypeVar("T")

# A segment of 1 GiB takes some 50 KiB of memory, a manifest 30.
MOST_KEPT = 5_000


class Slot(NamedTuple):
    """A record's number, and what it says in short."""

    number: int
    row: ManifestRow


class RecordCache:
    """What was last read from objects that never change, by key. Threads may share it."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: OrderedDict[str, object] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str, kind: type[T]) -> T | None:
        with self._lock:
            found = self._kept.get(key)
            if not isinstance(found, kind):
                return None
            self._kept.move_to_end(key)
            return found

    def forget(self, prefix: str) -> None:
        """Drop everything whose key begins with this, because it was made anew."""
        with self._lock:
            for key in [key for key in self._kept if key.startswith(prefix)]:
                del self._kept[key]

    def put(self, key: str, value: object) -> None:
        with self._lock:
            self._kept[key] = value
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)


class History:
    """The records that make up a head. If a manifest is absent or damaged, the records below it are read instead.

    `last_etag`: the last record's, where that was just read. Raises DamagedRecordError and what the store raises.
    """

    def __init__(self, store: ObjectStore, head: CatalogHead, cache: RecordCache | None = None) -> None:
        self.head = head
        self.last_etag = ""
        self._store = store
        self._topic = head.topic
        self._generation = head.generation
        self._cache = cache or RecordCache()
        self._leaves: int | None = None

    def slots(self, wanted: Callable[[ManifestRow], bool]) -> Iterator[Slot]:
        """The wanted records, in order. Where `wanted` refuses the sum of many records, none of these is read."""
        leaves = self.leaves
        for node, row in zip(frontier(leaves), self.before(leaves), strict=True):
            if wanted(row):
                yield from self._below(node, wanted)
        yield from self._tail(leaves, wanted)

    def outline(self, wanted: Callable[[ManifestRow], bool]) -> Iterator[tuple[Position, Position]]:
        """First and last positions of wanted records, in order. A sum that lies in one incarnation gives one pair."""
        leaves = self.leaves
        for node, row in zip(frontier(leaves), self.before(leaves), strict=True):
            yield from self._outline(node, row, wanted)
        for slot in self._tail(leaves, wanted):
            if slot.row.start is not None and slot.row.end is not None:
                yield slot.row.start, slot.row.end

    def _outline(
        self, node: ManifestNode, row: ManifestRow, wanted: Callable[[ManifestRow], bool]
    ) -> Iterator[tuple[Position, Position]]:
        if not wanted(row) or row.start is None or row.end is None:
            return
        if row.start.incarnation == row.end.incarnation:
            yield row.start, row.end
            return
        for index, below in enumerate(self.manifest(node).rows):
            if node.level > 0:
                yield from self._outline(node.child(index), below, wanted)
            elif wanted(below) and below.start is not None and below.end is not None:
                yield below.start, below.end

    def _tail(self, leaves: int, wanted: Callable[[ManifestRow], bool]) -> Iterator[Slot]:
        tail = range(leaves * FAN, self.head.next_slot)
        for number, written in zip(tail, self.read(tail), strict=True):
            row = row_of(written.record)
            if wanted(row):
                yield Slot(number, row)

    def read(self, numbers: Iterable[int]) -> Iterator[LogRecord]:
        """The records of these slots, in order. What is not known is read several at a time."""
        wanted = list(numbers)
        groups: list[list[int]] = []
        for number in wanted:
            together = groups and number // FAN < self.leaves and groups[-1][0] // FAN == number // FAN
            if together and groups[-1][-1] + 1 == number:
                groups[-1].append(number)
            else:
                groups.append([number])
        left = deque(groups)
        while left and (known := self._known(left[0])) is not None:
            left.popleft()
            yield from known
        if len(left) <= 1:
            yield from (written for group in left for written in self._read_group(group))
            return
        with unawaited_pool(min(READERS, len(left)), "catalog-reader") as pool:
            for found in map_ahead(pool, self._read_group, left, 2 * READERS):
                yield from found

    def catalog(self, numbers: range) -> TopicCatalog:
        """The catalog that has the records of consecutive slots, with the head of all."""
        fold: CatalogFold | None = None
        for written in self.read(numbers):
            fold = fold or CatalogFold(TopicCatalog.after(written.before))
            fold.add(written.record)
        return TopicCatalog(self.head) if fold is None else replace(fold.catalog(), head=self.head)

    def leaf(self, number: int, before: Sequence[ManifestRow] | None = None) -> tuple[Manifest, list[bytes]]:
        """A leaf made from its records, and their bytes as the log has them. `before`: as in `Manifest`, if known."""
        slots = ManifestNode(0, number).slots
        data = [self._slot(slot) for slot in slots]
        records = [self._decoded(slot, each).record for slot, each in zip(slots, data, strict=True)]
        if before is None:
            before = [merged(self.manifest(each).rows) for each in frontier(number)]
        return leaf(number, records, [len(each) for each in data], before), data

    def row(self, number: int) -> ManifestRow:
        """What one record says, in short."""
        if number // FAN < self.leaves:
            return self.manifest(ManifestNode(0, number // FAN)).rows[number % FAN]
        return row_of(next(self.read([number])).record)

    def is_first(self, number: int) -> bool:
        """Whether nothing is accounted for before a record."""
        return next(self.read([number])).before.last is None

    def keep(self, number: int, written: LogRecord) -> None:
        """A record that was read already."""
        self._cache.put(self._key(number), written)

    @property
    def leaves(self) -> int:
        """How many leaves there are: the newest ones may not be made yet."""
        if self._leaves is None:
            found, step = self.head.next_slot // FAN, 1
            while found > 0 and not self._is_there(ManifestNode(0, found - 1)):
                found, step = max(found - step, 0), 2 * step
            self._leaves = found
        return self._leaves

    def before(self, leaves: int) -> tuple[ManifestRow, ...]:
        """What the records of the first leaves add up to: a row for each node of their `frontier`."""
        return before_next(self.manifest(ManifestNode(0, leaves - 1))) if leaves else ()

    def manifest(self, node: ManifestNode) -> Manifest:
        """A manifest. If it is damaged or gone, it is made anew from the records or manifests below it."""
        key = manifest_key(self._topic, self._generation, *node)
        found = self._cache.get(key, Manifest)
        if found is None:
            try:
                found = decode_manifest(self._topic, node, key, read_manifest(self._store, key))
            except (DamagedRecordError, ObjectNotFoundError) as error:
                log.warning(
                    "a manifest is passed over, what it is made of is read instead: %s",
                    error,
                    extra={"see": "manifest-damaged"},
                )
                found = self._made(node)
            self._cache.put(key, found)
        return found

    def _is_there(self, node: ManifestNode) -> bool:
        key = manifest_key(self._topic, self._generation, *node)
        return self._cache.get(key, Manifest) is not None or self._store.stat(key) is not None

    def _made(self, node: ManifestNode) -> Manifest:
        if node.level > 0:
            return Manifest(node, tuple(merged(self.manifest(node.child(index)).rows) for index in range(FAN)))
        return self.leaf(node.number)[0]

    def _below(self, node: ManifestNode, wanted: Callable[[ManifestRow], bool]) -> Iterator[Slot]:
        for index, row in enumerate(self.manifest(node).rows):
            if not wanted(row):
                continue
            if node.level == 0:
                yield Slot(node.slots[index], row)
            else:
                yield from self._below(node.child(index), wanted)

    def _known(self, numbers: list[int]) -> list[LogRecord] | None:
        """None: not all of them were read already."""
        known = [self._cache.get(self._key(number), LogRecord) for number in numbers]
        found = [each for each in known if each is not None]
        return found if len(found) == len(known) else None

    def _read_group(self, numbers: list[int]) -> list[LogRecord]:
        """The records of consecutive slots; several are of one leaf."""
        known = self._known(numbers)
        if known is not None:
            return known
        found = self._from_leaf(numbers) if numbers[0] // FAN < self.leaves else None
        if found is None:
            found = [self._decoded(number, self._slot(number)) for number in numbers]
        for number, written in zip(numbers, found, strict=True):
            self._cache.put(self._key(number), written)
        return found

    def _from_leaf(self, numbers: list[int]) -> list[LogRecord] | None:
        """Records of one leaf, in one request; None: they are too large for that, or the leaf's object is damaged."""
        first, manifest = numbers[0] % FAN, self.manifest(ManifestNode(0, numbers[0] // FAN))
        key = records_key(self._topic, self._generation, manifest.node.number)
        lengths = manifest.lengths[first : first + len(numbers)]
        if sum(lengths) > LARGEST_RECORD:
            return None
        try:
            data, _ = self._store.read(key, sum(manifest.lengths[:first]), sum(lengths))
            found, at = [], 0
            for number, length in zip(numbers, lengths, strict=True):
                found.append(self._decoded(number, data[at : at + length]))
                at += length
        except (DamagedRecordError, ObjectNotFoundError) as error:
            log.warning(
                "a manifest's records are passed over, each is read by itself instead: %s: %s",
                key,
                error,
                extra={"see": "manifest-damaged"},
            )
            return None
        return found

    def _slot(self, number: int) -> bytes:
        try:
            return read_record(self._store, self._key(number))
        except ObjectNotFoundError as error:
            if number == 0 and self._generation > 0:  # a rebuild was interrupted right before it
                return opening(self._topic, self._generation)
            raise DamagedRecordError(f"{self._key(number)} is missing, though there are later ones") from error

    def _decoded(self, number: int, data: bytes) -> LogRecord:
        return decode_slot(self._topic, self._generation, number, self._key(number), data)

    def _key(self, number: int) -> str:
        return slot_key(self._topic, self._generation, number)
