"""The archive's implementation of `TopicEntries`: what segments and ledgers have, up to the last sealed one. Also how
single entries are found, and how a reader gets its first ones early."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from offloader.archive.items import EntryRun, ReadItem
from offloader.archive.object_range import ObjectRange, PlanItem, SplitPoint
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.plan import plan, split
from offloader.archive.reading.reader import OnDamage, PlannedReader, ReadOptions
from offloader.archive.records import TopicRecords
from offloader.archive.selection import Selection
from offloader.errors import DamagedRecordError, ObjectNotFoundError
from offloader.gateway.entries.delivered import ReadRun, deliverable, time_of, with_sticky
from offloader.gateway.entries.missing import OnMissing, Passing
from offloader.gateway.entries.reader import KeptReaders, TopicReader
from offloader.gateway.entries.topic import ServedTopic
from offloader.gateway.topic_entries import DeletedSegment
from offloader.gateway.values import BEFORE_ALL, ServedEnd, ServedEntries, ServedEntry
from offloader.metadata.deletions import DeletedRange, SegmentRange
from offloader.model import KIB, MIB, EntryRange, Place, Position, TopicName

TERMINATED_FOR = 60.0  # seconds for which it is believed that a topic was terminated, or not
NOTHING = ServedEntries((), None)
OPTIONS = ReadOptions(read_size=5 * MIB)  # a part is a little longer than 8 MiB: two requests, not three
LEAD = 256 * KIB  # bytes that a reader gets early
STEP_BACK = 4 * MIB  # what is read at a time where reading goes back
AT_ONCE = 64  # so many entries are read together, where a time is looked for
T = TypeVar("T")

ReadItems = Callable[[Iterable[PlanItem]], Iterator[ReadItem]]
Delivered = Callable[[EntryRun], list[ServedEntry]]


class ArchivedTopicEntries:
    """See the port `TopicEntries`. As of the last `refresh`; the first look is taken when it is made.

    Args:
        kept: readers and what they have read, of all topics of a server.
        on_missing: what a loss, a deletion or damage does to those who read on to it.
        options: how it is read; `on_damage` follows from `on_missing`.
        is_terminated: whether the topic was terminated, so that nothing will ever follow. The archive does not know it.
            It is asked where the topic has grown, and else not more than once in `TERMINATED_FOR`.

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
        options: ReadOptions = OPTIONS,
        is_terminated: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._archive = archive
        self._kept = kept
        self._options = replace(options, on_damage=OnDamage(on_missing.value))
        self._is_terminated = is_terminated
        self._clock = clock
        self._terminated: tuple[bool, float] | None = None  # and when it was asked for
        self._passing = Passing(name, on_missing)
        self._changing = threading.Lock()
        self._closed = False
        self._topic = ServedTopic.of(self._records())
        self._told = self._topic.served.last  # what `refresh` has said last
        self._last: tuple[ServedTopic, ServedEntry | None] | None = None

    @property
    def passed_over(self) -> int:
        """How often a range was passed over that is missing and was a message, or may have been one."""
        return self._passing.ranges

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ServedEntries:
        return self._as_planned(lambda topic: self._read(topic, after, most_entries, most_bytes, sticky=sticky))

    def again(self, places: Sequence[Place], *, sticky: bool = False) -> list[ServedEntry]:
        found = self._just_read(places)
        left = [place for place in places if place not in found]
        found |= {entry.place: entry for entry in self._as_planned(lambda topic: list(self._look(topic).of(left)))}
        wanted = [entry for place in sorted(set(places)) if (entry := found.get(place)) is not None]
        return [with_sticky(entry) if sticky else entry for entry in wanted]

    def end(self) -> ServedEnd:
        topic, known = self._topic, self._last
        if known is None or known[0] is not topic:
            known = topic, self._as_planned(lambda topic: self._look(topic).last())
            self._last = known
        last = known[1]
        return ServedEnd(None if last is None else last.place, last.messages if last else 0, self._ends())

    def refresh(self) -> bool:
        self._look_anew()
        with self._changing:
            before, self._told = self._told, self._topic.served.last
            if self._told != before:
                self._terminated = None
            return self._told != before

    def before_time(self, published_ms: int) -> Place:
        return self._as_planned(lambda topic: last_before(published_ms, self._look(topic), topic.ledgers()))

    def previous(self, place: Place) -> Place:
        ledgers = self._topic.ledgers()
        number = bisect_left(ledgers, place[0], key=lambda each: each[1])
        if number < len(ledgers) and ledgers[number][1] == place[0] and place[1] > 0:
            return place[0], min(place[1] - 1, ledgers[number][2])
        return ledgers[number - 1][1:] if number else BEFORE_ALL

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        return self._topic.ledgers()

    def missing_behind(self, after: Place) -> str | None:
        """In words the first thing that a reader behind this place will miss, from records alone; None: they say of
        nothing that it is missing. What retention has deleted at the begin is no loss for who starts at the begin."""
        found = self._topic.missing_behind(after) if self._passing.fails else None
        return None if found is None else self._passing.sentence(found.missing)

    def deletions(self) -> Sequence[DeletedRange]:
        return self._topic.deletions()

    def absent_for_now(self) -> Sequence[SegmentRange]:
        topic = self._topic
        return (*topic.being_deleted(), *(topic.unreadable() if self._passing.fails else ()))

    def deleted_behind(self, position: Position) -> Sequence[DeletedSegment]:
        return self._topic.deleted_behind(position)

    def close(self) -> None:
        """Give up what was read ahead. Calls that are under way end as ever."""
        self._closed = True
        self._kept.forget(self._topic.key)

    def _ends(self) -> bool:
        """Whoever acknowledges the last entry asks, and that may be every second."""
        known, now = self._terminated, self._clock()
        if known is None or now - known[1] >= TERMINATED_FOR:
            known = self._terminated = self._is_terminated(), now
        return known[0]

    def _look_anew(self) -> None:
        topic = self._topic
        records = self._records()
        if records.head == topic.records.head and records.last_position == topic.records.last_position:
            return
        later = topic.followed_by(records)
        with self._changing:
            if self._topic is topic:  # else somebody else has looked meanwhile
                self._topic = later
        if self._topic.key is not topic.key:
            self._kept.forget(topic.key)

    def _records(self) -> TopicRecords:
        records = self._archive.records(self.name)
        if not self._archive.has(records):
            raise self._archive.unknown(self.name, f" {self._archive.store.url}")
        return records

    def _read(
        self, topic: ServedTopic, after: Place, most_entries: int, most_bytes: int, *, sticky: bool
    ) -> ServedEntries:
        reader = self._kept.take(topic.key, after, sticky=sticky)
        found = NOTHING if reader is None else reader.read(most_entries, most_bytes)
        if reader is None or found.covered is None:  # one from before a refresh ends where the topic did
            reader = self._opened(topic, after, sticky=sticky)
            found = reader.read(most_entries, most_bytes)
        if not reader.is_over:
            self._kept.park(topic.key, reader)
        if self._closed or self._topic.key is not topic.key:
            self._kept.forget(topic.key)
        return found

    def _opened(self, topic: ServedTopic, after: Place, *, sticky: bool) -> TopicReader:
        def decoded(run: EntryRun) -> ReadRun:
            found = deliverable(run, topic.aborted, sticky=sticky)
            self._kept.remember(topic.key, found)
            return found

        def items() -> Generator[ReadItem]:
            yield from PlannedReader(self._archive.stores, self._options).read(with_lead(topic.plan(after)))

        at_begin = topic.served.is_at_begin(after)
        return TopicReader(after, items(), decoded, self._passing, at_begin=at_begin, sticky=sticky)

    def _just_read(self, places: Sequence[Place]) -> dict[Place, ServedEntry | None]:
        """Those that are still in memory; None: no consumer gets it."""
        runs, found = self._kept.runs_of(self._topic.key), dict[Place, ServedEntry | None]()
        run: ReadRun | None = None
        for place in places:
            if run is None or not run.holds(place):  # mostly they are neighbours
                run = next((each for each in runs if each.holds(place)), None)
            if run is not None:
                found[place] = run.find(place)
        return found

    def _look(self, topic: ServedTopic) -> EntryLookup:
        options = replace(self._options, prefetch=0)

        def read(items: Iterable[PlanItem]) -> Iterator[ReadItem]:
            return PlannedReader(self._archive.stores, options).read(items)

        return EntryLookup(topic, read, lambda run: deliverable(run, topic.aborted, sticky=False).entries())

    def _as_planned(self, work: Callable[[ServedTopic], T]) -> T:
        """With the topic as it was last seen; once more with a new look where what that names is not there any more."""
        topic = self._topic
        try:
            return work(topic)
        except (ObjectNotFoundError, DamagedRecordError):  # all of which a newer look may explain
            self._look_anew()
            if self._topic is topic:
                raise
        return work(self._topic)


