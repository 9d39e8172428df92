"""The V1 objects of bridged ledgers, in the root of the brokers' bucket: whether they are there, what they hold, and
how they are deleted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from offloader.bridge.core.rounds import BridgedLedger
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.blocks import HEADER_SIZE, read_entries
from offloader.format.v1 import LedgerIndex, decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import MIB, TopicName
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore

_FIRST_READ = MIB


class BridgedObjects:
    """Those of one bucket. Raises what its store raises."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def faults(self, ledgers: Iterable[BridgedLedger]) -> dict[int, str]:
        """What is missing, or has another size than was built, by ledger. Bytes were compared when they were built;
        what can have happened since is that somebody deleted them."""
        return {one.ledger: fault for one in ledgers if (fault := self._fault(one))}

    def _fault(self, one: BridgedLedger) -> str:
        data = self._store.stat(data_key(one.uuid, one.ledger))
        if data is None:
            return f"the data object of ledger {one.ledger} is not in the bucket any more"
        if data.size != one.size:
            return f"the data object of ledger {one.ledger} has {data.size} bytes, not {one.size}"
        if self._store.stat(index_key(one.uuid, one.ledger)) is None:
            return f"the index of ledger {one.ledger} is not in the bucket any more"
        return ""

    def entry(self, one: BridgedLedger, entry: int) -> bytes:
        """An entry as the object has it. Raises DamagedObjectError where it has not."""
        try:
            index = decode_ledger_index(self._store.read(index_key(one.uuid, one.ledger))[0], one.ledger)
            return self._find(index, one, entry)
        except ObjectNotFoundError as error:
            raise DamagedObjectError(f"ledger {one.ledger}: {error}") from error

    def _find(self, index: LedgerIndex, one: BridgedLedger, entry: int) -> bytes:
        begin, end, first = floor_entry(index, entry)
        size = _FIRST_READ
        while True:
            data = self._store.read(data_key(one.uuid, one.ledger), begin, min(size, end - begin))[0]
            try:
                return next(found.data for found in read_entries(data, begin, first) if found.entry == entry)
            except (StopIteration, DamagedObjectError) as error:
                if begin + size >= end:
                    raise DamagedObjectError(f"ledger {one.ledger}: the object has no entry {entry}") from error
            size *= 4  # what was read ends before the entry, or within it


def floor_entry(index: LedgerIndex, entry: int) -> tuple[int, int, int]:
    """From which offset on, and up to which, entries stand that may be it, and the first one's id.

    Raises ValueError for an entry before the first one."""
    place = bisect_right(index.entries, entry, key=lambda one: one.entry) - 1
    if place < 0:
        raise ValueError(f"entry {entry} is before the first one")
    following = index.entries[place + 1 : place + 2]
    end = following[0].offset + HEADER_SIZE if following else index.data_length
    return index.entries[place].offset + HEADER_SIZE, end, index.entries[place].entry


def broken_objects(
    admin: Admin, bucket: ObjectStore, topic: TopicName, ledgers: Iterable[BridgedLedger]
) -> dict[int, str]:
    """What is wrong with the objects of those that are listed, by ledger: presence and size, two requests a ledger.
    Brokers take a ledger off the list and then delete its objects, so the list is asked for after an object is missed,
    and then the object again. Raises what both raise."""
    objects, known = BridgedObjects(bucket), tuple(ledgers)
    suspects = objects.faults(known)
    if not suspects:
        return {}
    listed = admin.topic_info(topic).ledgers
    return objects.faults(one for one in known if one.ledger in suspects and one.ledger in listed)


def remove_objects(bucket: ObjectStore, ledgers: Iterable[BridgedLedger]) -> None:
    """For ledgers to which no record refers any more, and that no broker has loaded with our context.

    The indexes go first, all of them: while one is there, readers and scans take its data object for whole; a data
    object alone is one that was never finished. Uploads that are still open go, too, or one that was begun by a process
    that died would stay for ever. Safe to repeat; raises what the store raises.
    """
    found = list(ledgers)
    bucket.delete([index_key(each.uuid, each.ledger) for each in found])
    for each in found:
        end_uploads(bucket, data_key(each.uuid, each.ledger))
    bucket.delete([data_key(each.uuid, each.ledger) for each in found])


def end_uploads(bucket: ObjectStore, key: str) -> None:
    """End the uploads of a key that others have left open: nobody knows their handles any more."""
    for found in list(bucket.list_uploads(key)):
        if found.key == key:
            bucket.abort(found.upload)
