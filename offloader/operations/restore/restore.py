"""Restores one topic: reads the archive, publishes, and goes on after whatever breaks off in between. The numbering of
what was restored is proven by the target."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.reading.plan import plan
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import BrokerUnavailableError, IntegrityError, OffloadError, OutcomeUnknownError, RetryableError
from offloader.metadata.layout import data_key
from offloader.model import Position
from offloader.operations.restore.choice import Choice, Outcomes, outcomes
from offloader.operations.restore.numbering import Numbering, RestoredRun, TargetPlaces
from offloader.operations.restore.ports import RestoreTarget
from offloader.operations.restore.progress import Counts, RateLimiter, RestoreProgress
from offloader.operations.restore.provenance import Skipped
from offloader.operations.restore.tail import Tail

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 10.0  # seconds before the target is tried again
SILENCE = 60.0  # seconds after which a broker that confirms nothing is given up


@dataclass(frozen=True)
class Tools:
    """Times in seconds. `advance` hears of stored bytes. A target may fail for `retry_for` while nothing is stored."""

    now: Callable[[], float]
    sleep: Callable[[float], None]
    advance: Callable[[int], None] = lambda _: None
    retry_for: float = 300.0


class Restore:
    """`feed` gives the archived items after a position; `begin` starts the progress at the target's tail."""

    def __init__(
        self,
        target: RestoreTarget,
        feed: Callable[[Position | None], Iterator[Item]],
        begin: Callable[[Tail], RestoreProgress],
        limiter: RateLimiter,
        tools: Tools,
    ) -> None:
        self._target = target
        self._feed = feed
        self._begin = begin
        self._limiter = limiter
        self._tools = tools
        self._items: Iterator[Item] = iter(())
        self._progress: RestoreProgress | None = None
        self._exhausted = False
        self._archive_failed = False

    def run(self) -> Counts:
        """Until everything is stored. Raises what is not worth another try, or goes on for longer than `retry_for`."""
        pause, since, stored = FIRST_PAUSE, self._tools.now(), -1
        while True:
            try:
                return self._run_once()
            except (RetryableError, OutcomeUnknownError) as error:
                sent = self._progress.counts.sent if self._progress is not None else 0
                if sent > stored:
                    pause, since, stored = FIRST_PAUSE, self._tools.now(), sent
                if self._archive_failed or self._tools.now() - since > self._tools.retry_for:
                    raise
                log.warning("%s; the target is tried again in %s s", error, pause, extra={"see": "target-retried"})
            self._tools.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _run_once(self) -> Counts:
        progress = self._resumed(self._target.attach())
        while self._fill(progress):
            self._hear(progress)
        if self._target.tail() != progress.tail:
            raise IntegrityError(
                "the target does not end with the entry that was confirmed last: delete it and restore it again"
            )
        return progress.counts

    def _resumed(self, tail: Tail) -> RestoreProgress:
        if self._progress is None:
            progress = self._begin(tail)
            self._items = self._feed(tail.position)
            self._progress = progress  # last: without its items it would look finished
        else:
            self._tools.advance(self._progress.resume(tail))
        return self._progress

    def _fill(self, progress: RestoreProgress) -> bool:
        """Send what may go now; whether there is anything left to do."""
        while not progress.full and self._limiter.wait(self._tools.now()) == 0:
            if not progress.waiting and not self._take(progress):
                break
            if progress.waiting:
                entry = progress.next()
                self._target.send(entry)
                self._limiter.spend(len(entry.data), self._tools.now())
        return bool(progress.pending or progress.waiting or not self._exhausted)

    def _take(self, progress: RestoreProgress) -> bool:
        try:
            item = next(self._items, None)
        except OffloadError:  # a store is tried again by whoever reads it; these items are at their end
            self._archive_failed = True
            raise
        self._exhausted = item is None
        if item is not None:
            progress.take(item)
        return item is not None

    def _hear(self, progress: RestoreProgress) -> None:
        goes_on = not progress.full and (progress.waiting or not self._exhausted)  # only the rate holds it up
        numbers = self._target.receipts(self._limiter.wait(self._tools.now()) if goes_on else SILENCE)
        if not numbers and not goes_on:
            raise BrokerUnavailableError(f"the broker has not confirmed anything for {SILENCE:.0f} s")
        for number in numbers:
            self._tools.advance(progress.confirm(number))


@dataclass(frozen=True, slots=True)
class Outline:
    """What is left to restore. `bytes`, an estimate, are those of the archive; `lost`: in words, what is missing and no
    known gap."""

    entries: int
    bytes: int
    lost: tuple[str, ...]


