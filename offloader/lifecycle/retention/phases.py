"""Takes the deletion of a topic's segments one phase further. Every step can be repeated, after a kill at any point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

from offloader.errors import IntegrityError, StoreUnavailableError
from offloader.lifecycle.retention.plan import DueRange
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.deletions import (
    BrokersCopy,
    Deleted,
    DeletedRange,
    Deleting,
    DeletionBegun,
    DeletionReason,
    DeletionUndone,
    SegmentRange,
    Tombstone,
    buried,
)
from offloader.metadata.history import History
from offloader.metadata.layout import (
    archive_deletion_key,
    archive_deletions_folder,
    data_key,
    index_key,
    parse_archive_deletion_key,
    record_key,
)
from offloader.metadata.state import CatalogHead, Said
from offloader.model import Segment, TopicName
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)

AT_A_TIME = 100  # segments
NO_COPIES: Mapping[int, BrokersCopy] = {}

Append = Callable[[CatalogHead, Said], CatalogHead]


@dataclass(frozen=True)
class ArchiveDeletion:
    """`append`: writes a catalog's next record, as its owner. `check`: raises OvertakenError where another process has
    our journal by now; asked before everything that cannot be taken back. `by`: who does it, for the records.

    The grace begins and ends by the store's clock, so that it does not matter whose clock is wrong: not that of who
    records, nor that of another host which goes on."""

    store: ObjectStore
    catalogs: Catalogs
    append: Append
    check: Callable[[], None]
    clock_ms: Callable[[], int]
    cluster: str
    by: str

    def marked(self) -> list[TopicName]:
        """Topics of which something may be under way to be deleted. One listing."""
        keys = (key for key, _ in self.store.list(archive_deletions_folder(self.cluster)))
        found = (parse_archive_deletion_key(self.cluster, key) for key in keys)
        return [topic for topic in found if topic is not None]

    def record(self, head: CatalogHead, due: Sequence[DueRange], by: str, grace_ms: int) -> CatalogHead:
        """The first phase: say that these go. The note comes first, so that nobody forgets the topic."""
        words = ", ".join(dict.fromkeys(each.words for one in due for each in one.due))
        ranges = tuple(one.range for one in due)
        now = self._noted_at(head.topic)
        record = Deleting(head.removed.following, ranges, due[0].due[0].reason, words, by, now, now + grace_ms)
        self.check()
        head = self.append(head, record)
        self.note(head.topic)  # another process may have found the note without the record, and removed it
        count, wait = _count(ranges), record.not_before
        log.info("deleting topic=%s segments=%d not before %d: %s", head.topic, count, wait, words)
        return head

    def undo(self, head: CatalogHead, by: str, why: str) -> CatalogHead:
        """A changed mind. Raises IntegrityError where it has begun, or none is under way."""
        self.check()
        self.catalogs.keep_deleting(head)
        pending = head.removed.pending
        number = -1 if pending is None else pending.number
        head = self.append(head, DeletionUndone(number, by, why, self.clock_ms()))
        self.forget(head.topic)
        log.info("deletion undone topic=%s number=%d: %s", head.topic, number, why)
        return head

    def prove_right(self, topic: TopicName) -> None:
        """Delete an object that is not there: a role that may not would leave a deletion begun for ever. Raises
        AccessDeniedError."""
        self.store.delete([data_key(topic, str(uuid5(NAMESPACE_OID, f"{topic} probe")))])

    def is_time(self, topic: TopicName, pending: Deleting) -> bool:
        """Whether the grace is over. Our own clock only spares asking the store, and not where it must be wrong."""
        waits = pending.at <= self.clock_ms() < pending.not_before
        return not waits and self._noted_at(topic) >= pending.not_before

    def begin(self, head: CatalogHead, pending: Deleting, copies: tuple[BrokersCopy, ...] = ()) -> CatalogHead:
        """What was looked at is as it was, or this is refused: from here on there is no way back. `copies`: see
        `DeletionBegun`."""
        self.check()
        return self.append(head, DeletionBegun(pending.number, self.by, self._noted_at(head.topic), copies))

    def carry_out(
        self, head: CatalogHead, pending: Deleting, copies: Mapping[int, BrokersCopy] = NO_COPIES
    ) -> CatalogHead:
        """Delete the objects of a deletion that has begun, then record that. Data first: an index without data shows
        what is left of an interruption. `copies`: the ledgers that brokers have, where they get them. Raises
        IntegrityError where one of these is not known."""
        self.check()
        self.catalogs.keep_deleting(head)
        absent = 0
        for each in pending.ranges:
            for segments in _some_at_a_time(self.segments(head, each)):
                self.check()
                absent += self._delete(head.topic, pending, segments, copies)
        done = Deleted(pending.number, pending.ranges, pending.reason, pending.policy, pending.by, pending.at, absent)
        head = self.append(head, done)
        self.forget(head.topic)
        log.info("deleted topic=%s number=%d segments=%d", head.topic, pending.number, _count(pending.ranges))
        return head

    def note(self, topic: TopicName) -> None:
        """Something of the topic may be under way."""
        self.store.put(archive_deletion_key(self.cluster, topic), str(topic).encode())

    def _noted_at(self, topic: TopicName) -> int:
        """Note it, also where it is noted: that is now, by the store's clock. Ours, where the store says no time."""
        self.note(topic)
        found = self.store.stat(archive_deletion_key(self.cluster, topic))
        if found is None:  # whoever was paused before has just forgotten it
            raise StoreUnavailableError(f"{topic}: the note of its deletion was removed at the same moment")
        return found.modified_at or self.clock_ms()

    def forget(self, topic: TopicName) -> CatalogHead:
        """Nothing of the topic is under way any more. Whoever was paused says so late: what another process has
        recorded meanwhile is noted again."""
        self.check()
        self.store.delete([archive_deletion_key(self.cluster, topic)])
        head = self.catalogs.head(topic)
        if head.removed.pending is not None:
            self.note(topic)
        return head

    def _delete(
        self, topic: TopicName, pending: Deleting, segments: list[Segment], copies: Mapping[int, BrokersCopy]
    ) -> int:
        """How many objects were not there. Where brokers have them, readers find that before they miss any."""
        handed_over = pending.reason is DeletionReason.BRIDGED
        stones = [_stone(topic, pending, each, copies if handed_over else None) for each in segments]
        if handed_over:
            self._bury(topic, stones)
        stored = [segment.uuid for segment in segments if segment.size and segment.brokers is None]
        data, index = ([key(topic, uuid) for uuid in stored] for key in (data_key, index_key))
        absent = sum(self.store.stat(key) is None for key in (*data, *index))
        self.store.delete(data)
        self.store.delete(index)
        if not handed_over:
            self._bury(topic, stones)
        return absent

    def _bury(self, topic: TopicName, stones: Iterable[Tombstone]) -> None:
        for stone in stones:
            self.store.put(record_key(topic, stone.uuid), encode_catalog(stone.uuid, stone))

    def segments(self, head: CatalogHead, wanted: SegmentRange) -> Iterator[Segment]:
        """Those that go with a range, as the catalog has them."""
        history = History(self.store, head)
        slots = history.slots(
            lambda row: (
                row.start is not None
                and row.end is not None
                and row.segments > 0
                and row.start <= wanted.end
                and row.end >= wanted.start
            )
        )
        for slot in slots:
            record = next(history.read([slot.number])).record
            if isinstance(record, Segment) and wanted.start <= record.start and record.end <= wanted.end:
                yield record


def _stone(
    topic: TopicName, pending: Deleting, segment: Segment, copies: Mapping[int, BrokersCopy] | None
) -> Tombstone:
    wanted = () if copies is None else [held.ledger for held in segment.ledgers]
    known = tuple(copies[ledger] for ledger in wanted if copies is not None and ledger in copies)
    if len(known) < len(wanted):
        raise IntegrityError(f"{topic}: deletion {pending.number}: nothing says where brokers have {segment.uuid}")
    return buried(segment, pending.reason, pending.policy, pending.at, known)


def _some_at_a_time(segments: Iterator[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    for segment in segments:
        group.append(segment)
        if len(group) == AT_A_TIME:
            yield group
            group = []
    if group:
        yield group


def _count(ranges: Sequence[SegmentRange | DeletedRange]) -> int:
    return sum(each.segments for each in ranges)
