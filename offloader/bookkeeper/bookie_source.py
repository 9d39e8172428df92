"""The `EntrySource` that reads bookies: every stored entry, in order, so that no gap can arise."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping

from offloader.bookkeeper.api import Bookies, LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading import LedgerReader, Slowness
from offloader.errors import (
    BookieUnavailableError,
    DataLostError,
    EntryNotFoundError,
    IntegrityError,
    LedgerNotFoundError,
    OffloadError,
)
from offloader.model import EntryRange, Gap, LedgerList, LedgerSpan, TopicName, Walk
from offloader.ports.entry_source import Extent, RawEntry


class BookKeeperSource:
    """One per process; its readers share the connections. It reads plainly: none of its requests can fence a ledger."""

    def __init__(self, ledgers: LedgerMetadataStore, bookies: Bookies) -> None:
        self._ledgers = ledgers
        self._bookies = bookies
        self._slowness = Slowness()
        self._cache: dict[int, LedgerMetadata] | None = None

    def cached(self) -> BookKeeperSource:
        """The same for who reads many short stretches: asks once where a ledger is. Needs no closing of its own.

        What is cached may be old, and does no harm: entries are where they were, or their bookies deny them, and then
        the reader asks again.
        """
        same = BookKeeperSource(self._ledgers, self._bookies)
        same._slowness = self._slowness
        same._cache = {}
        return same

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> BookKeeperReader:
        def open_ledger(entries: EntryRange, metadata: LedgerMetadata) -> LedgerReader:
            return LedgerReader(self._bookies, entries, metadata, max_bytes=max_bytes, slowness=self._slowness)

        extent = extent or self.closed_ledgers(topic)
        cache = {} if self._cache is None else self._cache
        return BookKeeperReader(self._ledgers, open_ledger, topic, (ledger, entry), extent, cache)

    def closed_ledgers(self, topic: TopicName) -> Extent:
        """How far may be read where no broker says how far an open ledger may be."""
        listed = self._ledgers.managed_ledger(topic).ledgers
        spans = tuple(LedgerSpan(x.ledger, x.entries - 1 if x.entries else None) for x in listed)
        return Extent(LedgerList(spans), (max((x.ledger for x in listed), default=-1) + 1, -1))

    def offloaded(self, topic: TopicName) -> Mapping[int, str]:
        """The ledgers of which brokers have completed a copy, and its uuid. Raises as `managed_ledger`."""
        return self._ledgers.managed_ledger(topic).copies

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Explains nothing, as nothing is missing."""
        del topic, limit
        return (), missing.first

    def close(self) -> None:
        """End the connections."""
        self._bookies.close()
        self._ledgers.close()


class BookKeeperReader:
    """An `EntryReader` that goes from ledger to ledger in the topic's list, up to the extent's last entry."""

    def __init__(
        self,
        ledgers: LedgerMetadataStore,
        open_ledger: Callable[[EntryRange, LedgerMetadata], LedgerReader],
        topic: TopicName,
        start: tuple[int, int],
        extent: Extent,
        cache: dict[int, LedgerMetadata],
    ) -> None:
        self._ledgers = ledgers
        self._open_ledger = open_ledger
        self._topic = topic
        self._walk = Walk(extent.ledgers, None, extent.last)
        self._cache = cache
        listed = (s for s in extent.ledgers.spans if s.last != -1)  # of an empty one nothing is read, nor is it missed
        self._following = deque(s.ledger for s in listed if start[0] <= s.ledger <= extent.last[0])
        self._start = start
        self._ledger = -1
        self._metadata: LedgerMetadata | None = None
        self._reader: LedgerReader | None = None
        self._closed = threading.Event()

    @property
    def ledger(self) -> int:
        """The one that is being read, or could not be begun; -1 before the first."""
        return self._ledger

    def read(self, timeout: float) -> list[RawEntry]:
        """See `EntryReader.read`. Also raises DataLostError for a ledger that was deleted meanwhile."""
        while self._reader is None or self._reader.finished:
            if not self._following:
                self._closed.wait(timeout)
                return []
            self._begin(self._following[0])  # stays first where this fails: whoever reads again skips nothing
            if self._following:
                self._following.popleft()
        try:
            return self._reader.read(timeout)
        except (EntryNotFoundError, LedgerNotFoundError, BookieUnavailableError) as error:
            self._read_elsewhere(self._reader.position, error)
            return []

    def close(self) -> None:
        self._closed.set()
        self._close_ledger()

    def _begin(self, ledger: int) -> None:
        self._ledger = ledger
        metadata = self._cache.get(ledger)
        if metadata is None or not (metadata.closed or self._walk.end_of(ledger) is not None):
            metadata = self._read_metadata()  # it may be closed by now
        self._metadata = metadata
        self._open(max(self._start[1], 0) if ledger == self._start[0] else 0, metadata)

    def _open(self, first: int, metadata: LedgerMetadata) -> None:
        reader = self._open_ledger(EntryRange(self._ledger, first, self._end(metadata)), metadata)
        self._close_ledger()
        self._reader = reader

    def _end(self, metadata: LedgerMetadata) -> int:
        """How many entries of this ledger may be read. Nothing follows a ledger whose end nobody knows."""
        end = self._walk.end_of(self._ledger)
        if end is None and metadata.closed:
            end = metadata.last_entry + 1
        if end is None:
            self._following.clear()
            return 0
        if metadata.closed and end > metadata.last_entry + 1:
            raise IntegrityError(
                f"{self._topic}: entry {self._ledger}:{end - 1} was confirmed, but BookKeeper closed the ledger with "
                f"{metadata.last_entry}: entries were cut off; `offloader ledgers inspect {self._ledger}` shows what "
                "its bookies hold"
            )
        return end

    def _read_elsewhere(self, entry: int, error: OffloadError) -> None:
        """Bookies do not give an entry that was confirmed. Read on from others, if it is on others by now; if all deny
        it, it is lost."""
        before, self._metadata = self._metadata, self._read_metadata()
        if before is None or before.fragments == self._metadata.fragments:
            if isinstance(error, BookieUnavailableError):
                raise error
            raise IntegrityError(
                f"{self._topic}: entry {self._ledger}:{entry} was confirmed, and its bookies do not have it ({error}); "
                f"`offloader ledgers inspect {self._ledger}` shows what they hold"
            ) from error
        self._open(entry, self._metadata)

    def _read_metadata(self) -> LedgerMetadata:
        try:
            found = self._ledgers.read(self._ledger).metadata
        except LedgerNotFoundError as error:
            raise DataLostError(
                f"{self._topic}: ledger {self._ledger} is gone from BookKeeper before it was offloaded"
            ) from error
        self._cache[self._ledger] = found
        return found

    def _close_ledger(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
