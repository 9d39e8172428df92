"""What is recorded behind a deletion that was to be the last word."""

from __future__ import annotations

import pytest

from offloader.lifecycle.bucket.reading import read_names
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.metadata.deletions import Deleting, DeletionReason, PulsarTrimmed, SegmentRange, TopicGone
from offloader.model import Position
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from tests.archive.support import APPLICATION, TOPIC, Archive, stream

from .support import (
    NOW,
    OLD,
    append,
    retention,
    told,
)

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
