"""Reads a topic's archive, then the live topic, for ever: each entry once, in order, none passed over in silence."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate

from offloader.archive.following.live import Live
from offloader.archive.items import EntryRun, Missing, ReadItem
from offloader.archive.records import TopicRecords
from offloader.errors import DataLostError, RetryableError, UnexplainedGapError
from offloader.metadata.state import CatalogHead
from offloader.model import MIB, EntryRange, Gap, LedgerList, Position, Silence, TopicName, Turn, Walk, unbroken
from offloader.ports.admin import Admin
from offloader.ports.entry_source import EntrySource, RawEntry

READ_SECONDS = 0.5
PAUSE_SECONDS = 1.0
LOOK_SECONDS = 5.0  # after so long a silence, what comes next may be archived and trimmed: only a look at both tells
READER_BYTES = 16 * MIB
MAX_LOOKUPS = 10_000


class NextStep(Enum):
    """What to do besides reading on."""

    ARCHIVE = auto()  # the archive holds what comes next
    WAIT = auto()  # nothing says yet what comes next
    LOST = auto()  # neither the archive nor Pulsar has it


RunsAfter = Callable[[TopicRecords, Position | None], Iterator[ReadItem]]
"""What the archive has after a position, by these records."""


@dataclass(frozen=True)
class Following:
    """How topics of an archive are followed. `current`: a topic's records as they are now. `at_first`: with the
    ledgers, too, that stock brokers have offloaded, which come before what is streamed: looked for once."""

    live: Live
    current: Callable[[TopicName], TopicRecords]
    at_first: Callable[[TopicName], TopicRecords]

    def runs(self, topic: TopicName, runs_after: RunsAfter, after: Position | None) -> Iterator[ReadItem]:
        """Everything after a position. Raises as Follower does."""
        with self.live.connect() as (source, admin):
            yield from Follower(topic, self, runs_after, source, admin).runs(after)


class Follower:
    """One topic, read by one thread."""

    def __init__(
        self, topic: TopicName, following: Following, runs_after: RunsAfter, source: EntrySource, admin: Admin
    ) -> None:
        self._topic = topic
        self._current = following.current
        self._read_next = following.at_first
        self._runs_after = runs_after
        self._source = source
        self._admin = admin
        self._limits = following.live.limits
        self._clock = following.live.clock
        self._pause = following.live.pause
        self._after: Position | None = None
        self._ledgers = LedgerList(())
        self._silence = Silence.begin(LOOK_SECONDS, self._clock())
        self._well = self._clock()

    def runs(self, after: Position | None = None) -> Iterator[ReadItem]:
        """Everything after a position (None: from the archive's begin), of the live topic whatever is there at a time.

        Raises DataLostError where neither archive nor Pulsar has what comes next, UnexplainedGapError, IntegrityError,
        and RetryableError once `trouble` has lasted too long.
        """
        self._after = after
        self._well = self._clock()
        self._silence = self._silence.broken(self._well)
        while not self._idle():
            try:
                yield from self._round()
                self._well = self._clock()
            except RetryableError:
                if self._clock() - self._well >= self._limits.trouble:
                    raise
                self._pause(PAUSE_SECONDS)

    def _round(self) -> Iterator[ReadItem]:
        """The archive as it is now, then Pulsar until that takes us back."""
        for item in self._runs_after(self._read_next(self._topic), self._after):
            yield self._accounted(item)
        self._read_next = self._current
        expected = self._expected()
        if isinstance(expected, Position):
            yield from self._live(expected)
        elif expected is NextStep.WAIT:
            self._pause(PAUSE_SECONDS)
        elif expected is NextStep.LOST:
            raise DataLostError(
                f"{self._topic}: what follows {self._after} is in no segment, and Pulsar has no such ledger (any more)"
            )

    def _live(self, start: Position) -> Iterator[ReadItem]:
        reader = self._source.open(self._topic, start.ledger, start.entry, max_bytes=READER_BYTES)
        self._silence = self._silence.looked_into(self._clock())
        with closing(reader):
            while not self._idle():
                entries = reader.read(READ_SECONDS)
                if not entries and self._silence.too_long(self._clock()):
                    self._silence = self._silence.looked_into(self._clock())
                    if isinstance(self._expected(), NextStep):
                        return
                for run in _runs(start.incarnation, entries):
                    expected: Position | NextStep = run.start
                    if self._after is None or run.start != self._after.next_entry:
                        expected = yield from self._bridged(run.start)
                    if isinstance(expected, NextStep):
                        return
                    if (rest := run.since(expected)) is not None:
                        yield self._accounted(rest)
                self._well = self._clock()

    def _bridged(self, found: Position) -> Generator[ReadItem, None, Position | NextStep]:
        """Account for what lies before a position. Returns what is expected then, or what to do instead."""
        while True:
            expected = self._expected()
            if isinstance(expected, NextStep):
                return expected
            turn = Walk(self._ledgers, expected).turn_of(found.place)
            if turn is Turn.UNKNOWN:
                return NextStep.WAIT
            if not isinstance(turn, EntryRange):
                return expected
            for gap in self._explained(turn):
                start, end = expected.at(gap.first), expected.at(gap.last)
                yield self._accounted(Missing(start, end, f"a gap: {gap.kind}", gap.kind))

    def _expected(self) -> Position | NextStep:
        info = self._admin.topic_info(self._topic)  # first: what a later look misses there is in the catalog by then
        catalog = self._current(self._topic).head
        if not catalog.is_of(info.created, info.ledgers):
            raise DataLostError(f"{self._topic} was deleted and created again; the archive is of the former one")
        self._ledgers = info.ledgers
        return next_position(self._after, catalog, info.ledgers)

    def _explained(self, hole: EntryRange) -> tuple[Gap, ...]:
        gaps, unexplained = self._source.explain(self._topic, hole, limit=MAX_LOOKUPS)
        if not gaps:
            raise UnexplainedGapError(
                f"{self._topic}: entries {hole.ledger}:{unexplained} to {hole.last} were not delivered and nothing "
                "says why"
            )
        return gaps

    def _accounted(self, item: ReadItem) -> ReadItem:
        self._after = item.end
        self._silence = self._silence.broken(self._clock())
        return item

    def _idle(self) -> bool:
        return self._limits.idle is not None and self._silence.lasted(self._clock()) >= self._limits.idle


def _runs(incarnation: int, entries: list[RawEntry]) -> Iterator[EntryRun]:
    """Entries as they were delivered, those that follow each other in their ledger together."""
    first = 0
    while first < len(entries):
        together = entries[first : first + unbroken(entries, first)]
        ends = list(accumulate(len(raw.data) for raw in together))
        bounds = [bound for pair in zip([0, *ends[:-1]], ends, strict=True) for bound in pair]
        data = together[0].data if len(together) == 1 else b"".join(raw.data for raw in together)
        yield EntryRun(together[0].ledger, together[0].entry, incarnation, memoryview(data), bounds, 0)
        first += len(together)


def next_position(after: Position | None, catalog: CatalogHead, ledgers: LedgerList) -> Position | NextStep:
    """The position to read next from Pulsar, whose ledgers are `ledgers` now; `after` is the last one accounted for.

    None: where the topic's claim begins, or with the first ledger there is.
    """
    if catalog.end is not None and (after is None or catalog.end > after):
        return NextStep.ARCHIVE
    if after is None:
        begin = Position(0, -1, 0) if catalog.claim is None else catalog.claim.begin
        if begin.ledger in ledgers:
            return begin
        # A ledger that nothing was written to vanishes when its topic is unloaded.
        first = ledgers.next_ledger(begin.ledger)
        return NextStep.WAIT if first is None else Position(begin.incarnation, first, 0)
    if after.ledger not in ledgers:
        if catalog.closed_with(*after[:2]) != after.entry:
            return NextStep.LOST
        following = ledgers.next_ledger(after.ledger)
        return NextStep.WAIT if following is None else Position(after.incarnation, following, 0)
    return ledgers.successor(after) or NextStep.WAIT
