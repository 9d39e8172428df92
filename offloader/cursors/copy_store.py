"""The copies of topics' subscriptions in the bucket, as a history by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace

from offloader.cursors.copies import CursorCopy
from offloader.cursors.copy_codec import decode_copy, encode_copy
from offloader.cursors.thinning import removable
from offloader.cursors.timed import TimedRecords
from offloader.errors import ObjectNotFoundError
from offloader.metadata.layout import cursor_copies_folder
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


def copy_times(store: ObjectStore, topic: TopicName) -> list[int]:
    """When each copy was made, in ms, in order."""
    return _records(store, topic).times()


def read_copy(store: ObjectStore, topic: TopicName, at: int | None = None) -> CursorCopy | None:
    """The newest copy, or the newest one of a moment (ms) or before it; None: there is none. Raises DamagedRecordError,
    FormatVersionError, and what the store raises."""
    records = _records(store, topic)
    while True:
        times = records.times()
        found = len(times) if at is None else bisect_right(times, at)
        if not found:
            return None
        time = times[found - 1]
        try:
            return decode_copy(records.key(time), records.read(time))
        except ObjectNotFoundError:  # thinned meanwhile: look again
            if time not in records.times():
                continue
            raise


def write_copy(store: ObjectStore, copy: CursorCopy, new_token: Callable[[], str], newest: int | None) -> CursorCopy:
    """Write a copy; returns it with the time that it got: later than the newest one, whatever the clock says."""
    at = copy.at if newest is None else max(copy.at, newest + 1)
    written = _records(store, copy.topic).write(at, lambda time: encode_copy(new_token(), replace(copy, at=time)))
    return replace(copy, at=written)


def thin_copies(store: ObjectStore, topic: TopicName) -> int:
    """Remove those that the history does not need; returns how many."""
    records = _records(store, topic)
    gone = removable(records.times())
    records.remove(gone)
    return len(gone)


def _records(store: ObjectStore, topic: TopicName) -> TimedRecords:
    return TimedRecords(store, cursor_copies_folder(topic))
