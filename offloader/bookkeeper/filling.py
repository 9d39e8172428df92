"""A broker's entries, and between them, from bookies, those that it keeps back: of aborted and open transactions,
markers, filtered ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from offloader.errors import DataLostError, NotShownError
from offloader.model import EntryRange, Gap, Position, Silence, TopicName, Turn, Walk
from offloader.model.walk import QUIET_SECONDS
from offloader.ports.entry_source import EntryReader, EntrySource, Extent, RawEntry

# A share of what a reader may hold: gaps are short. The rest counts twice: while a gap is filled, what the broker's
# reader has given is held here, and it takes as much again.
FILLER_SHARE = 4
MOST_GONE = 10_000  # so many ledgers are remembered; one that was forgotten is asked for again

Gone = dict[int, tuple[int, int]]
"""Ledgers that BookKeeper does not have, as brokers have offloaded them; of each, the entries that were explained last:
the first, and the one behind the last."""


class StoredSource(EntrySource, Protocol):
    """What is filled from: a `BookKeeperSource`."""

    def cached(self) -> EntrySource: ...


class FilledSource:
    """An `EntrySource` whose readers leave nothing out. Does not close the two that it is made of."""

    def __init__(self, broker: EntrySource, bookies: StoredSource, clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._bookies = bookies
        self._clock = clock
        self._gone: Gone = {}

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
        if len(self._gone) > MOST_GONE:
            self._gone = {}
        return FilledReader(reader, fill, Position(0, ledger, entry), extent, self._clock, self._gone)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Explains nothing, as nothing is missing, but for ledgers that BookKeeper does not have: those only brokers
        can say something of. Raises DataLostError where these read it from BookKeeper themselves, in vain."""
        gone = self._gone
        if missing.ledger not in gone:
            return (), missing.first
        try:
            gaps, unexplained = self._broker.explain(topic, missing, limit=limit)
        except NotShownError as error:
            why = f"ledger {missing.ledger} is gone from BookKeeper, and nobody has a copy: {error}"
            raise DataLostError(why) from error
        if gaps:
            gone[missing.ledger] = (missing.first, gaps[-1].after)
        return gaps, unexplained


class FilledReader:
    """An `EntryReader` around a broker's. `fill` opens a reader of everything that is stored between two positions.

    It compares each delivered entry with the next expected one, and fills what is between. After a second of silence it
    reads the rest of the extent from bookies, and drops what the broker delivers of that later.

    A ledger that BookKeeper does not have (brokers have offloaded it) is left to the broker: it is waited for, and who
    reads asks brokers why entries are missing. Such ledgers are noted in `gone`.
    """

    def __init__(
        self,
        broker: EntryReader,
        fill: Callable[[Position, tuple[int, int]], EntryReader],
        start: Position,
        extent: Extent,
        clock: Callable[[], float],
        gone: Gone,
    ) -> None:
        self._broker = broker
        self._fill = fill
        self._clock = clock
        self._walk = Walk(extent.ledgers, start, extent.last)
        self._last = extent.last
        self._filler: EntryReader | None = None
        self._filling = self._walk  # where the filler is, and up to where it goes
        self._held: list[RawEntry] = []  # delivered, and behind what is being filled
        self._silence = Silence.begin(QUIET_SECONDS, clock())
        self._explained = gone
        self._gone: set[int] = set()  # as this reader has found it

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
            if isinstance(turn, EntryRange) and not walk.done and turn.ledger in self._gone:
                walk = walk.reached(turn.last)
                continue
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
        if not self._silence.too_long(self._clock()):
            return
        while (at := self._walk.expected) is not None and at.ledger in self._gone:
            first, end = self._explained.get(at.ledger, (0, 0))
            if not first <= at.entry < end:
                return  # a broker that opens what it has offloaded takes its time
            self._walk = self._walk.reached(end - 1)
        if not self._walk.done:
            self._fill_up(self._walk, self._last)

    def _fill_up(self, walk: Walk, last: tuple[int, int]) -> None:
        assert walk.expected is not None
        self._filling = replace(walk, bound=min(last, self._last))
        self._filler = self._fill(walk.expected, min(last, self._last))

    def _from_filler(self, timeout: float) -> list[RawEntry]:
        assert self._filler is not None
        try:
            entries = self._filler.read(timeout)
        except DataLostError:
            at = self._filling.expected
            if at is None or at.ledger in self._gone:
                raise
            self._gone.add(at.ledger)
            self._explained.setdefault(at.ledger, (0, 0))
            self._end_filling()
            return []
        self._silence = self._silence.broken(self._clock())
        if entries:
            self._filling = self._filling.behind(_position(entries[-1]))
            if self._filling.done:
                self._end_filling()
        return entries

    def _end_filling(self) -> None:
        filler, self._filler = self._filler, None
        if filler is not None:
            filler.close()


def _position(entry: RawEntry) -> Position:
    return Position(0, entry.ledger, entry.entry)
