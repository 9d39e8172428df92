"""The copies of topics' subscriptions in the bucket, as a history by time. A copy is written where something has
changed since the newest one.

Of the last day all copies are kept, of the 31 days before it the last one of each hour, of ten years the last one of
each day. Time counts back from the newest copy, which always stays: no clock can take a history away, and a topic at
rest keeps its own. Hours and days are those of UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from offloader.cursors.copies import CursorCopy, decode_copy, digest_of, encode_copy
from offloader.errors import IntegrityError
from offloader.metadata.layout import cursor_copies_folder
from offloader.metadata.record_codec import RecordCodec
from offloader.metadata.records import Records
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ALL_MS = DAY_MS
HOURLY_MS = 32 * DAY_MS
DAILY_MS = 3_653 * DAY_MS  # ten years
THIN_EVERY_MS = 3_600_000


def removable(times: Iterable[int]) -> list[int]:
    """The times, in ms, of copies that nobody needs any more, in order. What was kept before and is removed now would
    be removed however often this was done in between."""
    known = sorted(set(times))
    if not known:
        return []
    newest = known[-1]
    hours = {time // HOUR_MS: time for time in known}  # the last of each
    days = {time // DAY_MS: time for time in known}
    return [time for time in known if not _is_kept(time, newest, hours, days)]


def _is_kept(time: int, newest: int, hours: dict[int, int], days: dict[int, int]) -> bool:
    age = newest - time
    if age < ALL_MS:
        return True
    if age < HOURLY_MS:
        return hours[time // HOUR_MS] == time
    return age < DAILY_MS and days[time // DAY_MS] == time


def copy_times(store: ObjectStore, topic: TopicName) -> list[int]:
    """When each copy was made, in ms, in order."""
    return _records(store, topic).slots()


def read_copy(store: ObjectStore, topic: TopicName, at: int | None = None) -> CursorCopy | None:
    """The newest copy, or the newest one of a moment (ms) or before it; None: there is none. Raises DamagedRecordError,
    FormatVersionError, and what the store raises."""
    newest = _records(store, topic).newest(until=at)
    return None if newest is None else newest.record


def write_copy(store: ObjectStore, copy: CursorCopy, new_token: Callable[[], str], newest: int | None) -> CursorCopy:
    """Write a copy; returns it with the time that it got: later than the newest one, whatever the clock says."""
    at = copy.at if newest is None else max(copy.at, newest + 1)
    return _records(store, copy.topic).write_from(at, new_token, lambda time: replace(copy, at=time)).record


def thin_copies(store: ObjectStore, topic: TopicName) -> int:
    """Remove those that the history does not need; returns how many."""
    records = _records(store, topic)
    gone = removable(records.slots())
    records.remove(gone)
    return len(gone)


def _records(store: ObjectStore, topic: TopicName) -> Records[CursorCopy]:
    return Records(store, cursor_copies_folder(topic), RecordCodec(encode_copy, decode_copy))


@dataclass(frozen=True, slots=True)
class NewestCopy:
    """What a writer remembers of a topic. `at`: of the newest copy; None: there is none. `digest`: what that says;
    empty: it cannot be read. `thinned_at`: when copies were last removed, by the copies' times. `written`: by the call
    that returned this."""

    at: int | None
    digest: bytes = b""
    thinned_at: int = 0
    written: bool = False


@dataclass(frozen=True)
class CursorCopier:
    """Safe to use from several threads, of one topic by one at a time."""

    store: ObjectStore
    new_token: Callable[[], str]

    def take(self, copy: CursorCopy, version: Callable[[], str], known: NewestCopy | None) -> NewestCopy:
        """Write a copy, unless the newest one says the same. `known`: what the last call returned; None: this is the
        first. Raises what the store raises."""
        before = known or self._newest(copy.topic)
        digest = digest_of(copy)
        if digest == before.digest:
            return NewestCopy(before.at, digest, before.thinned_at)
        with_version = CursorCopy(copy.topic, copy.incarnation, copy.at, copy.cursors, version())
        at = write_copy(self.store, with_version, self.new_token, before.at).at
        thinned_at = before.thinned_at
        if at - thinned_at >= THIN_EVERY_MS:
            thin_copies(self.store, copy.topic)
            thinned_at = at
        return NewestCopy(at, digest, thinned_at, written=True)

    def _newest(self, topic: TopicName) -> NewestCopy:
        try:
            found = read_copy(self.store, topic)
        except IntegrityError:  # the next one takes its place
            return NewestCopy(max(copy_times(self.store, topic)))
        return NewestCopy(None) if found is None else NewestCopy(found.at, digest_of(found))