class ArchiveSource:
    """The archived topic that is restored, as far as its records go now: what is archived later is not seen. For one
    thread."""

    def __init__(self, topic: ArchivedTopic) -> None:
        self._topic = topic
        self._snapshot = topic.snapshot
        self._copied = {data_key(topic.name, s.uuid) for s in self._snapshot.catalog.segments if s.source.complete}

    def outline(self, after: Position | None) -> Outline:
        """From the records alone. Raises DamagedRecordError."""
        items = self._plan(after)
        ranges = [item for item in items if isinstance(item, ObjectRange)]
        lost = [f"{i.start}..{i.end} ({i.why})" for i in items if isinstance(i, Missing) and i.kind is None]
        if self._snapshot.ledgers and self._snapshot.listed is None:
            lost.append("nothing lists the ledgers of Pulsar's own offloader, so that one may be missing")
        entries = sum(run.span for each in ranges for run in each.runs if run.gap is None)
        return Outline(entries, sum(each.size for each in ranges), tuple(lost))

    def items(self, after: Position | None) -> Iterator[Item]:
        """Entries and what is missing, in topic order. Raises as `PlannedReader.read`."""
        return self._read(self._plan(after))

    def outcomes(self) -> Outcomes:
        """Of the transactions in what was copied from ledgers; reads all of that."""
        ranges = (item for item in self._plan(None) if isinstance(item, ObjectRange))
        raw = [r for r in ranges if r.object.ledger is not None or r.object.data_key in self._copied]
        return outcomes(tuple((each.start, each.end) for each in raw), self._read(raw))

    def recorded(self, lowest: Position, end: Position) -> list[RestoredRun] | None:
        """The entries behind a position up to another one, by the records: those that were restored, and those that
        were left out. None: something between them is missing. It may be lost since, and as much may have been left
        out: their number proves nothing."""
        found: list[RestoredRun] = []
        whole = 0  # runs before the last thing that is missing
        for item in self._plan(_after(lowest)):
            if isinstance(item, Missing):
                whole = whole if item.kind is not None else len(found)
                continue
            starts = ((item.start_of(run), run.span) for run in item.runs if run.gap is None)
            runs = (RestoredRun(start, _length(start, span, end)) for start, span in starts)
            found += (run for run in runs if run.length)
        return None if 0 < whole < len(found) else found

    def restored(self, lowest: Position, end: Position, *, allow_missing: bool) -> Iterator[RestoredRun]:
        """The same without what was left out; reads all of it. Raises as `items`."""
        choice = Choice(self.outcomes(), allow_missing)
        for item in self.items(_after(lowest)):
            if not isinstance(item, ArchivedEntry):
                continue
            if item.position > end:
                return
            if not isinstance(choice.of(item), Skipped):
                yield RestoredRun(item.position, 1)

    def _plan(self, after: Position | None) -> list[PlanItem]:
        items = plan(self._snapshot, Selection(start=None if after is None else after.next_entry))
        # What the plan knows to be damaged is refused, or passed over, like what is lost.
        return [replace(item, damaged="") if isinstance(item, Missing) else item for item in items]

    def _read(self, items: Sequence[PlanItem]) -> Iterator[Item]:
        for item in self._topic.read(items):
            if isinstance(item, Missing):
                yield item
            else:
                yield from item.entries()


def _after(lowest: Position) -> Position | None:
    return lowest if lowest.ledger >= 0 else None


def _length(start: Position, span: int, end: Position) -> int:
    """How many of so many entries of one ledger are not behind the end."""
    if start[:2] == end[:2]:
        return min(span, max(end.entry - start.entry + 1, 0))
    return span if start < end else 0


def proven_numbering(
    source: ArchiveSource,
    target: RestoreTarget,
    places: TargetPlaces,
    tail: Tail,
    lowest: Position,
    *,
    allow_missing: bool,
) -> Numbering:
    """Of what was restored behind `lowest`. By the archive's records where nothing was left out there and nothing is
    missing, else it is read once more. Raises IntegrityError where the archive has changed too much since, and as
    reading it does."""
    if tail.position is None:
        return Numbering((), 0)
    ways: tuple[Callable[[Position], Iterable[RestoredRun] | None], ...] = (
        lambda end: source.recorded(lowest, end),
        lambda end: source.restored(lowest, end, allow_missing=allow_missing),
    )
    for way in ways:
        runs = way(tail.position)
        if runs is None:
            continue
        found = Numbering(runs, tail.number)
        if found.is_proven(lowest, tail.position, lambda number: target.provenance(*places.place(number)).position):
            return found
    raise IntegrityError(
        f"the archive does not have any more what was restored behind {lowest}: its subscriptions cannot be mapped"
    )
