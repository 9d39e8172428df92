"""The deletions of a cluster, and their switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from offloader.errors import ObjectNotFoundError
from offloader.lifecycle.deletion.records import (
    DeletionSwitch,
    LedgerType,
    PendingDeleteLedgerInfo,
    decode_deletion,
    decode_switch,
    encode_deletion,
    encode_switch,
)
from offloader.lifecycle.record_queue import LOST_RACES, RecordKind, RecordQueue, StoredRecord, changes_all_the_time
from offloader.metadata.layout import (
    deletion_folder,
    deletion_records_folder,
    deletion_switch_folder,
    parse_deletion_key,
)
from offloader.metadata.log import NumberedLog, read_record

StoredDeletion = StoredRecord[PendingDeleteLedgerInfo]


class DeletionQueue(RecordQueue[str, PendingDeleteLedgerInfo]):
    """By `PendingDeleteLedgerInfo.name`."""

    @staticmethod
    def kind(cluster: str) -> RecordKind[str, PendingDeleteLedgerInfo]:
        """See RecordQueue."""
        return RecordKind(
            deletion_records_folder(cluster),
            partial(deletion_folder, cluster),
            partial(parse_deletion_key, cluster),
            lambda record: record.name,
            encode_deletion,
            decode_deletion,
        )

    def readable_of(
        self, kind: LedgerType, passed_over: Callable[[str, int], bool] = lambda _name, _slot: False
    ) -> Iterator[StoredDeletion]:
        """Those of one type that can be read; no others are read. `passed_over`: as of `records`."""
        found = self.records(lambda name, slot: not name.startswith(f"{kind}-") or passed_over(name, slot))
        return (one for one in found if isinstance(one, StoredRecord))

    def has_any(self, kind: LedgerType) -> bool:
        """Whether one of that type is recorded."""
        return next(iter(self._store.list(f"{deletion_records_folder(self._cluster)}{kind}-")), None) is not None

    def switch(self) -> DeletionSwitch | None:
        """The switch as it was last set; None: deletion was never on."""
        log = self._switches()
        while slots := log.slots():
            key = log.key(slots[-1])
            try:
                return replace(decode_switch(key, read_record(self._store, key)), number=slots[-1] + 1)
            except ObjectNotFoundError:  # a later one is there
                continue
        return None

    def set_switch(self, *, on: bool, now: int) -> DeletionSwitch:
        """Say whether deletion is on, where that is news. What was marked before it was off counts from anew."""
        log = self._switches()
        for _ in range(LOST_RACES):
            newest = self.switch() or DeletionSwitch(on=False, at=now)
            if newest.on == on:
                return newest
            switch = DeletionSwitch(on, now, newest.number + 1)
            if log.append(newest.number, encode_switch(self._new_token(), switch)) is None:
                self._check_owner()
                log.remove(old for old in log.slots() if old < newest.number)
                return switch
        raise changes_all_the_time(log)

    def _switches(self) -> NumberedLog:
        return NumberedLog(self._store, deletion_switch_folder(self._cluster))
