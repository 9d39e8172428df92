"""One archived topic, as Python reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from offloader.archive.following.live import Following, as_run, item_end, item_start
from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.reading.once import located
from offloader.archive.reading.plan import plan, split
from offloader.archive.reading.reader import DEFAULTS, OnDamage, PieceReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.reading.unbroken import unbroken
from offloader.archive.runs import Run
from offloader.archive.stored import EntryRun, Piece, PlanItem, ReadItem, Selection
from offloader.archive.view import TopicView
from offloader.errors import ConfigError, DamagedObjectError
from offloader.format.entry import inspect
from offloader.metadata.state import TopicCatalog
from offloader.model import MIB, Position, TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from offloader.archive.messages.encryption import KeyReader
    from offloader.archive.messages.message import Message
    from offloader.archive.messages.payloads import UnpackOptions
    from offloader.archive.peeking.place import Peeked

T = TypeVar("T")
log = logging.getLogger(__name__)

# What is read at a time where reading goes back.
STEP_BACK = 4 * MIB


class ArchivedTopic:
    """Reads a topic as it was archived when this was made. Bounds are included; times are publish times in ms, by producers' clocks.

    Everything read raises DamagedObjectError naming object, offset and position, unless damage is skipped; DamagedRecordError
    where the catalog has a hole; ObjectNotFoundError; what the store raises. What is missing for another reason than that it was no
    message (losses, what could not be proven, what was skipped) is logged; `items` has it in its place.

    `follow`: reading goes on into the live topic where the archive ends, for ever, and comes back to the archive where Pulsar has trimmed
    what comes next. Raises ConfigError where the archive was opened without `pulsar`; as Follower does.
    """

    def __init__(
        self, stores: Stores, view: TopicView, options: ReadOptions = DEFAULTS, following: Following | None = None
    ) -> None:
        self.view = view
        self._stores = stores
        self._options = options
        self._following = following

    @property
    def name(self) -> TopicName:
        return self.view.topic

    def items(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        follow: bool = False,
    ) -> Iterator[Item]:
        """Entries, and what is missing in its place. With times: only the entries that say such a publish time."""
        selection = self._selection(start, end, published_from, published_to)
        found = map(as_run, self._followed(selection)) if follow else self._read(plan(self.view, selection))
        for item in found:
            if isinstance(item, Missing):
                yield item
            else:
                yield from _published(item, selection)

    def entries(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        follow: bool = False,
    ) -> Iterator[ArchivedEntry]:
        """The entries, byte for byte. With times: only those that say such a publish time."""
        return _without_missing(self.items(start, end, published_from, published_to, follow=follow))

    def runs(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        follow: bool = False,
    ) -> Iterator[ReadItem]:
        """Many entries at a time, and what is missing in its place. With times: what may hold such messages, or chunks of theirs."""
        selection = self._selection(start, end, published_from, published_to)
        return map(as_run, self._followed(selection)) if follow else self._read(unbroken(self.view, selection))

    def size(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
    ) -> int:
        """About how many bytes `runs` reads."""
        selection = self._selection(start, end, published_from, published_to)
        return sum(item.size for item in unbroken(self.view, selection) if isinstance(item, Piece))

    def messages(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        keys: KeyReader | None = None,
        follow: bool = False,
    ) -> Iterator[Message]:
        """The messages, unpacked; `keys` decrypts. A chunked message is where its last chunk is."""
        from offloader.archive.messages.filters import MessageFilter
        from offloader.archive.messages.unpack import Unpacker

        unpacker = Unpacker(self.unpacking(keys))
        wanted = MessageFilter(published_from, published_to)
        for run in _without_missing(self.runs(start, end, published_from, published_to, follow=follow)):
            yield from filter(wanted.matches, unpacker.messages(run))

    def record_batches(
        self,
        columns: Sequence[str] | None = None,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        keys: KeyReader | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The messages as Arrow batches, with these columns of `MESSAGE_SCHEMA`: far faster than one by one. Raises KeyError."""
        from offloader.archive.messages.columns import message_batches
        from offloader.archive.messages.filters import MessageFilter

        runs = _without_missing(self.runs(start, end, published_from, published_to))
        wanted = MessageFilter(published_from, published_to)
        return message_batches(runs, self.name, columns, wanted=wanted, options=self.unpacking(keys))

    def entry_batches(
        self, columns: Sequence[str] | None = None, start: Position | None = None, end: Position | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The entries as Arrow batches, with these columns of `ENTRY_SCHEMA`: the fastest way to their bytes. Raises KeyError."""
        from offloader.archive.messages.columns import entry_batches

        return entry_batches(_without_missing(self.runs(start, end)), self.name, columns)

    def peek(self, position: Position) -> Peeked:
        """All that is known of one position, in at most two requests. Raises FatalError for one that is not in the archive."""
        from offloader.archive.peeking.place import peek

        return peek(self._stores, self.view, located(self.view, position))

    def seek(self, *, position: Position | None = None, time: int | None = None) -> Position | None:
        """The first entry in topic order at or after a position, published at or after a time; None where there is none."""
        if time is None:
            return self._first(plan(self.view, self._selection(position)))
        return next((entry.position for entry in self.entries(position, published_from=time)), None)

    def first_position(self) -> Position | None:
        """The first entry's; None where nothing is archived."""
        return self._first(plan(self.view))

    def last_position(self) -> Position | None:
        """The last entry's; None where nothing is archived."""
        for piece, run in _kept(reversed(plan(self.view)), backwards=True):
            return Position(piece.incarnation, run.ledger, run.last)
        return None

    def _first(self, items: Iterable[PlanItem]) -> Position | None:
        for piece, run in _kept(items):
            return Position(piece.incarnation, run.ledger, run.first)
        return None

    def _selection(
        self,
        start: Position | None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
    ) -> Selection:
        first, last = (None if p is None else located(self.view, p) for p in (start, end))
        return Selection(first, last, published_from, published_to)

    def _read(self, items: Iterable[PlanItem]) -> Iterator[ReadItem]:
        return PieceReader(self._stores, self._options).read(items)

    def unpacking(self, keys: KeyReader | None = None) -> UnpackOptions:
        """What the messages of `runs` are unpacked with."""
        from offloader.archive.messages.payloads import UnpackOptions

        skipping = self._options.on_damage is OnDamage.SKIP
        return UnpackOptions(keys=keys, look_back=self._back_from, keep_damaged=skipping)

    def _back_from(self, before: Position) -> Iterator[EntryRun]:
        """The runs before a position, the nearest first."""
        end = replace(before, entry=before.entry - 1)
        for task in reversed(split(plan(self.view, Selection(end=end)), STEP_BACK)):
            yield from reversed([item for item in self._read(task) if not isinstance(item, Missing)])

    def _followed(self, selection: Selection) -> Iterator[Item]:
        if self._following is None:
            raise ConfigError("follow: nothing says how Pulsar is reached; open the archive with pulsar=PulsarSettings(...)")
        for item in self._following.items(self.name, self._after, self._before(selection)):
            if selection.end is None or item_start(item) <= selection.end:
                yield item
            if selection.end is not None and item_end(item) >= selection.end:
                return

    def _before(self, selection: Selection) -> Position | None:
        """What following begins after; None: before the archive's begin."""
        start = selection.start
        if start is None and selection.published_from is not None:
            start = self.seek(time=selection.published_from)
            if start is None:
                return self.last_position()
        return None if start is None else replace(start, entry=max(start.entry - 1, -1))

    def _after(self, catalog: TopicCatalog, after: Position | None) -> Iterator[Item]:
        """The archive as a catalog says it is now, after a position."""
        topic = ArchivedTopic(self._stores, replace(self.view, catalog=catalog), self._options)
        return (item for item in topic.items(after) if after is None or item_end(item) > after)


def _without_missing(items: Iterable[T | Missing]) -> Iterator[T]:
    """Without what is missing, which is logged unless it was never a message."""
    for item in items:
        if not isinstance(item, Missing):
            yield item
        elif item.kind is None:
            log.warning("%s..%s is missing: %s", item.start, item.end, item.why)


def _kept(items: Iterable[PlanItem], *, backwards: bool = False) -> Iterator[tuple[Piece, Run]]:
    for item in items:
        if isinstance(item, Piece):
            runs = reversed(item.runs) if backwards else item.runs
            yield from ((item, run) for run in runs if run.gap is None)


def _published(run: EntryRun, selection: Selection) -> Iterator[ArchivedEntry]:
    if selection.published_from is None and selection.published_to is None:
        return run.entries()
    return (entry for entry in run.entries() if _is_within(_publish_time(entry), selection))


def _publish_time(entry: ArchivedEntry) -> int | None:
    try:
        return inspect(entry.data).publish_time
    except DamagedObjectError:  # its frame is one that nothing promises: an opaque entry
        return None


def _is_within(time: int | None, selection: Selection) -> bool:
    early, late = selection.published_from, selection.published_to
    if time is None:
        return early is None and late is None
    return (early is None or time >= early) and (late is None or time <= late)
