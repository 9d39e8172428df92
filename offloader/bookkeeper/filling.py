"""A broker's entries, and between them from bookies what it keeps back: aborted and open transactions, markers, filtered entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from offloader.model import Gap, Position, TopicName
from offloader.ports.entry_source import EntryReader, EntrySource, Extent, RawEntry

QUIET = 1.0  # seconds; a broker that is silent for so long may be before entries that it does not deliver
# A share of what a reader may hold: gaps are short. The rest counts twice: while a gap is filled, what the broker's reader has given is
# held here, and it takes as much again.
FILLER_SHARE = 4


class StoredSource(EntrySource, Protocol):
    """Bookies."""

    def remembering(self) -> EntrySource:
        """See `BookKeeperSource.remembering`."""
        ...


class FilledSource:
    """`EntrySource` whose readers leave nothing out. Does not close the two that it is made of."""

    def __init__(self, broker: EntrySource, stored: StoredSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._stored = stored
        self._clock = clock

    def open(self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None) -> EntryReader:
        """See `EntrySource.open`. Without an extent nobody knows what is missing."""
        if extent is None:
            return self._broker.open(topic, ledger, entry, max_bytes=max_bytes)
        filler, stored = max_bytes // FILLER_SHARE, self._stored.remembering()

        def fill(first: Position, last: tuple[int, int]) -> EntryReader:
            return stored.open(topic, first.ledger, first.entry, max_bytes=filler, extent=Extent(extent.ledgers, last))

        reader = self._broker.open(topic, ledger, entry, max_bytes=(max_bytes - filler) // 2, extent=extent)
        return FilledReader(reader, fill, Position(0, ledger, entry), extent, self._clock)

    def explain(
        self,
        topic: TopicName,  # noqa: ARG002
        ledger: int,  # noqa: ARG002
        first: int,
        last: int,  # noqa: ARG002
        *,
        limit: int,  # noqa: ARG002
    ) -> tuple[tuple[Gap, ...], int | None]:
        """See `EntrySource.explain`."""
        return (), first


class FilledReader:
    """An `EntryReader` around a broker's. `fill` opens a reader of everything that is stored from one position to another.

    It compares each delivered entry with the next one that is expected. After a second of silence what is left of the extent is
    read from bookies, and what the broker delivers of it later is dropped.
    """

    def __init__(
        self,
        broker: EntryReader,
        fill: Callable[[Position, tuple[int, int]], EntryReader],
        start: Position,
        extent: Extent,
        clock: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._fill = fill
        self._extent = extent
        self._clock = clock
        self._expected: Position | None = start  # None: where its ledger ends is not known yet
        self._filler: EntryReader | None = None
        self._fill_to = extent.last
        self._held: list[RawEntry] = []  # delivered, and behind what is being filled
        self._heard = clock()

    def read(self, timeout: float) -> list[RawEntry]:
        """See `EntryReader.read`."""
        if self._filler is not None:
            return self._passed_on(self._from_filler(timeout))
        if self._held:
            entries, self._held = self._held, []
        else:
            entries = self._broker.read(timeout)
        if not entries:
            self._mind_silence()
            return []
        self._heard = self._clock()
        return self._passed_on(self._up_to_gap(entries))

    def close(self) -> None:
        """See `EntryReader.close`."""
        self._end_filling()
        self._broker.close()

    def _up_to_gap(self, entries: list[RawEntry]) -> list[RawEntry]:
        """The entries that continue what was passed on; those behind a gap are held while it is filled."""
        expected = self._expected
        if expected is None or _continue(entries, expected):
            return entries
        new = [e for e in entries if (e.ledger, e.entry) >= (expected.ledger, expected.entry)]
        for number, (ledger, entry, _) in enumerate(new):
            if expected is None or not self._may_fill(expected, ledger):
                break
            if (ledger, entry) != (expected.ledger, expected.entry):
                self._held = new[number:]
                self._filler = self._filling(expected, min((ledger, entry - 1), self._extent.last))
                return new[:number]
            expected = self._extent.ledgers.successor(expected)
        return new

    def _may_fill(self, expected: Position, ledger: int) -> bool:
        """Whether it is known what lies between the expected position and the next one delivered, and wanted."""
        known = expected.ledger == ledger or self._extent.ledgers.closed_with(expected.ledger) is not None
        return known and (expected.ledger, expected.entry) <= self._extent.last

    def _passed_on(self, entries: list[RawEntry]) -> list[RawEntry]:
        if entries:
            last = entries[-1]
            self._expected = self._extent.ledgers.successor(Position(0, last.ledger, last.entry))
        return entries

    def _mind_silence(self) -> None:
        expected, last = self._expected, self._extent.last
        silent = self._clock() - self._heard >= QUIET
        if silent and expected is not None and (expected.ledger, expected.entry) <= last:
            self._filler = self._filling(expected, last)

    def _filling(self, first: Position, last: tuple[int, int]) -> EntryReader:
        self._fill_to = last
        return self._fill(first, last)

    def _from_filler(self, timeout: float) -> list[RawEntry]:
        assert self._filler is not None
        entries = self._filler.read(timeout)
        self._heard = self._clock()
        if entries and self._is_last(entries[-1]):
            self._end_filling()
        return entries

    def _is_last(self, entry: RawEntry) -> bool:
        following = self._extent.ledgers.successor(Position(0, entry.ledger, entry.entry))
        return following is None or (following.ledger, following.entry) > self._fill_to

    def _end_filling(self) -> None:
        filler, self._filler = self._filler, None
        if filler is not None:
            filler.close()


def _continue(entries: list[RawEntry], expected: Position) -> bool:
    """Whether these are the expected entry and those after it, without a gap: entries come in order."""
    first, last = entries[0], entries[-1]
    return (
        (first.ledger, first.entry) == (expected.ledger, expected.entry)
        and last.ledger == first.ledger
        and last.entry - first.entry == len(entries) - 1
    )
