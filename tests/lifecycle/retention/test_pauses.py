"""Processes that are paused or killed between two steps of a deletion."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.archive.findings import FindingKind
from offloader.errors import IntegrityError, OvertakenError
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata import layout
from offloader.metadata.deletions import DeletionBegun
from offloader.metadata.state import record_uuid
from offloader.operations.rebuild.remains import Given
from offloader.operations.rebuild.write import rebuild
from offloader.operations.verify.verify import verify
from tests.archive.support import APPLICATION, TOPIC, stream
from tests.times import MINUTE_MS

from .support import (
    HOUR,
    NOW,
    Clock,
    PausedStore,
    application,
    incarnations,
    is_note_forgotten,
)
from .world import KilledError


@pytest.mark.parametrize("step", ["undo", "carry out", "visit"])
def test_whoever_was_paused_and_forgets_late_leaves_the_note_of_another_deletion(step):
    archive, clock = incarnations(), Clock()
    successor = application(archive, clock, RetentionPolicy())
    store = PausedStore(archive.store, is_note_forgotten, lambda: successor.delete(TOPIC, "me again"))
    paused = application(archive, clock, RetentionPolicy(), store=store)
    if step == "visit":
        paused.deletion.note(TOPIC)
    else:
        application(archive, clock, RetentionPolicy(minutes=10**9) if step == "undo" else HOUR).delete(TOPIC, "me")
        if step == "carry out":
            archive.sealed_at = NOW
            archive.add(stream(20, 20, 29))
            archive.add(stream(20, 30, 39))
            clock.now += 11 * MINUTE_MS
    paused.undelete(TOPIC, "me") if step == "undo" else paused.visit(TOPIC)
    assert store.paused
    assert archive.catalogs.head(TOPIC).removed.pending is not None
    assert successor.deletion.marked() == [TOPIC]


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_a_deletion_that_has_begun_survives_a_rebuild_beside_an_undo_that_never_counted(lost, killed):
    """The undo's object was written. Its process was killed before the slot, or lost that to the second look."""
    archive, clock = incarnations(), Clock()
    one = application(archive, clock, HOUR)
    one.visit(TOPIC)
    clock.now += 11 * MINUTE_MS

    def begins() -> None:
        if killed:
            raise KilledError
        head = archive.catalogs.head(TOPIC)
        assert head.removed.pending is not None
        one.deletion.begin(head, head.removed.pending)

    store = PausedStore(archive.store, lambda verb, key: verb == "put" and f"/{layout.CATALOG}/" in key, begins)
    with pytest.raises(KilledError if killed else IntegrityError):
        application(archive, clock, HOUR, store=store).undelete(TOPIC, "me")

    def dies() -> None:
        raise KilledError

    dying = PausedStore(archive.store, lambda verb, key: verb == "put" and key.endswith(layout.RECORD), dies)
    head = archive.catalogs.head(TOPIC)
    if killed:
        assert head.removed.pending is not None
        head = one.deletion.begin(head, head.removed.pending)
    pending = head.removed.pending
    assert pending is not None
    one.deletion.catalogs.keep_deleting(head)
    with pytest.raises(KilledError):  # data and indexes are gone, no tombstone stands
        application(archive, clock, HOUR, store=dying).deletion.carry_out(head, pending)
    before = archive.catalogs.head(TOPIC)
    if lost:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
    rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    after = archive.catalogs.head(TOPIC)
    assert (after.removed.pending, after.removed.begun) == (before.removed.pending, before.removed.begun)
    assert (after.generation == before.generation) == (not lost), "nothing was to be done"
    assert {finding.kind for finding in verify(archive.store).findings} <= {FindingKind.UNCOMMITTED_RECORD}
    assert "is done" in one.visit(TOPIC)


def test_what_was_taken_back_behind_a_rebuild_stays_so_whatever_a_paused_process_writes_late():
    """It had lost the catalog in which the deletion began, and only then wrote the object that says so."""
    archive, clock = incarnations(), Clock()
    application(archive, clock, HOUR).visit(TOPIC)
    head = archive.catalogs.head(TOPIC)
    pending = head.removed.pending
    assert pending is not None
    successor = application(archive, clock, RetentionPolicy())

    def meanwhile() -> None:
        archive.store.delete([key for key, _ in archive.store.list(layout.generations_folder(TOPIC))])
        rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
        successor.undelete(TOPIC, "me")

    late = layout.record_key(TOPIC, record_uuid(TOPIC, DeletionBegun(pending.number, "", 0)))
    paused = PausedStore(archive.store, lambda verb, key: verb == "put" and key == late, meanwhile)
    application(archive, clock, HOUR, store=paused).deletion.begin(head, pending)
    assert archive.store.stat(late) is not None
    before = archive.catalogs.head(TOPIC)
    assert before.removed.pending is None
    rebuild(archive.store, TOPIC, Given(APPLICATION, NOW), archive.token)
    assert archive.catalogs.head(TOPIC) == before, "nothing was to be done"


def test_a_process_that_was_overtaken_takes_nothing_back():
    archive, clock = incarnations(), Clock()
    application(archive, clock, HOUR).visit(TOPIC)
    pending = archive.catalogs.head(TOPIC).removed.pending

    def overtaken() -> None:
        raise OvertakenError("there is a newer process")

    old = application(archive, clock, RetentionPolicy(hold="of an old file"))
    with pytest.raises(OvertakenError):
        replace(old, deletion=replace(old.deletion, check=overtaken)).visit(TOPIC)
    assert archive.catalogs.head(TOPIC).removed.pending == pending
