"""A broker's entries, and between them, from bookies, those that it keeps back: of aborted and open transactions,
markers, filtered ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from offloader.model import EntryRange, Gap, Position, Silence, TopicName, Turn, Walk
from offloader.model.walk import QUIET_SECONDS
from offloader.ports.entry_source import EntryReader, EntrySource, Extent, RawEntry

# A share of what a reader may hold: gaps are short. The rest counts twice: while a gap is filled, what the broker's
# reader has given is held here, and it takes as much again.
FILLER_SHARE = 4


class StoredSource(EntrySource, Protocol):
    """What is filled from: a `BookKeeperSource`."""

    def cached(self) -> EntrySource: ...


class FilledSource:
    """An `EntrySource` whose readers leave nothing out. Does not close the two that it is made of."""

    def __init__(self, broker: EntrySource, bookies: StoredSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._bookies = bookies
        self._clock = clock

    def open(
        self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None
    ) -> EntryReader:
        """See `EntrySource.open`. Without an extent nobody knows what is missing."""
        if extent is None:
            return self._broker.open(topic, ledger, entry, max_bytes=max_bytes)
        filler, bookies = max_bytes // FILLER_SHARE, self._bookies.cached()

        def fill(first: Position, last: tuple[int, int]) -> EntryReader:
            return bookies.open(topic, first.ledger, first.entry, max_bytes=filler, extent=Extent(extent.ledgers, last))

        reader = self._broker.open(topic, ledger, entry, max_bytes=(max_bytes - filler) // 2, extent=extent)
        return FilledReader(reader, fill, Position(0, ledger, entry), extent, self._clock)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Explains nothing, as nothing is missing."""
        del topic, limit
        return (), missing.first


class FilledReader:
    """An `EntryReader` around a broker's. `fill` opens a reader of everything that is stored between two positions.

    It compares each delivered entry with the next expected one, and fills what is between. After a second of silence it
    reads the rest of the extent from bookies, and drops what the broker delivers of that later.
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
        self._clock = clock
        self._walk = Walk(extent.ledgers, start, extent.last)
        self._last = extent.last
        self._filler: EntryReader | None = None
        self._filling = self._walk  # up to where the filler goes
        self._held: list[RawEntry] = []  # delivered, and behind what is being filled
        self._silence = Silence.begin(QUIET_SECONDS, clock())

    def read(self, timeout: float) -> list[RawEntry]:
        if self._filler is not None:
            return self._passed_on(self._from_filler(timeout))
        if self._held:
            entries, self._held = self._held, []
        else:
            entries = self._broker.read(timeout)
        if not entries:
            self._mind_silence()
            return []
        self._silence = self._silence.broken(self._clock())
        return self._passed_on(self._up_to_gap(entries))

    def close(self) -> None:
        self._end_filling()
        self._broker.close()

    def _up_to_gap(self, entries: list[RawEntry]) -> list[RawEntry]:
        """The entries that continue what was passed on; those behind a gap are held while it is filled."""
        walk, number = self._walk, 0
        following: list[RawEntry] = []
        while number < len(entries):
            count = walk.in_turn(entries, number)
            if count:
                following += entries[number : number + count]
                number += count
                walk = walk.reached(following[-1].entry)
                continue
            ledger, entry, _ = entries[number]
            turn = walk.turn_of((ledger, entry))
            if isinstance(turn, EntryRange) and not walk.done:
                self._held = entries[number:]
                self._fill_up(walk, (ledger, entry - 1))
                return following
            if turn is not Turn.SEEN:  # nothing says what is missing before it, or that is not wanted
                break
            number += 1
        return following + entries[number:]

    def _passed_on(self, entries: list[RawEntry]) -> list[RawEntry]:
        if entries:
            self._walk = self._walk.behind(_position(entries[-1]))
        return entries

    def _mind_silence(self) -> None:
        if self._silence.too_long(self._clock()) and not self._walk.done:
            self._fill_up(self._walk, self._last)

    def _fill_up(self, walk: Walk, last: tuple[int, int]) -> None:
        assert walk.expected is not None
        self._filling = replace(walk, bound=min(last, self._last))
        self._filler = self._fill(walk.expected, min(last, self._last))

    def _from_filler(self, timeout: float) -> list[RawEntry]:
        assert self._filler is not None
        entries = self._filler.read(timeout)
        self._silence = self._silence.broken(self._clock())
        if entries and self._filling.behind(_position(entries[-1])).done:
            self._end_filling()
        return entries

    def _end_filling(self) -> None:
        filler, self._filler = self._filler, None
        if filler is not None:
            filler.close()


def _position(entry: RawEntry) -> Position:
    return Position(0, entry.ledger, entry.entry)
