"""What is recorded as deleted is told to whoever reads, in its place: never damage, never a hole, never in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.archive import Archive as ReadArchive
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.archive.topic import ArchivedTopic
from offloader.errors import FatalError, IntegrityError, ObjectNotFoundError
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.catalog_codec import decode_of, encode_catalog
from offloader.metadata.compaction import compact
from offloader.metadata.deletions import (
    Deleted,
    Deleting,
    DeletionBegun,
    DeletionReason,
    DeletionUndone,
    SegmentRange,
    Tombstone,
    buried,
)
from offloader.metadata.state import CatalogHead
from offloader.model import Position, Segment
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryStore
from tests.archive.support import APPLICATION, TOPIC, Archive, stream

POLICY = "archiveRetentionTimeInMinutes 60"
ENTRIES = 10  # of each segment


def archived(segments: int = 5) -> Archive:
    """A topic of so many segments, two to a ledger."""
    archive = Archive()
    archive.claim()
    for number in range(segments):
        ledger, half = divmod(number, 2)
        first = ENTRIES * half
        last = first + ENTRIES - 1
        archive.add(stream(ledger, first, last), closed={ledger: last} if half else {})
    return archive


def deleting(archive: Archive, count: int, at: int = 1_000) -> Deleting:
    """A deletion of the topic's first segments that are left."""
    head = archive.catalogs.head(TOPIC)
    before = head.removed.up_to(0)
    left = [s for s in archive.catalog.segments if before is None or s.start > before]
    gone = left[:count]
    sums = sum(s.entries for s in gone), sum(s.size for s in gone)
    span = SegmentRange(gone[0].start, gone[-1].end, len(gone), *sums)
    return Deleting(0, (span,), DeletionReason.TIME, POLICY, "retention", at, at + 100)


def append(archive: Archive, record: object) -> CatalogHead:
    catalogs = Catalogs(archive.store, APPLICATION)
    return catalogs.append(catalogs.head(TOPIC), record)


def remove(archive: Archive, segments: list[Segment], at: int = 1_000) -> None:
    """As the executor does it."""
    for segment in segments:
        archive.store.delete([layout.data_key(TOPIC, segment.uuid)])
        archive.store.delete([layout.index_key(TOPIC, segment.uuid)])
        stone = buried(segment, DeletionReason.TIME, POLICY, at)
        archive.store.put(layout.record_key(TOPIC, segment.uuid), encode_catalog(segment.uuid, stone))


def delete(archive: Archive, count: int, at: int = 1_000) -> Deleting:
    """A whole deletion."""
    head = append(archive, deleting(archive, count, at))
    pending = head.removed.pending
    assert pending is not None
    append(archive, DeletionBegun(pending.number, "app", at + 100))
    span = pending.ranges[0]
    remove(archive, [s for s in archive.catalog.segments if span.start <= s.start and s.end <= span.end])
    append(archive, Deleted(pending.number, pending.ranges, pending.reason, POLICY, "retention", at))
    return pending


def topic_of(store: MemoryStore) -> ArchivedTopic:
    return ReadArchive(OpenArchive(Stores.of(store))).topic(TOPIC)


def places(items: list[object]) -> list[tuple[int, int]]:
    return [item.position.place for item in items if isinstance(item, ArchivedEntry)]


def missing(items: list[object]) -> list[Missing]:
    return [item for item in items if isinstance(item, Missing)]


WHOLE = [(ledger, entry) for ledger in range(2) for entry in range(20)] + [(2, entry) for entry in range(10)]


def test_from_the_first_record_on_readers_are_told_and_undone_they_read_again() -> None:
    archive = archived()
    head = append(archive, deleting(archive, 3))
    items = list(topic_of(archive.store).items())
    told = missing(items)
    assert places(items) == WHOLE[30:]
    assert [(str(m.start), str(m.end), m.deleted, m.damaged, m.kind) for m in told] == [("0:0", "1:9", True, "", None)]
    assert told[0].why == f"deleted by {POLICY} on 1970-01-01T00:00:01Z"
    append(archive, DeletionUndone(head.removed.following - 1, "somebody", "a changed mind", 2_000))
    assert places(list(topic_of(archive.store).items())) == WHOLE
    assert verify(archive.store).findings == ()


def test_deleted_segments_are_absent_as_recorded_for_readers_and_verify() -> None:
    archive = archived()
    delete(archive, 3)
    items = list(topic_of(archive.store).items())
    assert places(items) == WHOLE[30:]
    assert len(missing(items)) == 1
    for quick in (True, False):
        report = verify(archive.store, quick=quick)
        assert (report.findings, report.deleted, report.segments) == ((), 3, 2)


