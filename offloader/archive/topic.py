"""One archived topic, as Python reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from offloader.archive.following.live import Following
from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.messages.published import publish_time
from offloader.archive.read_model import EVERYTHING, EntryRun, ObjectRange, PlanItem, ReadItem, Selection, object_of
from offloader.archive.reading.plan import plan, split
from offloader.archive.reading.reader import DEFAULTS, OnDamage, PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.reading.time_range import unbroken
from offloader.archive.records import TopicRecords
from offloader.archive.runs import Run
from offloader.archive.view import TopicSnapshot
from offloader.errors import ConfigError
from offloader.model import MIB, Position, TopicName, Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from offloader.archive.messages.encryption import KeyReader
    from offloader.archive.messages.message import Message
    from offloader.archive.messages.payloads import UnpackOptions
    from offloader.archive.peek.place import Peeked

T = TypeVar("T")
log = logging.getLogger(__name__)

# What is read at a time where reading goes back.
STEP_BACK = 4 * MIB


class ArchivedTopic:
    """Reads a topic as it was archived when this was made, all of it or what a selection says.

    Everything read raises DamagedObjectError naming object, offset and position, unless damage is skipped; DamagedRecordError
    where the catalog has a hole; ObjectNotFoundError; what the store raises. What is missing for another reason than that it was no
    message (losses, what could not be proven, what was skipped) is logged; `items` has it in its place.

    `follow`: reading goes on into the live topic where the archive ends, for ever, and comes back to the archive where Pulsar has trimmed
    what comes next. Raises ConfigError where the archive was opened without `pulsar`; as Follower does.
    """

    def __init__(
        self, stores: Stores, records: TopicRecords, options: ReadOptions = DEFAULTS, following: Following | None = None
    ) -> None:
        self.records = records
        self._stores = stores
        self._options = options
        self._following = following
        self._latest = records  # following sees later ones
        self._aborted: tuple[TopicRecords, frozenset[Transaction]] | None = None

    @property
    def view(self) -> TopicSnapshot:
        """All that is known of it."""
        return self.records.whole

    @property
    def name(self) -> TopicName:
        return self.records.topic

    def items(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[Item]:
        """Entries, and what is missing in its place. With times: only the entries that say such a publish time."""
        wanted = self._located(selection)
        for item in self._planned(wanted, follow=follow):
            if isinstance(item, Missing):
                yield item
            else:
                yield from _published(item, wanted)

    def entries(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[ArchivedEntry]:
        """The entries, byte for byte. With times: only those that say such a publish time."""
        wanted = self._located(selection)
        for run in _without_missing(self._planned(wanted, follow=follow)):
            yield from _published(run, wanted)

    def runs(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[ReadItem]:
        """Many entries at a time, and what is missing in its place. With times: what may hold such messages, or chunks of theirs."""
        wanted = self._located(selection)
        return self._followed(wanted) if follow else self._read(unbroken(self.records.plan, wanted))

    def size(self, selection: Selection = EVERYTHING) -> int:
        """About how many bytes `runs` reads."""
        return sum(item.size for item in unbroken(self.records.plan, self._located(selection)) if isinstance(item, ObjectRange))

    def messages(
        self, selection: Selection = EVERYTHING, *, keys: KeyReader | None = None, follow: bool = False
    ) -> Iterator[Message]:
        """The messages, unpacked; `keys` decrypts. A chunked message is where its last chunk is."""
        from offloader.archive.messages.filters import MessageFilter
        from offloader.archive.messages.unpack import Unpacker

        unpacker = Unpacker(self.unpacking(keys), MessageFilter(selection.published_from, selection.published_to))
        for run in _without_missing(self.runs(selection, follow=follow)):
            yield from unpacker.messages(run)

    def record_batches(
        self,
        columns: Sequence[str] | None = None,
        selection: Selection = EVERYTHING,
        *,
        keys: KeyReader | None = None,
        follow: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The messages as Arrow batches, with these columns of `MESSAGE_SCHEMA`: far faster than one by one. Raises KeyError.

        Of the live topic a batch is what is there.
        """
        from offloader.archive.messages.columns import message_batches
        from offloader.archive.messages.filters import MessageFilter

        runs = _without_missing(self.runs(selection, follow=follow))
        wanted = MessageFilter(selection.published_from, selection.published_to)
        return message_batches(runs, self.name, columns, wanted=wanted, options=self.unpacking(keys), gather=not follow)

    def entry_batches(
        self, columns: Sequence[str] | None = None, selection: Selection = EVERYTHING, *, follow: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The entries as Arrow batches, with these columns of `ENTRY_SCHEMA`: the fastest way to their bytes. Raises KeyError.

        With times: only those that say such a publish time.
        """
        from offloader.archive.messages.columns import entry_batches

        runs = _without_missing(self.runs(selection, follow=follow))
        early, late = selection.published_from, selection.published_to
        return entry_batches(runs, self.name, columns, published_from=early, published_to=late, gather=not follow)

    def peek(self, position: Position) -> Peeked:
        """All that is known of one position, in at most two requests. Raises FatalError for one that is not in the archive."""
        from offloader.archive.peek.place import peek

        return peek(self._stores, self.records, self.records.located(position))

    def seek(self, *, position: Position | None = None, time: int | None = None) -> Position | None:
        """The first entry in topic order at or after a position, published at or after a time; None where there is none."""
        selection = Selection(position, published_from=time)
        if time is None:
            return self._first(self.records.plan(self._located(selection)))
        return next((entry.position for entry in self.entries(selection)), None)

    def first_position(self) -> Position | None:
        """The first entry's; None where nothing is archived."""
        for view, wanted in self.records.first():
            if (found := self._first(plan(view, wanted))) is not None:
                return found
        return None

    def last_position(self) -> Position | None:
        """The last entry's; None where nothing is archived."""
        for view, wanted in self.records.last():
            for piece, run in _kept(reversed(plan(view, wanted)), backwards=True):
                return Position(piece.incarnation, run.ledger, run.last)
        return None

    def _first(self, items: Iterable[PlanItem]) -> Position | None:
        for piece, run in _kept(items):
            return Position(piece.incarnation, run.ledger, run.first)
        return None

    def _located(self, selection: Selection) -> Selection:
        first, last = (None if p is None else self.records.located(p) for p in (selection.start, selection.end))
        return replace(selection, start=first, end=last)

    def _read(self, items: Iterable[PlanItem]) -> Iterator[ReadItem]:
        return PlannedReader(self._stores, self._options).read(items)

    def unpacking(self, keys: KeyReader | None = None) -> UnpackOptions:
        """What the messages of `runs` are unpacked with."""
        from offloader.archive.messages.payloads import UnpackOptions

        skipping = self._options.on_damage is OnDamage.SKIP
        return UnpackOptions(
            keys=keys,
            look_back=self._back_from,
            limits=self._options.limits,
            keep_damaged=skipping,
            aborted=self._aborted_by_now,
            object_of=lambda position: object_of(self._latest.plan(Selection(position, position)), position),
        )

    def _aborted_by_now(self) -> frozenset[Transaction]:
        latest = self._latest
        if self._aborted is None or self._aborted[0] is not latest:
            self._aborted = latest, latest.aborted(None)
        return self._aborted[1]

    def _back_from(self, before: Position) -> Iterator[EntryRun]:
        """The runs before a position, the nearest first."""
        end = before._replace(entry=before.entry - 1)
        for view, wanted in self._latest.before(end):
            for task in reversed(split(plan(view, wanted), STEP_BACK)):
                yield from reversed([item for item in self._read(task) if not isinstance(item, Missing)])

    def _followed(self, selection: Selection) -> Iterator[ReadItem]:
        if self._following is None:
            raise ConfigError("follow: nothing says how Pulsar is reached; open the archive with pulsar=PulsarSettings(...)")
        end = selection.end
        for item in self._following.runs(self.name, self._after, self._before(selection)):
            kept = item if end is None or isinstance(item, Missing) else item.until(end)
            if kept is not None and (end is None or kept.start <= end):
                yield kept
            if end is not None and item.end >= end:
                return

    def _planned(self, wanted: Selection, *, follow: bool) -> Iterator[ReadItem]:
        """What is selected, and no more."""
        return self._followed(wanted) if follow else self._read(self.records.plan(wanted))

    def _before(self, selection: Selection) -> Position | None:
        """What following begins after; None: before the archive's begin."""
        start = selection.start
        if start is None and selection.published_from is not None:
            start = self.seek(time=selection.published_from)
            if start is None:
                return self.last_position()
        return None if start is None else start._replace(entry=max(start.entry - 1, -1))

    def _after(self, records: TopicRecords, after: Position | None) -> Iterator[ReadItem]:
        """The archive as its records are now, after a position."""
        self._latest = records
        # The position itself is planned, too: or nobody would see whether what follows it does follow.
        following = records.plan(Selection(after))
        behind = (item for item in following if after is None or isinstance(item, Missing) or item.last > after)
        for item in self._read(behind):
            if after is None or (isinstance(item, Missing) and item.end > after):
                yield item
            elif isinstance(item, EntryRun) and (rest := item.after(after)) is not None:
                yield rest


def _without_missing(items: Iterable[T | Missing]) -> Iterator[T]:
    """Without what is missing, which is logged unless it was never a message."""
    for item in items:
        if not isinstance(item, Missing):
            yield item
        elif item.kind is None:
            log.warning("%s..%s is missing: %s", item.start, item.end, item.why, extra={"see": "missing"})


def _kept(items: Iterable[PlanItem], *, backwards: bool = False) -> Iterator[tuple[ObjectRange, Run]]:
    for item in items:
        if isinstance(item, ObjectRange):
            runs = reversed(item.runs) if backwards else item.runs
            yield from ((item, run) for run in runs if run.gap is None)


def _published(run: EntryRun, selection: Selection) -> Iterator[ArchivedEntry]:
    if not selection.is_timed:
        return run.entries()
    return (entry for entry in run.entries() if _is_within(publish_time(entry.data), selection))


def _is_within(time: int | None, selection: Selection) -> bool:
    early, late = selection.published_from, selection.published_to
    return time is not None and (early is None or time >= early) and (late is None or time <= late)
