"""The deletions of a cluster, as the bucket has them: the only truth.

Each record has a folder, and each version of it is an object that is written if it is absent: of several who change a
record, one does. The newest version counts; those before it are left over. A write stands if the version that it
follows is still there and no later one is: so nobody revives what was removed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

from offloader.ahead import map_ahead, unawaited_pool
from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError
from offloader.lifecycle.deletion.record_codec import decode_deletion, decode_switch, encode_deletion, encode_switch
from offloader.lifecycle.deletion.records import DeletionSwitch, PendingDeleteLedgerInfo
from offloader.metadata.layout import (
    deletion_folder,
    deletion_records_folder,
    deletion_switch_folder,
    parse_deletion_key,
    slot_name,
)
from offloader.metadata.log import NumberedLog, read_record
from offloader.ports.object_store import ObjectStore

READERS = 8
PAGE = 1000
LOST_RACES = 20  # each is lost only to another process's progress


@dataclass(frozen=True, slots=True)
class StoredDeletion:
    """A record and which version of it this is."""

    slot: int
    record: PendingDeleteLedgerInfo


@dataclass(frozen=True, slots=True)
class DamagedDeletion:
    """A record that cannot be read: it stays, and is told. `name`: that of its folder."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class _Listed:
    name: str
    slots: tuple[int, ...]


class DeletionQueue:
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
        self._new_token = new_token
        self._check_owner = check_owner

    def read(self, name: str) -> StoredDeletion | None:
        """One record, by `PendingDeleteLedgerInfo.name`. Raises DamagedRecordError, FormatVersionError."""
        while True:
            slots = self._log(name).slots()
            if not slots:
                return None
            try:
                return self._read(name, slots[-1])
            except ObjectNotFoundError:  # a later version is there, or it was removed
                continue

    def records(
        self, after: str = "", passed_over: Callable[[str, int], bool] = lambda _name, _slot: False
    ) -> Iterator[StoredDeletion | DamagedDeletion]:
        """All records, by name, after a name. Lists and reads only as far as they are taken. `passed_over`: those that
        need not be read, by name and newest version."""
        with unawaited_pool(READERS, "deletion-reader") as pool:
            listed = (one for one in self._listed(after) if not passed_over(one.name, one.slots[-1]))
            found = map_ahead(pool, self._newest, listed, 2 * READERS)
            yield from (each for each in found if each is not None)

    def write(self, record: PendingDeleteLedgerInfo, former: StoredDeletion | None) -> StoredDeletion | None:
        """Write a record in the place of what was read. None: somebody else has changed it; read it again.

        Raises OutcomeUnknownError: read it again and go by what is there; OvertakenError: nothing may follow."""
        expected = -1 if former is None else former.slot
        written = StoredDeletion(expected + 1, record)
        log = self._log(record.name)
        conflict = log.append(written.slot, encode_deletion(self._new_token(), record)) is not None
        slots = [] if conflict else log.slots()
        stands = slots[-1:] == [written.slot] and (former is None or expected in slots)
        if slots[-1:] == [written.slot] and not stands:
            log.remove([written.slot])
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
        raise DamagedRecordError(f"{self._log(name).key(0)}: it changes all the time, also after {LOST_RACES} tries")

    def remove(self, stored: StoredDeletion) -> None:
        """Remove a record that has ended; what somebody has made of it meanwhile stays, also where another has removed
        it first, and it was marked again."""
        self._check_owner()
        log = self._log(stored.record.name)
        slots = log.slots()
        if stored.slot not in slots:
            return
        log.remove(slot for slot in slots if slot < stored.slot)
        log.remove([stored.slot])  # last: what it ended must not begin again when this is interrupted

    def tidy(self) -> int:
        """Remove versions that later ones cover; returns how many. The last but one stays: whoever has just written the
        last one looks for it."""
        self._check_owner()
        covered = (self._log(it.name).key(slot) for it in self._listed("") for slot in it.slots[:-2])
        removed = 0
        while keys := list(islice(covered, PAGE)):
            self._store.delete(keys)
            removed += len(keys)
        return removed

    def switch(self) -> DeletionSwitch | None:
        """The switch as it was last set; None: deletion was never on."""
        newest = self._newest_switch()
        return None if newest is None else newest[1]

    def set_switch(self, *, on: bool, now: int) -> DeletionSwitch:
        """Say whether deletion is on, where that is news. What was marked before it was off counts from anew."""
        for _ in range(LOST_RACES):
            newest = self._newest_switch()
            switch = DeletionSwitch(on=False, at=now) if newest is None else newest[1]
            if switch.on == on:
                return switch
            slot = 0 if newest is None else newest[0] + 1
            switch = DeletionSwitch(on, now, slot + 1)
            log = self._switches()
            if log.append(slot, encode_switch(self._new_token(), switch)) is None:
                self._check_owner()
                log.remove(old for old in log.slots() if old < slot)
                return switch
        raise DamagedRecordError(f"{self._switches().key(0)}: it changes all the time, also after {LOST_RACES} tries")

    def _newest_switch(self) -> tuple[int, DeletionSwitch] | None:
        log = self._switches()
        while True:
            slots = log.slots()
            if not slots:
                return None
            key = log.key(slots[-1])
            try:
                return slots[-1], replace(decode_switch(key, read_record(self._store, key)), number=slots[-1] + 1)
            except ObjectNotFoundError:  # a later one is there
                continue

    def _newest(self, listed: _Listed) -> StoredDeletion | DamagedDeletion | None:
        try:
            return self._read(listed.name, listed.slots[-1])
        except ObjectNotFoundError:
            try:
                return self.read(listed.name)
            except (DamagedRecordError, FormatVersionError) as error:
                return DamagedDeletion(listed.name, str(error))
        except (DamagedRecordError, FormatVersionError) as error:
            return DamagedDeletion(listed.name, str(error))

    def _read(self, name: str, slot: int) -> StoredDeletion:
        key = self._log(name).key(slot)
        record = decode_deletion(key, read_record(self._store, key))
        if record.name != name:
            raise DamagedRecordError(f"{key}: it is the record of {record.name}")
        return StoredDeletion(slot, record)

    def _listed(self, after: str) -> Iterator[_Listed]:
        """Name and versions of each record; the listing goes on as they are taken."""
        folder = deletion_records_folder(self._cluster)
        # A slot that no record has: behind all of the folder's.
        start_after = f"{deletion_folder(self._cluster, after)}{slot_name(10**20 - 1)}" if after else ""
        keys = (parse_deletion_key(self._cluster, key) for key, _ in self._store.list(folder, start_after=start_after))
        for name, found in groupby((key for key in keys if key is not None), lambda key: key[0]):
            yield _Listed(name, tuple(slot for _, slot in found))

    def _log(self, name: str) -> NumberedLog:
        return NumberedLog(self._store, deletion_folder(self._cluster, name))

    def _switches(self) -> NumberedLog:
        return NumberedLog(self._store, deletion_switch_folder(self._cluster))
