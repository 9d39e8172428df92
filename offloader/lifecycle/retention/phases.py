"""Takes the deletion of a topic's segments one phase further. Every step can be repeated, after a kill at any point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import NAMESPACE_OID, uuid5

from offloader.errors import FatalError, IntegrityError, OffloadError, RetryableError, StoreUnavailableError
from offloader.lifecycle.retention.holds import first_held, objects_of
from offloader.lifecycle.retention.plan import DueRange
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import encode_catalog
from offloader.metadata.deletions import (
    Deleted,
    DeletedRange,
    Deleting,
    DeletionBegun,
    DeletionUndone,
    SegmentRange,
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
ENDED_AFTER_MS = 3_600_000  # whoever was paused between a check and a deletion has ended by then

Append = Callable[[CatalogHead, Said], CatalogHead]


@dataclass(frozen=True)
class ArchiveDeletion:
    """`append`: writes a catalog's next record, as its owner. `check`: raises OvertakenError where another process has
    our journal by now; asked before everything that cannot be taken back. `by`: who does it, for the records.

    The grace begins and ends by the store's clock, so that it does not matter whose clock is wrong: not that of who
    records, nor that of another host which goes on.

    `alone_ms`: how long this process has had the journal. A process that had it before may have been paused right
    before it deletes: what another one has begun is undone only once that has had time to end. `began`: what this
    process has begun, `running`: of which it may delete right now, `unsure`: `alone_ms` when a deletion ended without
    an answer, so that the store may still carry it out."""

    store: ObjectStore
    catalogs: Catalogs
    append: Append
    check: Callable[[], None]
    clock_ms: Callable[[], int]
    cluster: str
    by: str
    alone_ms: Callable[[], int] = field(default=lambda: 0, kw_only=True)
    began: set[tuple[TopicName, int]] = field(default_factory=set, kw_only=True)
    running: set[tuple[TopicName, int]] = field(default_factory=set, kw_only=True)
    unsure: dict[tuple[TopicName, int], int] = field(default_factory=dict, kw_only=True)

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
        """A changed mind. Raises IntegrityError where objects are gone, or none is under way."""
        self.check()
        self.catalogs.keep_deleting(head)
        pending, begun = head.removed.pending, head.removed.begun is not None
        number = -1 if pending is None else pending.number
        if begun and pending is not None:
            why_not = self.why_not_undone(head, pending)
            if why_not:
                raise IntegrityError(f"{head.topic}: deletion {number} has begun: {why_not}")
        head = self.append(head, DeletionUndone(number, by, why, self.clock_ms(), begun))
        self.forget(head.topic)
        log.info("deletion undone topic=%s number=%d: %s", head.topic, number, why)
        return head

    def why_not_undone(self, head: CatalogHead, pending: Deleting) -> str:
        """Why a deletion that has begun cannot be undone now; empty: it can."""
        key = head.topic, pending.number
        if not self._is_whole(head, pending):
            return "it cannot be undone any more, objects of it are gone"
        if key in self.running or not self._has_ended(head, key):
            return "the process that began it may still delete; ask again in an hour"
        return ""

    def _has_ended(self, head: CatalogHead, key: tuple[TopicName, int]) -> bool:
        """Whether nobody deletes any more. Another process may have begun it with a journal of its own (a shard's)."""
        alone = self.alone_ms()
        if key in self.began:
            return alone - self.unsure.get(key, -ENDED_AFTER_MS) >= ENDED_AFTER_MS
        begun = head.removed.begun
        since = 0 if begun is None else self._noted_at(head.topic) - begun.at
        return min(alone, since) >= ENDED_AFTER_MS

    def _is_whole(self, head: CatalogHead, pending: Deleting) -> bool:
        """Whether no object of a deletion that has begun is gone. Looks in the order in which they go. No where the
        tombstones may be there already: what has no objects holds up none."""
        for each in pending.ranges:
            for segments in _some_at_a_time(self.segments(head, each)):
                keys = [key for segment in segments for key in objects_of(head.topic, segment)]
                if not keys or any(self.store.stat(key) is None for key in keys):
                    return False
        return True

    def why_held(self, head: CatalogHead, pending: Deleting) -> str:
        """Which object of a deletion the store keeps; empty: it shows none."""
        now = self.clock_ms()
        found = (first_held(self.store, head.topic, self.segments(head, each), now) for each in pending.ranges)
        return next((held[1] for held in found if held is not None), "")

    def prove_right(self, topic: TopicName) -> None:
        """Delete an object that is not there: a role that may not would leave a deletion begun for ever. Raises
        AccessDeniedError."""
        self.store.delete([data_key(topic, str(uuid5(NAMESPACE_OID, f"{topic} probe")))])

    def is_time(self, topic: TopicName, pending: Deleting) -> bool:
        """Whether the grace is over. Our own clock only spares asking the store, and not where it must be wrong."""
        waits = pending.at <= self.clock_ms() < pending.not_before
        return not waits and self._noted_at(topic) >= pending.not_before

    def begin(self, head: CatalogHead, pending: Deleting) -> CatalogHead:
        """What was looked at is as it was, or this is refused: from here on there is a way back only as long as every
        object is there."""
        self.check()
        head = self.append(head, DeletionBegun(pending.number, self.by, self._noted_at(head.topic)))
        self.began.add((head.topic, pending.number))
        self.running.add((head.topic, pending.number))
        return head

    def carry_out(self, head: CatalogHead, pending: Deleting) -> CatalogHead:
        """Delete the objects of a deletion that has begun, then record that. Data first: an index without data shows
        what is left of an interruption."""
        self.check()
        self.catalogs.keep_deleting(head)
        key = head.topic, pending.number
        self.running.add(key)
        absent = 0
        try:
            for each in pending.ranges:
                for segments in _some_at_a_time(self.segments(head, each)):
                    self.check()
                    absent += self._delete(head.topic, pending, segments)
        except FatalError:
            raise
        except OffloadError:
            self.unsure[key] = self.alone_ms()
            raise
        finally:
            self.running.discard(key)
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

    def _delete(self, topic: TopicName, pending: Deleting, segments: list[Segment]) -> int:
        """How many objects were not there."""
        stored = [segment.uuid for segment in segments if objects_of(topic, segment)]
        data, index = ([key(topic, uuid) for uuid in stored] for key in (data_key, index_key))
        absent = sum(self.store.stat(key) is None for key in (*data, *index))
        self.check()  # whoever goes on in our place may have undone it meanwhile
        self._check_begun(topic, pending)
        self.store.delete(data)
        self.store.delete(index)
        for segment in segments:
            stone = buried(segment, pending.reason, pending.policy, pending.at)
            self.store.put(record_key(topic, stone.uuid), encode_catalog(stone.uuid, stone))
        return absent

    def _check_begun(self, topic: TopicName, pending: Deleting) -> None:
        """A shard that the topic was passed on to has a journal of its own. Raises RetryableError where it has undone
        this meanwhile."""
        removed = self.catalogs.head(topic).removed
        if removed.pending is None or removed.pending.number != pending.number or removed.begun is None:
            raise RetryableError(f"{topic}: deletion {pending.number} is under way no more")

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