def test_two_deletions_side_by_side_are_one_range() -> None:
    archive = archived()
    delete(archive, 1)
    delete(archive, 2, at=86_400_000)
    head = archive.catalogs.head(TOPIC)
    assert len(head.removed.ranges) == 1
    assert (head.removed.ranges[0].segments, head.removed.ranges[0].entries) == (3, 30)
    [told] = missing(list(topic_of(archive.store).items()))
    assert told.why == f"deleted by {POLICY} from 1970-01-01T00:00:01Z to 1970-01-02T00:00:00Z"
    assert verify(archive.store).findings == ()


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (Position(0, 0, 3), Position(0, 0, 7), ("0:3", "0:7")),
        (Position(0, 0, 3), None, ("0:3", "1:9")),
        (None, Position(0, 0, 500), ("0:0", "0:500")),
        (Position(0, 1, 5), Position(0, 1, 12), ("1:5", "1:9")),
        (Position(0, 1, 10), None, None),
    ],
)
def test_only_what_is_selected_of_a_deleted_range_is_told(start, end, told) -> None:
    archive = archived()
    delete(archive, 3)
    wanted = Selection(start, end)
    items = list(topic_of(archive.store).items(wanted))
    whole = list(ArchivedTopic.of(archive.store, archive.catalog).items(wanted))
    assert items == whole
    assert [(str(m.start), str(m.end)) for m in missing(items)] == ([] if told is None else [told])


def test_a_range_of_many_records_is_told_by_one_of_them() -> None:
    count = 200
    archive = Archive()
    archive.claim()
    for number in range(count):
        archive.add(stream(0, number, number))
    compact(archive.store, archive.catalogs.head(TOPIC))
    append(archive, deleting(archive, count - 5))
    topic = topic_of(archive.store)
    [told, *rest] = list(topic.items())
    assert isinstance(told, Missing)
    assert (str(told.start), str(told.end)) == ("0:0", f"0:{count - 6}")
    assert len(rest) == 5
    assert str(topic.first_position()) == f"0:{count - 5}"
    assert list(topic.items()) == list(ArchivedTopic.of(archive.store, archive.catalog).items())


@pytest.mark.parametrize("kept", ["", "data", "index"])
def test_a_plan_from_before_the_deletion_is_told_that_it_was_deleted_meanwhile(kept) -> None:
    archive = archived()
    topic = topic_of(archive.store)
    planned = list(topic.records.plan())
    gone = archive.catalog.segments[:3]
    data = {key: archive.store.read(key)[0] for s in gone for key in [layout.data_key(TOPIC, s.uuid)]}
    index = {key: archive.store.read(key)[0] for s in gone for key in [layout.index_key(TOPIC, s.uuid)]}
    delete(archive, 3)
    for key, each in (data if kept == "data" else index if kept == "index" else {}).items():
        archive.store.put(key, each)
    items = [item for run in topic.read(planned) for item in ([run] if isinstance(run, Missing) else run.entries())]
    assert places(items) == WHOLE[30:]
    assert [(str(m.start), str(m.end), m.deleted, m.damaged) for m in missing(items)] == [
        ("0:0", "0:9", True, ""),
        ("0:10", "0:19", True, ""),
        ("1:0", "1:9", True, ""),
    ]
    for key, each in (data | index).items():
        archive.store.put(key, each)
    peeked = topic.peek(Position(0, 0, 3))
    assert peeked.stored is not None
    archive.store.delete(data)
    told = topic.peek(Position(0, 0, 3)).missing
    assert told is not None
    assert told.deleted


def test_what_is_missing_without_a_record_stays_damage() -> None:
    archive = archived()
    archive.store.delete([layout.data_key(TOPIC, archive.catalog.segments[4].uuid)])
    append(archive, deleting(archive, 3))
    with pytest.raises(ObjectNotFoundError):
        list(topic_of(archive.store).items())
    kinds = {finding.kind for finding in verify(archive.store).findings}
    assert kinds == {FindingKind.MISSING_OBJECT}


def test_verify_expects_absence_only_once_it_has_begun_and_tells_of_what_is_left() -> None:
    archive = archived()
    append(archive, deleting(archive, 3))
    first = archive.catalog.segments[0]
    key = layout.data_key(TOPIC, first.uuid)
    data = archive.store.read(key)[0]
    archive.store.delete([key])
    assert {f.kind for f in verify(archive.store).findings} == {FindingKind.MISSING_OBJECT}
    append(archive, DeletionBegun(0, "app", 2_000))
    assert verify(archive.store).findings == ()
    remove(archive, list(archive.catalog.segments[:3]))
    span = deleting(archive, 3).ranges
    append(archive, Deleted(0, span, DeletionReason.TIME, POLICY, "app", 3_000))
    archive.store.put(key, data)
    assert [(f.kind, f.key) for f in verify(archive.store).findings] == [(FindingKind.LEFT_OVER, key)]


def test_begun_it_cannot_be_undone_and_undone_it_cannot_begin() -> None:
    archive = archived()
    append(archive, deleting(archive, 2))
    append(archive, DeletionBegun(0, "app", 2_000))
    with pytest.raises(IntegrityError, match="cannot be undone"):
        append(archive, DeletionUndone(0, "me", "", 2_001))
    other = archived()
    append(other, deleting(other, 2))
    append(other, DeletionUndone(0, "me", "", 1_500))
    with pytest.raises(IntegrityError, match="not the one that is under way"):
        append(other, DeletionBegun(0, "app", 2_000))
    assert append(other, deleting(other, 2)).removed.following == 2  # numbers are used once


