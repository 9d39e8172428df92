"""The archive's implementation of `TopicEntries`: what segments and ledgers have, up to the last sealed one."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from offloader.archive.items import EntryRun, ReadItem
from offloader.archive.object_range import PlanItem
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import DEFAULTS, OnDamage, PlannedReader, ReadOptions
from offloader.archive.records import TopicRecords
from offloader.errors import DamagedRecordError, ObjectNotFoundError, PlanOutdatedError
from offloader.gateway.entries.delivered import deliverable, with_sticky
from offloader.gateway.entries.kept import KeptReaders
from offloader.gateway.entries.look import Look
from offloader.gateway.entries.missing import OnMissing, Passing
from offloader.gateway.entries.reader import Chunk, TopicReader
from offloader.gateway.entries.times import last_before
from offloader.gateway.entries.view import TopicView
from offloader.gateway.values import BEFORE_ALL, ReadEntries, ReadEntry, TopicEnd
from offloader.model import Place, TopicName

NOTHING = ReadEntries((), None)
T = TypeVar("T")


class ArchivedEntries:
    """See the port `TopicEntries`. As of the last `refresh`; the first look is taken when it is made.

    Args:
        kept: readers and what they have read, of all topics of a server.
        on_missing: what a loss, a deletion or damage does to those who read on to it.
        options: how it is read; `on_damage` follows from `on_missing`.
        is_terminated: whether the topic was terminated, so that nothing will ever follow. The archive does not know it.

    Raises FatalError where the archive has no such topic (any more), what the store raises, DamagedRecordError, and,
    where `on_missing` says so, DataLostError and DamagedObjectError.
    """

    def __init__(
        self,
        archive: OpenArchive,
        name: TopicName,
        kept: KeptReaders,
        *,
        on_missing: OnMissing = OnMissing.FAIL,
        options: ReadOptions = DEFAULTS,
        is_terminated: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self._archive = archive
        self._kept = kept
        self._options = replace(options, on_damage=OnDamage(on_missing.value))
        self._is_terminated = is_terminated
        self._passing = Passing(name, on_missing)
        self._changing = threading.Lock()
        self._closed = False
        self._view = TopicView.of(self._records())
        self._last: tuple[TopicView, ReadEntry | None] | None = None

    @property
    def passed_over(self) -> int:
        """How often a range was passed over that is missing and was a message, or may have been one."""
        return self._passing.ranges

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ReadEntries:
        return self._as_planned(lambda view: self._read(view, after, most_entries, most_bytes, sticky=sticky))

    def again(self, places: Sequence[Place], *, sticky: bool = False) -> list[ReadEntry]:
        found: dict[Place, ReadEntry | None] = self._just_read(places)
        left = [place for place in places if place not in found]
        found |= {entry.place: entry for entry in self._as_planned(lambda view: list(self._look(view).of(left)))}
        wanted = [entry for place in sorted(set(places)) if (entry := found.get(place)) is not None]
        return [with_sticky(entry) if sticky else entry for entry in wanted]

    def end(self) -> TopicEnd:
        view, known = self._view, self._last
        if known is None or known[0] is not view:
            known = view, self._as_planned(lambda view: self._look(view).last())
            self._last = known
        last = known[1]
        return TopicEnd(None if last is None else last.place, last.messages if last else 0, self._is_terminated())

    def refresh(self) -> bool:
        view = self._view
        records = self._records()
        if records.head == view.records.head and records.last_position == view.records.last_position:
            return False
        later = view.followed_by(records)
        with self._changing:
            if self._view is view:  # else somebody else has looked meanwhile
                self._view = later
        if self._view.key is not view.key:
            self._kept.forget(view.key)
        return self._view.served.last != view.served.last

    def before_time(self, published_ms: int) -> Place:
        return self._as_planned(lambda view: last_before(published_ms, self._look(view), view.ledgers()))

    def previous(self, place: Place) -> Place:
        ledgers = self._view.ledgers()
        number = bisect_left(ledgers, place[0], key=lambda each: each[1])
        if number < len(ledgers) and ledgers[number][1] == place[0] and place[1] > 0:
            return place[0], min(place[1] - 1, ledgers[number][2])
        return ledgers[number - 1][1:] if number else BEFORE_ALL

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        return self._view.ledgers()

    def missing_behind(self, after: Place) -> str | None:
        """In words the first thing that a reader behind this place will miss, from records alone; None: they say of
        nothing that it is missing. What retention has deleted at the begin is no loss for who starts at the begin."""
        found = self._view.missing_behind(after)
        return None if found is None else self._passing.sentence(found.missing)

    def close(self) -> None:
        """Give up what was read ahead. Calls that are under way end as ever."""
        self._closed = True
        self._kept.forget(self._view.key)

    def _records(self) -> TopicRecords:
        records = self._archive.records(self.name)
        if not self._archive.has(records):
            raise self._archive.unknown(self.name, f" {self._archive.store.url}")
        return records

    def _read(self, view: TopicView, after: Place, most_entries: int, most_bytes: int, *, sticky: bool) -> ReadEntries:
        reader = self._kept.take(view.key, after, sticky=sticky)
        found = NOTHING if reader is None else reader.read(most_entries, most_bytes)
        if reader is None or found.covered is None:  # one of an earlier view ends where that did
            reader = self._opened(view, after, sticky=sticky)
            found = reader.read(most_entries, most_bytes)
        if not reader.is_over:
            self._kept.park(view.key, reader)
        if self._closed or self._view.key is not view.key:
            self._kept.forget(view.key)
        return found

    def _opened(self, view: TopicView, after: Place, *, sticky: bool) -> TopicReader:
        def decoded(run: EntryRun) -> Chunk:
            chunk = Chunk(run, deliverable(run, view.aborted, sticky=sticky))
            self._kept.remember(view.key, chunk)
            return chunk

        def items() -> Generator[ReadItem]:
            yield from PlannedReader(self._archive.stores, self._options).read(view.plan(after))

        at_begin = view.served.is_at_begin(after)
        return TopicReader(after, items(), decoded, self._passing, at_begin=at_begin, sticky=sticky)

    def _just_read(self, places: Sequence[Place]) -> dict[Place, ReadEntry | None]:
        """Those that are still in memory; None: no consumer gets it."""
        key = self._view.key
        chunks = {place: self._kept.chunk_of(key, place) for place in places}
        return {place: chunk.find(place) for place, chunk in chunks.items() if chunk is not None}

    def _look(self, view: TopicView) -> Look:
        options = replace(self._options, prefetch=0)

        def read(items: Iterable[PlanItem]) -> Iterator[ReadItem]:
            return PlannedReader(self._archive.stores, options).read(items)

        return Look(view, read, lambda run: deliverable(run, view.aborted, sticky=False))

    def _as_planned(self, work: Callable[[TopicView], T]) -> T:
        """With the view as it is, or with a new one where what that names is not there any more."""
        view = self._view
        try:
            return work(view)
        except (PlanOutdatedError, ObjectNotFoundError, DamagedRecordError):  # all of which a newer look may explain
            self.refresh()
            if self._view is view:
                raise
        return work(self._view)
