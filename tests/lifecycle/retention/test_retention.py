"""Retention over real catalogs: chunked messages, incarnations, what is read for a decision, rights."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from offloader.errors import AccessDeniedError, ClaimedByOtherError
from offloader.lifecycle.bucket.reading import read_names
from offloader.lifecycle.retention.phases import ArchiveDeletion
from offloader.lifecycle.retention.policy import MINUTE_MS, RetentionPolicy
from offloader.lifecycle.retention.retention import ArchiveRetention, planned
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.compaction import compact
from offloader.metadata.deletions import Deleting, DeletionReason, PulsarTrimmed, SegmentRange, TopicGone
from offloader.metadata.state import CatalogHead, Said
from offloader.model import Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from offloader.testing.faulty import FaultyStore, StoreFault, StoreFaults
from tests.archive.spark.world import TopicMaker
from tests.archive.support import APPLICATION, TOPIC, Archive, stream

NOW = 1_800_000_000_000
OLD = NOW - 100 * MINUTE_MS
HOUR = RetentionPolicy(minutes=60)


def retention(archive: Archive, policy: RetentionPolicy, store: object = None, gone: int | None = None):
    reached = store or archive.store
    catalogs = Catalogs(reached, APPLICATION)  # type: ignore[arg-type]
    clock = lambda: NOW if catalogs.head(TOPIC).removed.pending is None else NOW + MINUTE_MS  # noqa: E731
    deletion = ArchiveDeletion(
        reached,  # type: ignore[arg-type]
        catalogs,
        catalogs.append,
        lambda: None,
        clock,
        "memory",
        APPLICATION,
    )
    return ArchiveRetention(deletion, lambda _: policy, lambda _: gone, MINUTE_MS)


def append(archive: Archive, record: Said) -> CatalogHead:
    return archive.catalogs.append(archive.catalogs.head(TOPIC), record)


def chunked(*sealed_at: int, entries: tuple[int, ...]) -> Archive:
    """Every 15 entries have a chunked message, in the entries 4, 9 and 14 of these."""
    archive = Archive()
    archive.claim(30)
    maker, first = TopicMaker(archive, Random(1)), 0
    for at, count in zip(sealed_at, entries, strict=True):
        archive.sealed_at = at
        maker.segment(30, first, count)
        first += count
    return archive


@pytest.mark.parametrize(
    ("entries", "goes"),
    [
        ((15, 15, 15), ["30:0..30:29"]),
        ((15, 20, 15), ["30:0..30:14"]),  # a message begins at 34, and ends at 44
        ((20, 15, 15), []),  # one begins at 19 and one at 34: neither segment can be spared
        ((18, 12, 15), ["30:0..30:29"]),
    ],
)
def test_a_segment_stays_in_which_a_kept_message_begins(entries, goes):
    archive = chunked(OLD, OLD, NOW, entries=entries)
    found = planned(archive.store, archive.catalogs.head(TOPIC), HOUR, NOW + 10 * MINUTE_MS, None)
    assert [f"{each.range.start}..{each.range.end}" for each in found.due] == goes


def incarnations() -> Archive:
    """Three topics of one name, of two segments each; the last one is there."""
    archive = Archive(sealed_at=OLD)
    for number in range(3):
        archive.incarnation = number
        archive.claim(10 * number, created=number)
        archive.add(stream(10 * number, 0, 9))
        archive.add(stream(10 * number, 10, 19))
    return archive


def test_each_incarnation_goes_by_itself_and_what_went_side_by_side_is_one_range():
    archive = incarnations()
    gone = retention(archive, RetentionPolicy(gone_minutes=60))
    assert "4 segments" in gone.visit(TOPIC)
    assert "is done" in gone.visit(TOPIC)
    removed = archive.catalogs.head(TOPIC).removed
    [one] = removed.ranges
    assert (one.start.incarnation, one.end.incarnation, one.segments, one.whole) == (0, 1, 4, True)
    assert retention(archive, HOUR).visit(TOPIC) != ""
    retention(archive, HOUR).visit(TOPIC)
    [all_of] = archive.catalogs.head(TOPIC).removed.ranges
    assert (all_of.segments, str(all_of.end), all_of.whole) == (5, "20:9", False)


def test_time_goes_for_each_incarnation_and_leaves_only_the_newest_of_the_present_one():
    archive = incarnations()
    one = retention(archive, HOUR)
    assert "5 segments" in one.visit(TOPIC)
    one.visit(TOPIC)
    kept = [key for key, _ in archive.store.list(layout.topic_folder(TOPIC)) if key.endswith(layout.INDEX)]
    assert kept == [layout.index_key(TOPIC, archive.catalog.segments[-1].uuid)]


def test_a_role_that_may_not_delete_leaves_it_undoable():
    archive = incarnations()
    refused = FaultyStore(archive.store, StoreFaults([StoreFault("delete", error=AccessDeniedError, times=100)]))
    one = retention(archive, HOUR, refused)
    one.visit(TOPIC, noted=False)
    with pytest.raises(AccessDeniedError):
        one.visit(TOPIC, noted=False)
    removed = archive.catalogs.head(TOPIC).removed
    assert removed.pending is not None
    assert removed.begun is None
    retention(archive, HOUR).undelete(TOPIC, "me")
    assert archive.catalogs.head(TOPIC).removed.pending is None


def test_a_decision_reads_the_records_of_what_goes_and_not_all_that_are_kept():
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for number in range(200):
        archive.sealed_at = OLD if number < 3 else NOW
        archive.add(stream(0, number, number))
    compact(archive.store, archive.catalogs.head(TOPIC))
    faults = StoreFaults([])
    reached = FaultyStore(archive.store, faults)
    head = Catalogs(reached, "").head(TOPIC)
    before = sum(faults.calls.values())
    found = planned(reached, head, HOUR, NOW + MINUTE_MS, None)
    assert [each.range.segments for each in found.due] == [3]
    # One read for each kept part of the first 64 MiB, for chunks; and hardly any for records.
    assert sum(faults.calls.values()) - before < 197 + 20


def test_what_another_application_has_is_left_to_it():
    archive = incarnations()
    one = retention(archive, HOUR)
    other = ArchiveRetention(replace(one.deletion, by="other"), one.policy_of, one.gone_since, MINUTE_MS)
    one.visit(TOPIC)
    assert other.visit(TOPIC) == ""
    assert one.deletion.marked() == [TOPIC]
    for ask in (other.delete, other.undelete):
        with pytest.raises(ClaimedByOtherError, match="claimed by app: ask that application"):
            ask(TOPIC, "me")
    assert "is done" in one.visit(TOPIC)
    assert one.deletion.marked() == []


def told(archive: Archive) -> list[tuple[str, str]]:
    return [(str(each.start), str(each.end)) for each in archive.catalogs.head(TOPIC).removed.told]


FOLLOWING = RetentionPolicy(follow_pulsar=True)


@pytest.mark.parametrize("when", ["after", "in the grace", "begun"])
@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("loss", [False, True])
def test_what_is_recorded_behind_all_that_went_of_a_topic_is_never_told_as_deleted(when, lost, loss):
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    for first in (0, 10, 20):
        archive.add(stream(0, first, first + 9))
    append(archive, TopicGone(0, OLD))
    gone = retention(archive, RetentionPolicy(), gone=OLD)
    assert "3 segments" in gone.delete(TOPIC, "me")

    def late() -> None:
        """The driver seals at last what was uploaded, or records what was lost behind it."""
        if loss:
            archive.lose(Position(0, 0, 30), Position(0, 0, 39))
        else:
            archive.add(stream(0, 30, 39))

    if when == "in the grace":
        late()
    if when == "begun":
        head = archive.catalogs.head(TOPIC)
        pending = head.removed.pending
        assert pending is not None
        gone.deletion.begin(head, pending)
        late()
    assert "is done" in gone.visit(TOPIC) or "is done" in gone.visit(TOPIC)
    if when == "after":
        late()
    kept = archive.catalog.segments[3:]
    archive.incarnation = 1
    archive.claim(10, created=2)
    for first in (0, 10, 20):
        archive.add(stream(10, first, first + 9))
    append(archive, PulsarTrimmed(1, 11, NOW))
    again = retention(archive, FOLLOWING)
    assert "2 segments" in again.visit(TOPIC)
    assert told(archive) == [("0:0", "0:29"), ("10:0", "10:19")]
    assert "is done" in again.visit(TOPIC)
    if lost:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
        rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    assert told(archive) == [("0:0", "0:29"), ("10:0", "10:19")]
    names = read_names(archive.store, TOPIC)
    assert not {segment.uuid for segment in kept} & names.deleted
    assert verify(archive.store).findings == ()


def test_a_deletion_that_lost_its_slot_does_not_say_what_is_left_behind_it():
    """Two records and a claim got in between: nobody can tell from the head what followed."""
    archive = Archive(sealed_at=OLD)
    archive.claim(0)
    archive.add(stream(0, 0, 9))
    stale = archive.catalogs.head(TOPIC)
    archive.add(stream(0, 10, 19))
    archive.incarnation = 1
    archive.claim(10, created=2)
    archive.add(stream(10, 0, 9))
    span = SegmentRange(Position(0, 0, 0), Position(0, 0, 9), 1, 10, 600, None, whole=True)
    record = Deleting(0, (span,), DeletionReason.REQUEST, "", "me", NOW, NOW)
    pending = archive.catalogs.append(stale, record).removed.pending
    assert pending is not None
    assert [each.whole for each in pending.ranges] == [False]
    assert archive.catalogs.append(stale, record).removed.pending == pending, "the same once more is the same"
