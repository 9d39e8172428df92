"""What is protected of topics' subscriptions in the bucket: the newest record of a topic counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from offloader.cursors.core.protection import Protection
from offloader.cursors.protection_codec import ProtectedTopic, decode_protected, encode_protected
from offloader.cursors.timed import TimedRecords
from offloader.errors import AccessDeniedError, IntegrityError, ObjectNotFoundError
from offloader.metadata.layout import protected_folder
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

KEPT = 2  # records: others may be reading the one before the newest


@dataclass(frozen=True)
class ProtectionStore:
    """Several may write: whatever counts then was seen by one of them, and proves itself anew before it is used."""

    store: ObjectStore
    new_token: Callable[[], str]

    def read(self, topic: TopicName) -> Mapping[str, Protection]:
        """By subscription. What is damaged, or gone meanwhile, protects nothing. Raises FormatVersionError, and what
        the store raises."""
        records = TimedRecords(self.store, protected_folder(topic))
        times = records.times()
        if not times:
            return {}
        try:
            return decode_protected(records.key(times[-1]), records.read(times[-1])).cursors
        except (ObjectNotFoundError, IntegrityError):
            return {}

    def write(self, topic: TopicName, cursors: Mapping[str, Protection], at: int) -> None:
        """Where the store refuses to delete, former records stay, and do no harm. Raises what the store raises: then it
        may have been written."""
        records = TimedRecords(self.store, protected_folder(topic))
        times = records.times()
        later = max(at, times[-1] + 1) if times else at
        written = records.write(
            later, lambda time: encode_protected(self.new_token(), ProtectedTopic(topic, time, cursors))
        )
        with suppress(AccessDeniedError):
            records.remove(sorted({*times, written})[:-KEPT])
