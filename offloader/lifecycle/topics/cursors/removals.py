"""The removals of a cluster's subscriptions, as the bucket has them: the only truth.

Each version of a record is an object that is written if it is absent: of several who change a record, one does. What
was saved lies beside it, and is never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offloader.errors import DamagedRecordError, FormatVersionError, ObjectNotFoundError
from offloader.lifecycle.topics.cursors.record_codec import (
    decode_removal,
    decode_saved,
    encode_removal,
    encode_saved,
)
from offloader.lifecycle.topics.cursors.records import CursorRemoval, SavedCursor
from offloader.metadata.layout import (
    cursor_records_folder,
    cursor_states_folder,
    cursors_folder,
    parse_cursor_record_key,
)
from offloader.metadata.log import NumberedLog, read_record
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

_LOST_RACES = 20  # each is lost only to another process's progress


@dataclass(frozen=True, slots=True)
class StoredRemoval:
    """A record and which version of it this is."""

    slot: int
    record: CursorRemoval


@dataclass(frozen=True, slots=True)
class DamagedRemoval:
    """A record that cannot be read: it stays, and is told."""

    topic: TopicName
    subscription: str
    why: str


class CursorRemovals:
    """`check_owner` is called before anything is removed: it raises OvertakenError once another process has the
    application's journal."""

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

    def read(self, topic: TopicName, subscription: str) -> StoredRemoval | None:
        """Raises DamagedRecordError, FormatVersionError."""
        log = self._records(topic, subscription)
        while slots := log.slots():
            try:
                return self._read(topic, subscription, slots[-1])
            except ObjectNotFoundError:  # it was removed meanwhile
                continue
        return None

    def all(self) -> Iterator[StoredRemoval | DamagedRemoval]:
        """All of them, by topic and subscription; listed and read only as far as they are taken."""
        folder = cursors_folder(self._cluster)
        keys = (parse_cursor_record_key(self._cluster, key) for key, _ in self._store.list(folder))
        newest: tuple[TopicName, str, int] | None = None
        for key in (one for one in keys if one is not None):
            if newest is not None and newest[:2] != key[:2]:
                yield from self._told(*newest[:2])
            newest = key
        if newest is not None:
            yield from self._told(*newest[:2])

    def write(self, record: CursorRemoval, former: StoredRemoval | None) -> StoredRemoval | None:
        """Write a record in the place of what was read. None: somebody else has changed it; read it again.

        Raises OutcomeUnknownError: read it again and go by what is there."""
        slot = 0 if former is None else former.slot + 1
        log = self._records(record.topic, record.subscription)
        conflict = log.append(slot, encode_removal(self._new_token(), record))
        return None if conflict is not None else StoredRemoval(slot, record)

    def save(self, topic: TopicName, subscription: str, saved: SavedCursor) -> int:
        """Keep a subscription's state; its number. Raises OutcomeUnknownError: save it again."""
        log, data = self._states(topic, subscription), encode_saved(self._new_token(), saved)
        for _ in range(_LOST_RACES):
            slots = log.slots()
            slot = slots[-1] + 1 if slots else 0
            if log.append(slot, data) is None:
                return slot
        raise DamagedRecordError(f"{log.key(0)}: it changes all the time, also after {_LOST_RACES} tries")

    def saved(self, record: CursorRemoval) -> SavedCursor:
        """What was saved. Raises ObjectNotFoundError, DamagedRecordError, FormatVersionError."""
        key = self._states(record.topic, record.subscription).key(record.saved)
        return decode_saved(key, read_record(self._store, key))

    def remove(self, stored: StoredRemoval) -> None:
        """Forget a removal that has ended, with what was saved; what somebody made of it meanwhile stays."""
        self._check_owner()
        topic, subscription = stored.record.topic, stored.record.subscription
        records, states = self._records(topic, subscription), self._states(topic, subscription)
        slots, saved = records.slots(), states.slots()
        if slots[-1:] != [stored.slot]:
            return
        states.remove(slot for slot in saved if slot <= stored.record.saved)
        records.remove(slots[:-1])
        records.remove(slots[-1:])  # last: what it ended must not begin again when this is interrupted

    def _told(self, topic: TopicName, subscription: str) -> Iterator[StoredRemoval | DamagedRemoval]:
        try:
            found = self.read(topic, subscription)
        except (DamagedRecordError, FormatVersionError) as error:
            yield DamagedRemoval(topic, subscription, str(error))
            return
        if found is not None:
            yield found

    def _read(self, topic: TopicName, subscription: str, slot: int) -> StoredRemoval:
        key = self._records(topic, subscription).key(slot)
        record = decode_removal(key, read_record(self._store, key))
        if (record.topic, record.subscription) != (topic, subscription):
            raise DamagedRecordError(f"{key}: it is the record of {record.topic}, {record.subscription}")
        return StoredRemoval(slot, record)

    def _records(self, topic: TopicName, subscription: str) -> NumberedLog:
        return NumberedLog(self._store, cursor_records_folder(self._cluster, topic, subscription))

    def _states(self, topic: TopicName, subscription: str) -> NumberedLog:
        return NumberedLog(self._store, cursor_states_folder(self._cluster, topic, subscription))
