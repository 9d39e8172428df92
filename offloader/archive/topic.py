"""One archived topic, as Python reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from offloader.archive.items import ArchivedEntry, Item, Missing
from offloader.archive.reading.once import located
from offloader.archive.reading.plan import plan, split
from offloader.archive.reading.reader import DEFAULTS, OnDamage, PieceReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.runs import Run
from offloader.archive.stored import EntryRun, Piece, PlanItem, ReadItem, Selection
from offloader.archive.view import TopicView
from offloader.errors import DamagedObjectError
from offloader.format.entry import inspect
from offloader.model import MIB, Position, TopicName

if TYPE_CHECKING:
    import pyarrow as pa

    from offloader.archive.messages.encryption import KeyReader
    from offloader.archive.messages.message import Message
    from offloader.archive.messages.payloads import UnpackOptions

T = TypeVar("T")
log = logging.getLogger(__name__)

# What is read at a time where reading goes back.
STEP_BACK = 4 * MIB


class ArchivedTopic:
    """Reads a topic as it was archived when this was made. Bounds are included; times are publish times in ms, by producers' clocks.

    Everything read raises DamagedObjectError naming object, offset and position, unless damage is skipped; DamagedRecordError
    where the catalog has a hole; ObjectNotFoundError; what the store raises. What is missing for another reason than that it was no
    message (losses, what could not be proven, what was skipped) is logged; `items` has it in its place.
    """

    def __init__(self, stores: Stores, view: TopicView, options: ReadOptions = DEFAULTS) -> None:
        self.view = view
        self._stores = stores
        self._options = options

    @property
    def name(self) -> TopicName:
        return self.view.topic

    def items(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
    ) -> Iterator[Item]:
        """Entries, and what is missing in its place. With times: only the entries that say such a publish time."""
        selection = self._selection(start, end, published_from, published_to)
        for item in self._read(plan(self.view, selection)):
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
    ) -> Iterator[ArchivedEntry]:
        """The entries, byte for byte. With times: only those that say such a publish time."""
        return _without_missing(self.items(start, end, published_from, published_to))

    def messages(
        self,
        start: Position | None = None,
        end: Position | None = None,
        published_from: int | None = None,
        published_to: int | None = None,
        *,
        keys: KeyReader | None = None,
    ) -> Iterator[Message]:
        """The messages, unpacked; `keys` decrypts. A chunked message is where its last chunk is."""
        from offloader.archive.messages.filters import MessageFilter
        from offloader.archive.messages.unpack import Unpacker

        unpacker = Unpacker(self._unpacking(keys))
        wanted = MessageFilter(published_from, published_to)
        for run in self._runs(self._selection(start, end, published_from, published_to)):
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

        runs = self._runs(self._selection(start, end, published_from, published_to))
        wanted = MessageFilter(published_from, published_to)
        return message_batches(runs, self.name, columns, wanted=wanted, options=self._unpacking(keys))

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

    def _runs(self, selection: Selection) -> Iterator[EntryRun]:
        """What may hold wanted messages, without a hole: a message's chunks may lie in parts that no wanted message is in."""
        pieces = [item for item in plan(self.view, selection) if isinstance(item, Piece)]
        if not pieces:
            return iter(())
        whole = plan(self.view, Selection(pieces[0].first, pieces[-1].last))
        return _without_missing(self._read(whole))

    def _unpacking(self, keys: KeyReader | None) -> UnpackOptions:
        from offloader.archive.messages.payloads import UnpackOptions

        skipping = self._options.on_damage is OnDamage.SKIP
        return UnpackOptions(keys=keys, look_back=self._back_from, keep_damaged=skipping)

    def _back_from(self, before: Position) -> Iterator[EntryRun]:
        """The runs before a position, the nearest first."""
        end = replace(before, entry=before.entry - 1)
        for task in reversed(split(plan(self.view, Selection(end=end)), STEP_BACK)):
            yield from reversed([item for item in self._read(task) if not isinstance(item, Missing)])


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
