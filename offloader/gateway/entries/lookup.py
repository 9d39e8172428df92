"""Looks at single entries of a topic: its last one, the first one at or behind a place, the last one before a time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from offloader.archive.items import EntryRun, ReadItem
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.plan import plan, split
from offloader.archive.selection import Selection
from offloader.gateway.entries.delivered import time_of
from offloader.gateway.entries.topic import ServedTopic
from offloader.gateway.values import BEFORE_ALL, ServedEntry
from offloader.model import MIB, EntryRange, Place, Position

STEP_BACK = 4 * MIB  # what is read at a time where reading goes back

ReadItems = Callable[[Iterable[PlanItem]], Iterator[ReadItem]]
Delivered = Callable[[EntryRun], list[ServedEntry]]


class EntryLookup:
    """`read`: what was planned. `delivered`: what consumers get of a run. Raises what `read` raises."""

    def __init__(self, topic: ServedTopic, read: ReadItems, delivered: Delivered) -> None:
        self._topic = topic
        self._read = read
        self._delivered = delivered

    def last(self) -> ServedEntry | None:
        """The last entry that consumers get."""
        for snapshot, wanted in self._topic.records.before():
            items = (item for item in plan(snapshot, wanted) if self._topic.served.has(item.end))
            for task in reversed(split(items, STEP_BACK)):
                for run in reversed(list(self._runs(task))):
                    if found := self._delivered(run):
                        return found[-1]
        return None

    def first(self, start: Place) -> ServedEntry | None:
        """The first entry that consumers get at a place or behind it. Mostly two requests."""
        after = (start[0], start[1] - 1)
        position = self._first_stored(after)
        if position is None:
            return None
        alone = self._between(position, position)
        if alone:
            return alone[0]
        runs = self._runs(self._topic.plan(position.place))
        return next((found[0] for run in runs if (found := self._delivered(run))), None)

    def of(self, places: Iterable[Place]) -> Iterator[ServedEntry]:
        """What consumers get of these places, in order. Neighbours are read together."""
        for run in _neighbours(places):
            yield from self.between((run.ledger, run.first), (run.ledger, run.last))

    def between(self, first: Place, last: Place) -> list[ServedEntry]:
        """The entries that consumers get between two places of one ledger, both included."""
        served = self._topic.served
        if served.first is None:
            return []
        start = served.position(first)
        return self._between(start, start.at(last[1]))

    def _between(self, first: Position, last: Position) -> list[ServedEntry]:
        items = self._topic.records.plan(Selection(first, last))
        return [entry for run in self._runs(items) for entry in self._delivered(run)]

    def _first_stored(self, after: Place) -> Position | None:
        """The position of the first entry behind a place that is stored, whatever it is."""
        stored = (item for item in self._topic.plan(after) if isinstance(item, ObjectRange))
        return next((item.start_of(run) for item in stored for run in item.runs if run.gap is None), None)

    def _runs(self, items: Iterable[PlanItem]) -> Iterator[EntryRun]:
        return (item for item in self._read(items) if isinstance(item, EntryRun))


def _neighbours(places: Iterable[Place]) -> Iterator[EntryRange]:
    """Places of one ledger that follow each other, together; in order."""
    run: EntryRange | None = None
    for ledger, entry in sorted(set(places)):
        if run is not None and run.ledger == ledger and entry == run.after:
            run = EntryRange(ledger, run.first, entry + 1)
            continue
        if run is not None:
            yield run
        run = EntryRange(ledger, entry, entry + 1)
    if run is not None:
        yield run


AT_ONCE = 64  # so many entries are read together


def last_before(time: int, look: EntryLookup, ledgers: Sequence[tuple[int, int, int]]) -> Place:
    """The place of the last entry that is older than a time; BEFORE_ALL: none is. `ledgers`: see the port.

    It is found by bisection as brokers do: times of a topic's entries mostly grow. Where they do not (times are
    producers' clocks where no broker's is stored), what is found is older, and what follows it is not; brokers promise
    no more (`PersistentMessageFinder`)."""

    def is_older(entry: ServedEntry | None) -> bool:
        said = None if entry is None else time_of(entry)
        return said is not None and said < time  # as brokers do it: what cannot be read is not older

    older = bisect_left(ledgers, True, key=lambda each: not is_older(look.first((each[1], 0))))
    if older == 0:
        return BEFORE_ALL
    _, ledger, last = ledgers[older - 1]
    first = _narrowed(last, lambda entry: is_older(look.first((ledger, entry))))
    found = BEFORE_ALL
    for entry in look.between((ledger, first), (ledger, min(first + AT_ONCE, last))):
        if not is_older(entry):
            break
        found = entry.place
    return found


def _narrowed(last: int, is_older_at: Callable[[int], bool]) -> int:
    """An entry id at which it is still older, and `AT_ONCE` behind which it is not, or the ledger ends."""
    first, after = 0, last + 1
    while after - first > AT_ONCE:
        middle = (first + after) // 2
        if is_older_at(middle):
            first = middle
        else:
            after = middle
    return first
