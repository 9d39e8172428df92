"""Readers that stand somewhere in a topic and go on from there, call by call; they are kept between calls."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from typing import NamedTuple

from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.errors import OffloadError
from offloader.gateway.entries.delivered import ReadRun
from offloader.gateway.entries.missing import Passing, covered_by
from offloader.gateway.values import ServedEntries, ServedEntry
from offloader.model import MIB, Place

ENOUGH = 64  # entries; for more than these, a call does not wait for the store a second time: the first one for none


class TopicReader:
    """Reads on behind `after`, for one thread at a time. Between `since` and `covered` nothing can be delivered.

    `sticky`: whether keys are hashed. `is_over`: nothing more can be read with it."""

    def __init__(
        self,
        after: Place,
        items: Generator[ReadItem],
        decoded: Callable[[EntryRun], ReadRun],
        passing: Passing,
        *,
        at_begin: bool,
        sticky: bool,
    ) -> None:
        self.since = self.covered = after
        self.sticky = sticky
        self.is_over = False
        self._items = items
        self._decoded = decoded
        self._passing = passing
        self._at_begin = at_begin
        self._has_given = False
        self._run: ReadRun | None = None
        self._at = 0  # the next one of the run

    def stands_at(self, after: Place) -> bool:
        """Whether it goes on behind this place."""
        return self.since <= after <= self.covered

    def read(self, most_entries: int, most_bytes: int) -> ServedEntries:
        """See the port. What is raised ends the reader."""
        before, found, left = self.covered, list[ServedEntry](), most_bytes
        enough = min(ENOUGH if self._has_given else 1, most_entries)
        while True:
            if self._run is not None:
                left -= self._take(found, most_entries, left)
            if self._run is not None or len(found) >= enough or left <= 0 or self.is_over:
                break
            try:
                self._go_on()
            except OffloadError:
                self.close()
                if not found:
                    raise
                break  # who reads on behind these meets it again, or it is over
        self._has_given = self._has_given or bool(found)
        return ServedEntries(found, self.covered if self.covered > before else None)

    def _take(self, found: list[ServedEntry], most_entries: int, most_bytes: int) -> int:
        """Add entries of the run, which is left behind once it has no more. Returns their bytes."""
        run, first = self._run, self._at
        assert run is not None
        after = run.up_to(first, most_entries - len(found), most_bytes)
        if not found:
            after = max(after, min(first + 1, len(run)))
        if after > first:
            found += run.entries(first, after)
            self.since = self.covered = found[-1].place
        self._at = after
        if after == len(run):
            self.covered, self._run, self._at = run.covered, None, 0
        return run.bytes_between(first, after)

    def _go_on(self) -> None:
        item = next(self._items, None)
        if item is None:
            self.close()
        elif isinstance(item, Missing):
            if item.kind is None and not (item.deleted and self._at_begin):
                self._passing.meet(item)
            self.covered = max(self.covered, covered_by(item))
        else:
            self._at_begin = False
            self._run = self._decoded(item)

    def close(self) -> None:
        """What was read ahead is given up."""
        self.is_over = True
        self._items.close()


MOST_RUNS = 1_000
_OVERHEAD = 4_096  # bytes of a run beside its data; small ones are mostly that


class _Kept(NamedTuple):
    owner: Hashable
    run: ReadRun


class KeptReaders:
    """What is kept between calls, of all topics, within bounds: readers where they stand, and what they have just read.
    Threads may share it. A reader is in nobody's hands while it is in here: no lock is held while one reads.

    `most_readers`: each holds what it has read ahead, some MiB, and a thread or two. `most_bytes`: of what was just
    read; redelivery asks for that again."""

    def __init__(self, most_readers: int = 32, most_bytes: int = 64 * MIB) -> None:
        self._most_readers = most_readers
        self._most_bytes = most_bytes
        self._readers: OrderedDict[TopicReader, Hashable] = OrderedDict()  # the one used last is the last
        self._runs: deque[_Kept] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def take(self, owner: Hashable, after: Place, *, sticky: bool) -> TopicReader | None:
        """The owner's reader that goes on behind a place, taken out."""
        with self._lock:
            for reader, whose in reversed(self._readers.items()):
                if whose == owner and reader.sticky == sticky and reader.stands_at(after):
                    del self._readers[reader]
                    return reader
        return None

    def park(self, owner: Hashable, reader: TopicReader) -> None:
        """Keep a reader for whoever goes on where it stands."""
        with self._lock:
            self._readers[reader] = owner
            too_many = [self._readers.popitem(last=False)[0] for _ in range(len(self._readers) - self._most_readers)]
        for each in too_many:
            each.close()

    def remember(self, owner: Hashable, run: ReadRun) -> None:
        """Keep what was just read."""
        with self._lock:
            self._runs.append(_Kept(owner, run))
            self._bytes += run.size + _OVERHEAD
            while self._bytes > self._most_bytes or len(self._runs) > MOST_RUNS:
                self._bytes -= self._runs.popleft().run.size + _OVERHEAD

    def runs_of(self, owner: Hashable) -> list[ReadRun]:
        """What was just read of an owner's, the last first."""
        with self._lock:
            return [run for whose, run in reversed(self._runs) if whose == owner]

    def forget(self, owner: Hashable) -> None:
        """Drop what is an owner's."""
        with self._lock:
            readers = [reader for reader, whose in self._readers.items() if whose == owner]
            for reader in readers:
                del self._readers[reader]
            self._runs = deque(each for each in self._runs if each.owner != owner)
            self._bytes = sum(each.run.size + _OVERHEAD for each in self._runs)
        for reader in readers:
            reader.close()
