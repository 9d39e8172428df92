"""The deletions of a cluster, and their switch, as the bucket has them: the only truth.

Several change a deletion's record. It has a folder, and each version of it is an object that is written if it is
absent: of several who change a record, one does. The newest version counts; those before it are left over. A write
stands if the version that it follows is still there and no later one is: so nobody revives what was removed
meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError
from offloader.lifecycle.deletion.records import DELETION, SWITCH, DeletionSwitch, LedgerType, PendingDeleteLedgerInfo
from offloader.metadata.layout import (
    deletion_folder,
    deletion_records_folder,
    deletion_switch_folder,
    parse_deletion_key,
)
from offloader.metadata.record_codec import RecordCodec
from offloader.metadata.records import Records, StoredRecord
from offloader.ports.object_store import ObjectStore

READERS = 8
PAGE = 1000
LOST_RACES = 20  # each is lost only to another process's progress

StoredDeletion = StoredRecord[PendingDeleteLedgerInfo]


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that cannot be read: it stays, and is told."""

    name: str
    why: str


class DeletionQueue:
    """By `PendingDeleteLedgerInfo.name`. `check_owner` is called after each write, and before anything is removed: it
    raises OvertakenError once another process has the application's journal. Commands need none."""

    def __init__(
        self,
        store: ObjectStore,
        cluster: str,
        new_token: Callable[[], str],
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._new_token = new_token
        self._check_owner = check_owner

    def read(self, name: str) -> StoredDeletion | None:
        """One record, by its name. Raises DamagedRecordError, FormatVersionError."""
        return self._versions(name).newest()

    def read_version(self, name: str, slot: int) -> StoredDeletion | DamagedRecord | None:
        """One version of a record, with one request. None: it is covered, or removed, since it was found."""
        return _readable(name, partial(self._versions(name).read, slot))

    def records(
        self, passed_over: Callable[[str, int], bool] = lambda _name, _slot: False
    ) -> Iterator[StoredDeletion | DamagedRecord]:
        """All records, by name. Lists and reads only as far as they are taken. `passed_over`: those that need not be
        read, by name and newest version."""
        with unawaited_pool(READERS, "record-reader") as pool:
            listed = (one for one in self._listed() if not passed_over(one[0], one[1][-1]))
            found = map_ahead(pool, self._newest, listed, 2 * READERS)
            yield from (each for each in found if each is not None)

    def readable(self) -> Iterator[StoredDeletion]:
        """Those of `records` that can be read."""
        return (one for one in self.records() if isinstance(one, StoredRecord))

    def readable_of(
        self, kind: LedgerType, passed_over: Callable[[str, int], bool] = lambda _name, _slot: False
    ) -> Iterator[StoredDeletion]:
        """Those of one type that can be read; no others are read. `passed_over`: as of `records`."""
        found = self.records(lambda name, slot: not name.startswith(f"{kind}-") or passed_over(name, slot))
        return (one for one in found if isinstance(one, StoredRecord))

    def has_any(self, kind: LedgerType) -> bool:
        """Whether one of that type is recorded."""
        return next(iter(self._store.list(f"{deletion_records_folder(self._cluster)}{kind}-")), None) is not None

    def write(self, record: PendingDeleteLedgerInfo, former: StoredDeletion | None) -> StoredDeletion | None:
        """Write a record in the place of what was read. None: somebody else has changed it; read it again.

        Raises OutcomeUnknownError: read it again and go by what is there; OvertakenError: nothing may follow."""
        versions = self._versions(record.name)
        written = StoredRecord(0 if former is None else former.slot + 1, record)
        before = versions.replace(written.slot, self._new_token(), record)
        stands = before is not None and (former is None or former.slot in before)
        if before is not None and not stands:
            versions.remove([written.slot])
        self._check_owner()
        return written if stands else None

    def change(
        self, name: str, change: Callable[[PendingDeleteLedgerInfo], PendingDeleteLedgerInfo]
    ) -> StoredDeletion | None:
        """Read a record, write what `change` makes of it, again where somebody else was first. None: no such record."""
        for _ in range(LOST_RACES):
            former = self.read(name)
            if former is None:
                return None
            written = self.write(change(former.record), former)
            if written is not None:
                return written
        raise _changes_all_the_time(self._versions(name).key(0))

    def remove(self, stored: StoredDeletion) -> None:
        """Remove a record that has ended; what somebody has made of it meanwhile stays, also where another has removed
        it first, and it was marked again."""
        self._check_owner()
        versions = self._versions(stored.record.name)
        slots = versions.slots()
        if stored.slot in slots:
            versions.remove(slot for slot in slots if slot < stored.slot)
            versions.remove([stored.slot])  # last: what it ended must not begin again when this is interrupted

    def tidy(self) -> int:
        """Remove versions that later ones cover; returns how many. The last but one stays: whoever has just written the
        last one looks for it."""
        self._check_owner()
        covered = (self._versions(name).key(slot) for name, slots in self._listed() for slot in slots[:-2])
        removed = 0
        while keys := list(islice(covered, PAGE)):
            self._store.delete(keys)
            removed += len(keys)
        return removed

    def switch(self) -> DeletionSwitch | None:
        """The switch as it was last set; None: deletion was never on."""
        newest = self._switches().newest()
        return None if newest is None else replace(newest.record, number=newest.slot + 1)

    def set_switch(self, *, on: bool, now: int) -> DeletionSwitch:
        """Say whether deletion is on, where that is news. What was marked before it was off counts from anew."""
        switches = self._switches()
        for _ in range(LOST_RACES):
            newest = self.switch() or DeletionSwitch(on=False, at=now)
            if newest.on == on:
                return newest
            switch = DeletionSwitch(on, now, newest.number + 1)
            former = switches.replace(newest.number, self._new_token(), switch)
            if former is not None:
                self._check_owner()
                switches.remove(former)
                return switch
        raise _changes_all_the_time(switches.key(0))

    def _newest(self, listed: tuple[str, list[int]]) -> StoredDeletion | DamagedRecord | None:
        name, slots = listed
        return self.read_version(name, slots[-1]) or _readable(name, partial(self.read, name))

    def _listed(self) -> Iterator[tuple[str, list[int]]]:
        """Name and versions of each record; the listing goes on as they are taken."""
        listed = self._store.list(deletion_records_folder(self._cluster))
        keys = (parse_deletion_key(self._cluster, key) for key, _ in listed)
        for name, found in groupby((key for key in keys if key is not None), lambda key: key[0]):
            yield name, [slot for _, slot in found]

    def _versions(self, name: str) -> Records[PendingDeleteLedgerInfo]:
        codec = RecordCodec(DELETION.encode, partial(self._decode, name))
        return Records(self._store, deletion_folder(self._cluster, name), codec)

    def _decode(self, name: str, key: str, data: bytes) -> PendingDeleteLedgerInfo:
        record = DELETION.decode(key, data)
        if record.name != name:
            raise DamagedRecordError(f"{key}: it is the record of {deletion_folder(self._cluster, record.name)}")
        return record

    def _switches(self) -> Records[DeletionSwitch]:
        return Records(self._store, deletion_switch_folder(self._cluster), SWITCH)


def _readable(name: str, read: Callable[[], StoredDeletion | None]) -> StoredDeletion | DamagedRecord | None:
    """None: it has changed since."""
    try:
        return read()
    except ObjectNotFoundError:
        return None
    except (DamagedRecordError, FormatVersionError) as error:
        return DamagedRecord(name, str(error))


def _changes_all_the_time(key: str) -> DamagedRecordError:
    return DamagedRecordError(f"{key}: it changes all the time, also after {LOST_RACES} tries")