def test_records_behind_a_deletion_are_of_the_version_that_old_readers_refuse() -> None:
    archive = archived(3)
    append(archive, deleting(archive, 1))
    segment, data, index = archive.made(stream(1, 10, 19), [], {1: 19}, replace(archive.catalog.segments[0].cuts))
    archive.store.put(layout.data_key(TOPIC, segment.uuid), data)
    archive.store.put(layout.index_key(TOPIC, segment.uuid), index)
    # It was begun before the deletion was recorded.
    key = layout.record_key(TOPIC, segment.uuid)
    archive.store.put(key, encode_catalog(segment.uuid, segment))
    head = append(archive, segment)
    slot = archive.store.read(layout.slot_key(TOPIC, 0, head.next_slot - 1))[0]
    beside = archive.store.read(key)[0]
    assert beside == encode_catalog(segment.uuid, segment, behind_deletions=True)
    assert slot.endswith(beside)
    assert verify(archive.store).findings == ()


@pytest.mark.parametrize("catalogs", ["kept", "lost"])
@pytest.mark.parametrize("step", ["deleting", "undone", "begun", "partly", "deleted"])
def test_a_rebuild_makes_no_loss_and_no_damage_of_a_deletion(catalogs, step) -> None:
    archive = archived()
    delete(archive, 1)
    pending = append(archive, deleting(archive, 2, at=5_000)).removed.pending
    assert pending is not None
    if step == "undone":
        append(archive, DeletionUndone(1, "me", "", 5_001))
    if step in ("begun", "partly", "deleted"):
        append(archive, DeletionBegun(1, "app", 5_100))
    if step in ("partly", "deleted"):
        gone = [s for s in archive.catalog.segments if 0 < s.start.entry + 20 * s.start.ledger < 30]
        remove(archive, gone[:1] if step == "partly" else gone, at=5_000)
    if step == "deleted":
        append(archive, Deleted(1, pending.ranges, pending.reason, POLICY, "app", pending.at))
    before = list(topic_of(archive.store).items())
    findings = verify(archive.store).findings
    assert findings == ()
    if catalogs == "lost":
        for folder in (layout.CATALOG, layout.MANIFESTS):
            archive.store.delete([k for k, _ in archive.store.list(f"{layout.topic_folder(TOPIC)}{folder}/")])
    proposal = rebuild(archive.store, TOPIC, Given("app", 9_000), archive.token)
    assert (proposal.in_force, catalogs) in ((True, "kept"), (False, "lost"))
    after = list(topic_of(archive.store).items())
    assert places(after) == places(before)
    assert missing(after) == missing(before)
    left = {f.kind for f in verify(archive.store).findings} - {FindingKind.LEFT_OVER}
    assert left == set()
    head = archive.catalogs.head(TOPIC)
    assert (head.removed.begun is not None) == (step in ("begun", "partly"))
    assert (head.removed.pending is not None) == (step in ("deleting", "begun", "partly"))


def test_tombstones_alone_tell_a_rebuild_what_was_deleted() -> None:
    archive = archived()
    delete(archive, 3)
    folder = layout.topic_folder(TOPIC)
    archive.store.delete([k for k, _ in archive.store.list(folder) if "/_" in k])
    for key, _ in list(archive.store.list(folder)):
        if key.endswith(layout.RECORD) and isinstance(
            decode_of(TOPIC, key, archive.store.read(key)[0])[1], Deleting | DeletionBegun | Deleted
        ):
            archive.store.delete([key])
    rebuild(archive.store, TOPIC, Given("app", 9_000), archive.token)
    items = list(topic_of(archive.store).items())
    assert places(items) == WHOLE[30:]
    assert [(str(m.start), str(m.end), m.deleted) for m in missing(items)] == [("0:0", "1:9", True)]
    assert {f.kind for f in verify(archive.store).findings} <= {FindingKind.LEFT_OVER}


def test_a_tombstone_keeps_what_proves_continuity() -> None:
    archive = archived()
    segment = archive.catalog.segments[1]
    stone = buried(segment, DeletionReason.SIZE, "a policy", 7)
    read = decode_of(TOPIC, "key", encode_catalog(segment.uuid, stone))[1]
    assert read == stone
    assert isinstance(read, Tombstone)
    assert (read.start, read.end, read.ledgers, read.crc32c) == (
        segment.start,
        segment.end,
        segment.ledgers,
        segment.crc32c,
    )
    assert (read.predecessor_uuid, read.predecessor_end) == (segment.predecessor_uuid, segment.predecessor_end)


def test_who_may_record_a_deletion() -> None:
    archive = archived()
    others = Catalogs(archive.store, "other")
    with pytest.raises(FatalError, match="claimed by app"):
        others.append(others.head(TOPIC), deleting(archive, 1))