class EntryLookup:
    """Looks at single entries of a topic. `read`: what was planned. `delivered`: what consumers get of a run. Raises
    what `read` raises."""

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


def last_before(published_ms: int, look: EntryLookup, ledgers: Sequence[tuple[int, int, int]]) -> Place:
    """The place of the last entry that is older than a time; BEFORE_ALL: none is. `ledgers`: see the port.

    It is found by bisection as brokers do: times of a topic's entries mostly grow. Where they do not (times are
    producers' clocks where no broker's is stored), what is found is older, and what follows it is not; brokers promise
    no more (`PersistentMessageFinder`)."""

    def is_older(entry: ServedEntry | None) -> bool:
        said = None if entry is None else time_of(entry)
        return said is not None and said < published_ms  # as brokers do it: what cannot be read is not older

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


def with_lead(items: Iterable[PlanItem], size: int = LEAD) -> Iterator[PlanItem]:
    """The plan, in which about the first `size` bytes are a range of their own: these entries are proven by their own
    checksums, so that nobody waits for all of their part. It is still read whole, and checked, before what follows
    them."""
    left = iter(items)
    for item in left:
        if isinstance(item, ObjectRange) and item.split_points:
            yield from _led(item, size)
            break
        yield item
    yield from left


def _led(item: ObjectRange, size: int) -> Iterator[ObjectRange]:
    first, part = next(run for run in item.runs if run.gap is None), item.split_points[0]
    count = min(part.entry + 1, first.after) - first.first if part.ledger == first.ledger else first.span
    few = max(count * size // max(part.size, 1), 1)
    if few >= count:
        yield item
        return
    behind = first.ledger, first.first + few
    before = tuple(run for each in item.runs if (run := each.between(after=behind)))
    after = tuple(run for each in item.runs if (run := each.between(behind)))
    lead = SplitPoint(first.ledger, first.first + few - 1, size)
    yield replace(item, runs=before, split_points=(lead,), ends_object=False)
    yield replace(item, runs=after)
