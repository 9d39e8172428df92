"""`EntrySource` straight from bookies: every stored entry, in order, so that no gap can arise."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

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
from offloader.model import EntryRange, Gap, LedgerList, LedgerSpan, TopicName
from offloader.ports.entry_source import Extent, RawEntry


class BookKeeperSource:
    """One per process; connections are shared by its readers. It reads plainly: no request of it can fence a ledger."""

    def __init__(self, ledgers: LedgerMetadataStore, bookies: Bookies) -> None:
        self._ledgers = ledgers
        self._bookies = bookies
        self._slowness = Slowness()
        self._known: dict[int, LedgerMetadata] | None = None

    def remembering(self) -> BookKeeperSource:
        """The same for somebody who reads many short stretches: where a ledger is, is asked once. Needs no closing of
        its own.

        What is remembered may be old. Nothing wrong is read by that: entries are where they were, or their bookies deny
        them, and then it is asked again.
        """
        same = BookKeeperSource(self._ledgers, self._bookies)
        same._slowness = self._slowness
        same._known = {}
        return same

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> BookKeeperReader:

        def open_ledger(ledger: int, metadata: LedgerMetadata, first: int, last: int) -> LedgerReader:
            return LedgerReader(
                self._bookies, ledger, metadata, first, last, max_bytes=max_bytes, slowness=self._slowness
            )

        extent = extent or _closed_ledgers(self._ledgers, topic)
        known = {} if self._known is None else self._known
        return BookKeeperReader(self._ledgers, open_ledger, topic, (ledger, entry), extent, known)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Explains nothing, as nothing is missing."""
        del topic, limit
        return (), missing.first

    def close(self) -> None:
        """End the connections."""
        self._bookies.close()
        self._ledgers.close()


class BookKeeperReader:
    """An `EntryReader` that goes on from ledger to ledger in the topic's list, up to the extent's last entry."""

    def __init__(
        self,
        ledgers: LedgerMetadataStore,
        open_ledger: Callable[[int, LedgerMetadata, int, int], LedgerReader],
        topic: TopicName,
        start: tuple[int, int],
        extent: Extent,
        known: dict[int, LedgerMetadata],
    ) -> None:
        self._ledgers = ledgers
        self._open_ledger = open_ledger
        self._topic = topic
        self._extent = extent
        self._known = known
        self._following = deque(s.ledger for s in extent.ledgers.spans if start[0] <= s.ledger <= extent.last[0])
        self._first = start
        self._ledger = -1
        self._metadata: LedgerMetadata | None = None
        self._reader: LedgerReader | None = None
        self._closed = threading.Event()

    def read(self, timeout: float) -> list[RawEntry]:
        """See `EntryReader.read`. Also raises DataLostError for a ledger that was deleted meanwhile."""
        while self._reader is None or self._reader.finished:
            if not self._following:
                self._closed.wait(timeout)
                return []
            self._turn(self._following.popleft())
        try:
            return self._reader.read(timeout)
        except (EntryNotFoundError, LedgerNotFoundError, BookieUnavailableError) as error:
            self._look_again(self._reader.position, error)
            return []

    def close(self) -> None:
        self._closed.set()
        self._let_go()

    def _turn(self, ledger: int) -> None:
        """Begin with this ledger."""
        self._let_go()
        self._ledger = ledger
        known = self._known.get(ledger)
        self._metadata = self._described() if known is None or not self._tells_end(known) else known
        first = max(self._first[1], 0) if ledger == self._first[0] else 0
        self._reader = self._open_ledger(ledger, self._metadata, first, self._last_entry(self._metadata))

    def _last_entry(self, metadata: LedgerMetadata) -> int:
        """The last entry of this ledger that may be read, -1: none. Nothing follows a ledger whose end nobody knows."""
        end = self._end()
        if end is None and metadata.closed:
            end = metadata.last_entry
        if end is None:
            self._following.clear()
            return -1
        if metadata.closed and end > metadata.last_entry:
            raise IntegrityError(
                f"{self._topic}: entry {self._ledger}:{end} was confirmed, but BookKeeper closed the ledger with "
                f"{metadata.last_entry}: entries were cut off; `offloader ledgers inspect {self._ledger}` shows what "
                "its bookies hold"
            )
        return end

    def _end(self) -> int | None:
        """The last entry of this ledger that may be read, as far as the extent tells."""
        last_ledger, last = self._extent.last
        return last if self._ledger == last_ledger else self._extent.ledgers.closed_with(self._ledger)

    def _tells_end(self, metadata: LedgerMetadata) -> bool:
        return metadata.closed or self._end() is not None

    def _look_again(self, entry: int, error: OffloadError) -> None:
        """Bookies do not give an entry that was confirmed. Where it is on others by now, read on from there; where all
        deny it, it is lost."""
        before, self._metadata = self._metadata, self._described()
        if before is None or before.fragments == self._metadata.fragments:
            if isinstance(error, BookieUnavailableError):
                raise error
            raise IntegrityError(
                f"{self._topic}: entry {self._ledger}:{entry} was confirmed, and its bookies do not have it ({error}); "
                f"`offloader ledgers inspect {self._ledger}` shows what they hold"
            ) from error
        self._let_go()
        self._reader = self._open_ledger(self._ledger, self._metadata, entry, self._last_entry(self._metadata))

    def _described(self) -> LedgerMetadata:
        try:
            found = self._ledgers.read(self._ledger).metadata
        except LedgerNotFoundError as error:
            raise DataLostError(
                f"{self._topic}: ledger {self._ledger} is gone from BookKeeper before it was offloaded"
            ) from error
        self._known[self._ledger] = found
        return found

    def _let_go(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _closed_ledgers(ledgers: LedgerMetadataStore, topic: TopicName) -> Extent:
    """Without a broker that says how far an open ledger may be read."""
    listed = ledgers.managed_ledger(topic).ledgers
    spans = tuple(LedgerSpan(x.ledger, x.entries - 1 if x.entries else None) for x in listed)
    return Extent(LedgerList(spans), (max((x.ledger for x in listed), default=-1) + 1, -1))
