"""What is kept between calls, of all topics, within bounds: readers where they stand, and what they have just read."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import NamedTuple

from offloader.gateway.entries.read_run import ReadRun
from offloader.gateway.entries.reader import TopicReader
from offloader.model import MIB, Place

MOST_RUNS = 1_000
_OVERHEAD = 4_096  # bytes of a run beside its data; small ones are mostly that


class _Kept(NamedTuple):
    owner: Hashable
    run: ReadRun


class KeptReaders:
    """Threads may share it. A reader is in nobody's hands while it is in here: no lock is held while one reads.

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
