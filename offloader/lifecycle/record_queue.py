"""Records that several change, as the bucket has them: the only truth.

Each record has a folder, and each version of it is an object that is written if it is absent: of several who change a
record, one does. The newest version counts; those before it are left over. A write stands if the version that it
follows is still there and no later one is: so nobody revives what was removed meanwhile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from typing import Generic, TypeVar

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError
from offloader.metadata.log import NumberedLog, read_record
from offloader.ports.object_store import ObjectStore

READERS = 8
PAGE = 1000
LOST_RACES = 20  # each is lost only to another process's progress

Name = TypeVar("Name")
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class StoredRecord(Generic[Record]):
    """A record and which version of it this is."""

    slot: int
    record: Record


@dataclass(frozen=True, slots=True)
class DamagedRecord(Generic[Name]):
    """A record that cannot be read: it stays, and is told."""

    name: Name
    why: str


@dataclass(frozen=True, slots=True)
class RecordKind(Generic[Name, Record]):
    """What a queue's records are, and where they lie. `parse`: name and version of a key in `folder`, None for anything
    else."""

    folder: str
    folder_of: Callable[[Name], str]
    parse: Callable[[str], tuple[Name, int] | None]
    name_of: Callable[[Record], Name]
    encode: Callable[[str, Record], bytes]
    decode: Callable[[str, bytes], Record]


class RecordQueue(ABC, Generic[Name, Record]):
    """`check_owner` is called after each write, and before anything is removed: it raises OvertakenError once another
    process has the application's journal. Commands need none."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        new_token: Callable[[], str],
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._kind = self.kind(cluster)
        self._new_token = new_token
        self._check_owner = check_owner

    @staticmethod
    @abstractmethod
    def kind(cluster: str) -> RecordKind[Name, Record]:
        """What its records are."""

    def read(self, name: Name) -> StoredRecord[Record] | None:
        """One record, by its name. Raises DamagedRecordError, FormatVersionError."""
        while slots := self._log(name).slots():
            try:
                return self._read(name, slots[-1])
            except ObjectNotFoundError:  # a later version is there, or it was removed
                continue
        return None

    def read_version(self, name: Name, slot: int) -> StoredRecord[Record] | DamagedRecord[Name] | None:
        """One version of a record, with one request. None: it is covered, or removed, since it was found."""
        try:
            return self._read(name, slot)
        except ObjectNotFoundError:
            return None
        except (DamagedRecordError, FormatVersionError) as error:
            return DamagedRecord(name, str(error))

    def records(
        self, passed_over: Callable[[Name, int], bool] = lambda _name, _slot: False
    ) -> Iterator[StoredRecord[Record] | DamagedRecord[Name]]:
        """All records, by name. Lists and reads only as far as they are taken. `passed_over`: those that need not be
        read, by name and newest version."""
        with unawaited_pool(READERS, "record-reader") as pool:
            listed = (one for one in self._listed() if not passed_over(one[0], one[1][-1]))
            found = map_ahead(pool, self._newest, listed, 2 * READERS)
            yield from (each for each in found if each is not None)

    def readable(self) -> Iterator[StoredRecord[Record]]:
        """Those of `records` that can be read."""
        return (one for one in self.records() if isinstance(one, StoredRecord))

    def write(self, record: Record, former: StoredRecord[Record] | None) -> StoredRecord[Record] | None:
        """Write a record in the place of what was read. None: somebody else has changed it; read it again.

        Raises OutcomeUnknownError: read it again and go by what is there; OvertakenError: nothing may follow."""
        expected = -1 if former is None else former.slot
        written = StoredRecord(expected + 1, record)
        log = self._log(self._kind.name_of(record))
        conflict = log.append(written.slot, self._kind.encode(self._new_token(), record)) is not None
        slots = [] if conflict else log.slots()
        stands = slots[-1:] == [written.slot] and (former is None or expected in slots)
        if slots[-1:] == [written.slot] and not stands:
            log.remove([written.slot])
        self._check_owner()
        return written if stands else None

    def change(self, name: Name, change: Callable[[Record], Record]) -> StoredRecord[Record] | None:
        """Read a record, write what `change` makes of it, again where somebody else was first. None: no such record."""
        for _ in range(LOST_RACES):
            former = self.read(name)
            if former is None:
                return None
            written = self.write(change(former.record), former)
            if written is not None:
                return written
        raise changes_all_the_time(self._log(name))

    def remove(self, stored: StoredRecord[Record]) -> None:
        """Remove a record that has ended; what somebody has made of it meanwhile stays, also where another has removed
        it first, and it was marked again."""
        self._check_owner()
        log = self._log(self._kind.name_of(stored.record))
        slots = log.slots()
        if stored.slot not in slots:
            return
        log.remove(slot for slot in slots if slot < stored.slot)
        log.remove([stored.slot])  # last: what it ended must not begin again when this is interrupted

    def tidy(self) -> int:
        """Remove versions that later ones cover; returns how many. The last but one stays: whoever has just written the
        last one looks for it."""
        self._check_owner()
        covered = (self._log(name).key(slot) for name, slots in self._listed() for slot in slots[:-2])
        removed = 0
        while keys := list(islice(covered, PAGE)):
            self._store.delete(keys)
            removed += len(keys)
        return removed

    def _newest(self, listed: tuple[Name, list[int]]) -> StoredRecord[Record] | DamagedRecord[Name] | None:
        name, slots = listed
        for read in (partial(self._read, name, slots[-1]), partial(self.read, name)):
            try:
                return read()
            except ObjectNotFoundError:  # it has changed since
                continue
            except (DamagedRecordError, FormatVersionError) as error:
                return DamagedRecord(name, str(error))
        return None

    def _read(self, name: Name, slot: int) -> StoredRecord[Record]:
        key = self._log(name).key(slot)
        record = self._kind.decode(key, read_record(self._store, key))
        if (own := self._kind.name_of(record)) != name:
            raise DamagedRecordError(f"{key}: it is the record of {self._kind.folder_of(own)}")
        return StoredRecord(slot, record)

    def _listed(self) -> Iterator[tuple[Name, list[int]]]:
        """Name and versions of each record; the listing goes on as they are taken."""
        keys = (self._kind.parse(key) for key, _ in self._store.list(self._kind.folder))
        for name, found in groupby((key for key in keys if key is not None), lambda key: key[0]):
            yield name, [slot for _, slot in found]

    def _log(self, name: Name) -> NumberedLog:
        return NumberedLog(self._store, self._kind.folder_of(name))


def changes_all_the_time(log: NumberedLog) -> DamagedRecordError:
    """After all tries."""
    return DamagedRecordError(f"{log.key(0)}: it changes all the time, also after {LOST_RACES} tries")
