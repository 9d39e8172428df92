"""One archived topic, as Python reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self, TypeVar

from offloader.archive.following.follower import Following
from offloader.archive.items import ArchivedEntry, EntryRun, Item, Missing, ReadItem
from offloader.archive.messages.filters import published
from offloader.archive.object_range import ObjectRange, PlanItem, object_of
from offloader.archive.reading.plan import contiguous, plan, split
from offloader.archive.reading.reader import DEFAULTS, OnDamage, PlannedReader, ReadOptions
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import ConfigError
from offloader.model import MIB, Position, TopicName, Transaction

if TYPE_CHECKING:
    import pyarrow as pa

    from offloader.archive.messages.encryption import KeyReader
    from offloader.archive.messages.message import Message
    from offloader.archive.messages.payloads import UnpackOptions
    from offloader.archive.peek.place import Peeked
    from offloader.metadata.state import TopicCatalog
    from offloader.ports.object_store import ObjectStore

T = TypeVar("T")
log = logging.getLogger(__name__)

# What is read at a time where reading goes back.
STEP_BACK = 4 * MIB


class ArchivedTopic:
    """One topic, as it was archived when `Archive.topic` gave this. Each call reads anew; one thread at a time may use
    what it gives.

    What most calls take:
        selection: what is wanted, by position and by publish time (ms); everything by default.
        follow: go on into the live topic where the archive ends, for ever, and come back where Pulsar has trimmed what
            comes next.
        keys: gives the private keys of encrypted messages (`PemFiles`, or what has its method).

    What most calls raise: DamagedObjectError, which names object, offset and position, unless damage is skipped;
    DamagedRecordError where the catalog has a hole; ObjectNotFoundError; what the store raises. With `follow` also
    ConfigError where the archive was opened without `pulsar`, DataLostError where neither has what comes next, and what
    Pulsar raises.

    What is missing and was a message, or may have been one, is logged; `items` and `runs` have it in its place.

    >>> orders = Archive("s3://pulsar-archive/production").topic("persistent://public/default/orders")
    >>> late = Selection(published_from=1_795_269_720_000)
    >>> [message.value for message in orders.messages(late)]
    [b'order 2', b'order 3']
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

    @classmethod
    def of(cls, store: ObjectStore, snapshot: TopicSnapshot | TopicCatalog, options: ReadOptions = DEFAULTS) -> Self:
        """What these records have, from a store that is open."""
        known = snapshot if isinstance(snapshot, TopicSnapshot) else TopicSnapshot.of(snapshot)
        return cls(Stores.of(store), TopicRecords(known), options)

    @property
    def snapshot(self) -> TopicSnapshot:
        """All that is known of it."""
        return self.records.whole

    @property
    def name(self) -> TopicName:
        return self.records.topic

    def items(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[Item]:
        """The entries in topic order, and what is missing in its place. With times: only entries that say such a
        publish time.

        >>> for item in orders.items():
        ...     print(item.why if isinstance(item, Missing) else f"{item.position} {len(item.data)} bytes")
        12:0 36 bytes
        12:1 34 bytes
        12:2 36 bytes
        12:3 34 bytes
        a gap: aborted
        """
        wanted = self._located(selection)
        for item in self._followed(wanted) if follow else self.read(self.records.plan(wanted)):
            if isinstance(item, Missing):
                yield item
            else:
                yield from published(item, wanted)

    def entries(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[ArchivedEntry]:
        """The entries in topic order, byte for byte as BookKeeper stored them. With times: only those that say such a
        publish time.

        >>> [str(entry.position) for entry in orders.entries(Selection(end=Position(0, 12, 1)))]
        ['12:0', '12:1']
        """
        return _without_missing(self.items(selection, follow=follow))

    def runs(self, selection: Selection = EVERYTHING, *, follow: bool = False) -> Iterator[ReadItem]:
        """The entries in topic order, many at a time without a copy of each, and what is missing in its place.

        With times: all that may hold such messages, or chunks of theirs.

        >>> [(run.ledger, run.first, run.last) for run in orders.runs() if isinstance(run, EntryRun)]
        [(12, 0, 3)]
        """
        wanted = self._located(selection)
        return self._followed(wanted) if follow else self.read(contiguous(self.records.plan, wanted))

    def size(self, selection: Selection = EVERYTHING) -> int:
        """About how many bytes `runs` reads: from the records alone, no data is read.

        >>> orders.size() > 0
        True
        """
        return sum(
            item.size
            for item in contiguous(self.records.plan, self._located(selection))
            if isinstance(item, ObjectRange)
        )

    def messages(
        self, selection: Selection = EVERYTHING, *, keys: KeyReader | None = None, follow: bool = False
    ) -> Iterator[Message]:
        """The messages in topic order, unpacked from batches, compression, chunks and encryption. A chunked one is
        where its last chunk is.

        Raises MessageTooLargeError for one that is larger than the archive's options allow; ConfigError where a key
        cannot be read.

        >>> [(message.key, message.publish_time) for message in orders.messages(Selection(Position(0, 12, 3)))]
        [(b'bob', 1795269780000)]
        """
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
        """The messages in topic order as Arrow batches: far faster than one by one.

        Args:
            columns: names of `MESSAGE_SCHEMA`. None: all of them.

        A batch has a row for each message and the columns in the order asked for, at most 65,536 rows and about 16 MiB
        of payloads; of the live topic, what is there. Raises KeyError for a name that is no column;
        MessageTooLargeError; ConfigError as `messages`.

        >>> first_two = Selection(end=Position(0, 12, 1))
        >>> [batch.to_pydict() for batch in orders.record_batches(["__entryId", "__key"], first_two)]
        [{'__entryId': [0, 1], '__key': [b'alice', b'bob']}]
        """
        from offloader.archive.messages.columns import message_batches
        from offloader.archive.messages.filters import MessageFilter

        runs = _without_missing(self.runs(selection, follow=follow))
        wanted = MessageFilter(selection.published_from, selection.published_to)
        return message_batches(runs, self.name, columns, wanted=wanted, options=self.unpacking(keys), gather=not follow)

    def entry_batches(
        self, columns: Sequence[str] | None = None, selection: Selection = EVERYTHING, *, follow: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The entries in topic order as Arrow batches: the fastest way to their bytes. With times: only those that say
        such a publish time.

        Args:
            columns: names of `ENTRY_SCHEMA`. None: all of them.

        A batch has a row for each entry and the columns in the order asked for, at most 65,536 rows. Raises KeyError
        for a name that is no column.

        >>> [(batch.num_rows, batch.schema.names) for batch in orders.entry_batches(["ledgerId", "data"])]
        [(4, ['ledgerId', 'data'])]
        """
        from offloader.archive.messages.columns import entry_batches

        runs = _without_missing(self.runs(selection, follow=follow))
        early, late = selection.published_from, selection.published_to
        return entry_batches(runs, self.name, columns, published_from=early, published_to=late, gather=not follow)

    def peek(self, position: Position) -> Peeked:
        """All that is known of one position: its record, where it is stored, the entry itself. In at most two requests.

        Raises FatalError for a position that is not in the archive.

        >>> found = orders.peek(Position(0, 12, 5))
        >>> found.gap.kind.value, found.stored
        ('aborted', None)
        """
        from offloader.archive.peek.place import peek

        return peek(self._stores, self.records, self.records.located(position))

    def seek(self, *, position: Position | None = None, time: int | None = None) -> Position | None:
        """The first entry in topic order at or after a position, published at or after a time (ms); None where there is
        none.

        What follows it may have been published earlier: publish times are producers' clocks.

        >>> print(orders.seek(time=1_795_269_720_000))
        12:2
        """
        selection = Selection(position, published_from=time)
        if time is None:
            return _first(self.records.plan(self._located(selection)))
        return next((entry.position for entry in self.entries(selection)), None)

    def first_position(self) -> Position | None:
        """The first entry's position; None where nothing is archived."""
        firsts = (_first(plan(snapshot, wanted)) for snapshot, wanted in self.records.first())
        return next((found for found in firsts if found is not None), None)

    def last_position(self) -> Position | None:
        """The last entry's position; None where nothing is archived.

        >>> print(orders.first_position(), orders.last_position())
        12:0 12:3
        """
        items = (item for snapshot, wanted in self.records.before() for item in reversed(plan(snapshot, wanted)))
        stored = (item for item in items if isinstance(item, ObjectRange))
        return next((item.end_of(run) for item in stored for run in reversed(item.runs) if run.gap is None), None)

    def _located(self, selection: Selection) -> Selection:
        first, last = (None if p is None else self.records.located(p) for p in (selection.start, selection.end))
        return replace(selection, start=first, end=last)

    def read(self, items: Iterable[PlanItem]) -> Iterator[ReadItem]:
        """What was planned of it, in this order. Raises as `PlannedReader.read`."""
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
        end = before.previous_entry
        for snapshot, wanted in self._latest.before(end):
            for task in reversed(split(plan(snapshot, wanted), STEP_BACK)):
                yield from reversed([item for item in self.read(task) if not isinstance(item, Missing)])

    def _followed(self, selection: Selection) -> Iterator[ReadItem]:
        if self._following is None:
            raise ConfigError(
                "follow: nothing says how Pulsar is reached; open the archive with pulsar=PulsarSettings(...)"
            )
        end = selection.end
        for item in self._following.runs(self.name, self._after, self._before(selection)):
            kept = item if end is None or isinstance(item, Missing) else item.until(end)
            if kept is not None and (end is None or kept.start <= end):
                yield kept
            if end is not None and item.end >= end:
                return

    def _before(self, selection: Selection) -> Position | None:
        """What following begins after; None: before the archive's begin."""
        start = selection.start
        if start is None and selection.published_from is not None:
            start = self.seek(time=selection.published_from)
            if start is None:
                return self.last_position()
        return None if start is None else start.at(max(start.entry - 1, -1))

    def _after(self, records: TopicRecords, after: Position | None) -> Iterator[ReadItem]:
        """The archive as its records are now, after a position."""
        self._latest = records
        # The position itself is planned, too: or nobody would see whether what follows it does follow.
        following = records.plan(Selection(after))
        behind = (item for item in following if after is None or item.end > after)
        for item in self.read(behind):
            if isinstance(item, Missing) and item.deleted and after is not None and item.start <= after < item.end:
                yield replace(item, start=after.next_entry)  # of a range that went, we had a part before
            elif after is None or (isinstance(item, Missing) and item.end > after):
                yield item
            elif isinstance(item, EntryRun) and (rest := item.since(after.next_entry)) is not None:
                yield rest


def _without_missing(items: Iterable[T | Missing]) -> Iterator[T]:
    """Without what is missing, which is logged unless it was never a message."""
    for item in items:
        if not isinstance(item, Missing):
            yield item
        elif item.kind is None:
            log.warning("%s..%s is missing: %s", item.start, item.end, item.why, extra={"see": "missing"})


def _first(items: Iterable[PlanItem]) -> Position | None:
    """The position of the first entry among these."""
    stored = (item for item in items if isinstance(item, ObjectRange))
    return next((item.start_of(run) for item in stored for run in item.runs if run.gap is None), None)
