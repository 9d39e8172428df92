"""A ledger that brokers have offloaded becomes a segment's objects: theirs, byte for byte, and an index of ours.

Each step can be repeated: what is there already is looked at, and nothing is written over it. The copy is read
completely before anything says that it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crc32c import crc32c

from offloader.errors import (
    DamagedObjectError,
    FatalError,
    IntegrityError,
    ObjectNotFoundError,
    UploadGoneError,
)
from offloader.format.index import decode_index, index_of_segment
from offloader.format.v1_parts import ExaminedLedger, examine
from offloader.metadata import layout, stock_keys
from offloader.model import MAX_OBJECT_SIZE, MIB, LedgerRange, Part, SegmentLayout, TopicName
from offloader.ports.object_store import ObjectStore, Stat, UploadedPart
from offloader.storage.bounded_reads import naming, read_index, read_ranges

COPIED_PART = 128 * MIB
STREAMED_PART = 16 * MIB
"""What is in memory where a store cannot copy by itself: 2 GiB are 128 parts, S3 takes 410 of ours."""
INDEX_META = {"s3managedledgeroffloaderformatversion": "1"}


@dataclass(frozen=True, slots=True)
class WantedCopy:
    """What is copied. `last`, `length`: the ledger's last entry, and the sum of its entries' lengths, as Pulsar's list
    has them. `brokers_uuid`: of the brokers' object."""

    topic: TopicName
    ledger: int
    last: int
    length: int
    brokers_uuid: str

    @property
    def source(self) -> str:
        """The brokers' object."""
        return stock_keys.data_key(self.brokers_uuid, self.ledger)


@dataclass(frozen=True, slots=True)
class TakenLedger:
    """A copy that was read and is right. `at`: when its index was written, as that says itself."""

    parts: tuple[Part, ...]
    at: int


@dataclass(frozen=True)
class LedgerCopier:
    """`store`: the archive's; `stock`: the bucket of Pulsar's own offloader."""

    store: ObjectStore
    stock: ObjectStore
    clock_ms: Callable[[], int]

    def copy(self, wanted: WantedCopy, uuid: str, upload: str, cuts: SegmentLayout) -> TakenLedger:
        """Have the segment `uuid` hold the ledger. Raises DamagedObjectError where the brokers' object is not what
        Pulsar's list says; UploadGoneError where the copy alone is wrong, and must be made anew under another uuid;
        FatalError where the object cannot be one of ours; and what the stores raise."""
        key = layout.data_key(wanted.topic, uuid)
        there = self.store.stat(key)
        size = self._copied(wanted, upload) if there is None else there.size
        try:
            found = self._examined(self.store, key, size, wanted, cuts)
        except DamagedObjectError as error:
            self._blame(wanted, cuts, error)
            raise
        return TakenLedger(found.parts, self._indexed(wanted, uuid, found, size))

    def _there(self, wanted: WantedCopy) -> Stat:
        stat = self.stock.stat(wanted.source)
        if stat is None:
            raise ObjectNotFoundError(
                f"{self.stock.url}: {wanted.source} is not there, which brokers say they have offloaded ledger "
                f"{wanted.ledger} to: is this their bucket (lifecycle.stockBucket)?"
            )
        if not stat.size:
            raise DamagedObjectError(f"{wanted.source}: it is empty")
        return stat

    def _copied(self, wanted: WantedCopy, upload: str) -> int:
        stat = self._there(wanted)
        if stat.size > MAX_OBJECT_SIZE:
            raise FatalError(
                f"{wanted.source}: {stat.size} bytes are more than an object of ours may have: take the topic's "
                "ledgers over with --rewrite"
            )
        return self.store.commit(upload, list(self._parts(wanted.source, upload, stat))).size

    def _parts(self, source: str, upload: str, stat: Stat) -> Iterator[UploadedPart]:
        """Copied inside the store; where not even the first one is, all pass through us."""

        def copied(number: int, at: int, size: int) -> UploadedPart | None:
            return self.store.copy_part(upload, number, at, self.stock, source, at, size, stat.etag)

        first = copied(1, 0, min(COPIED_PART, stat.size))
        step = STREAMED_PART if first is None else COPIED_PART
        for number, at in enumerate(range(0, stat.size, step), 1):
            size = min(step, stat.size - at)
            part = first if first is None or number == 1 else copied(number, at, size)
            yield part or self._streamed(source, upload, number, at, size)

    def _streamed(self, source: str, upload: str, number: int, at: int, size: int) -> UploadedPart:
        data = b"".join(read_ranges(self.stock, source, at, at + size))
        return self.store.put_part(upload, number, at, data, crc32c(data))

    def _examined(
        self, store: ObjectStore, key: str, size: int, wanted: WantedCopy, cuts: SegmentLayout
    ) -> ExaminedLedger:
        with naming(key):
            found = examine(read_ranges(store, key, 0, size), size, wanted.ledger, cuts)
            if (found.last, found.payload) != (wanted.last, wanted.length):
                raise DamagedObjectError(
                    f"it has {found.last + 1} entries of {found.payload} bytes, Pulsar's list {wanted.last + 1} of "
                    f"{wanted.length}"
                )
        return found

    def _blame(self, wanted: WantedCopy, cuts: SegmentLayout, error: DamagedObjectError) -> None:
        """Raises DamagedObjectError that names the brokers' object where that is wrong, else UploadGoneError."""
        stat = self.stock.stat(wanted.source)
        if stat is not None:
            self._examined(self.stock, wanted.source, stat.size, wanted, cuts)
        raise UploadGoneError(f"the copy of {wanted.source} is damaged, and is made anew: {error}") from error

    def _indexed(self, wanted: WantedCopy, uuid: str, found: ExaminedLedger, size: int) -> int:
        """Write the index; one that an earlier try wrote stays, and says when that was."""
        key, at = layout.index_key(wanted.topic, uuid), self.clock_ms()
        count = wanted.last + 1
        held = LedgerRange(wanted.ledger, 0, count, count=count, size=wanted.length, closed_with=wanted.last)
        if self.store.put(key, index_of_segment(found.index, [held], size, at), meta=INDEX_META, if_absent=True):
            return at
        data, _ = read_index(self.store, key)
        with naming(key):
            at = decode_index(data).groups[0].info.timestamp
        if data != index_of_segment(found.index, [held], size, at):
            raise IntegrityError(f"another index object is at {key}")
        return at
