"""The removals of a cluster's subscriptions. What was saved lies beside each record, and is never changed."""

from __future__ import annotations

from functools import partial

from offloader.lifecycle.record_queue import LOST_RACES, RecordKind, RecordQueue, StoredRecord, changes_all_the_time
from offloader.lifecycle.topics.cursors.record_codec import (
    decode_removal,
    decode_saved,
    encode_removal,
    encode_saved,
)
from offloader.lifecycle.topics.cursors.records import CursorName, CursorRemoval, SavedCursor
from offloader.metadata.layout import (
    cursor_records_folder,
    cursor_states_folder,
    cursors_folder,
    parse_cursor_record_key,
)
from offloader.metadata.log import NumberedLog, read_record

StoredRemoval = StoredRecord[CursorRemoval]


class CursorRemovals(RecordQueue[CursorName, CursorRemoval]):
    """By topic and subscription."""

    @staticmethod
    def kind(cluster: str) -> RecordKind[CursorName, CursorRemoval]:
        """See RecordQueue."""
        return RecordKind(
            cursors_folder(cluster),
            lambda name: cursor_records_folder(cluster, *name),
            partial(parse_cursor_record_key, cluster),
            lambda record: record.name,
            encode_removal,
            decode_removal,
        )

    def save(self, name: CursorName, saved: SavedCursor) -> int:
        """Keep a subscription's state; its number. Raises OutcomeUnknownError: save it again."""
        log, data = self._states(name), encode_saved(self._new_token(), saved)
        for _ in range(LOST_RACES):
            slots = log.slots()
            slot = slots[-1] + 1 if slots else 0
            if log.append(slot, data) is None:
                return slot
        raise changes_all_the_time(log)

    def saved(self, record: CursorRemoval) -> SavedCursor:
        """What was saved. Raises ObjectNotFoundError, DamagedRecordError, FormatVersionError."""
        key = self._states(record.name).key(record.saved)
        return decode_saved(key, read_record(self._store, key))

    def remove(self, stored: StoredRemoval) -> None:
        """As for all records, with what was saved, unless somebody has made more of it meanwhile."""
        self._check_owner()
        states = self._states(stored.record.name)
        saved = states.slots()
        if self._log(stored.record.name).slots()[-1:] == [stored.slot]:
            states.remove(slot for slot in saved if slot <= stored.record.saved)
            super().remove(stored)

    def _states(self, name: CursorName) -> NumberedLog:
        return NumberedLog(self._store, cursor_states_folder(self._cluster, *name))
