"""The first phase in the bucket: what is certain is marked, once, with all of its segment; more than is set, or what
somebody has spared, is not."""

from __future__ import annotations

from collections import Counter
from itertools import count

from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.marking import MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import object_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.metadata import layout
from tests.archive.support import TOPIC, Archive

from .support import HOUR, StoreClock, a_uuid, archive, header, scanner
from .test_bucket_side import DATA, INDEX, RECORD, U, strays

MARKED, PENDING = MarkOutcome.MARKED, MarkOutcome.PENDING


def quarantine(
    made: Archive, clock: StoreClock, *, dry: bool = False, bounds: DeletionBounds | None = None
) -> ObjectQuarantine:
    numbers = count()
    queue = DeletionQueue(made.store, "memory", lambda: f"token-{clock.now}-{next(numbers)}")
    return ObjectQuarantine(queue, bounds or DeletionBounds(percent=50), clock, "command", dry)


def with_strays() -> tuple[Archive, StoreClock]:
    made, clock = archive()
    strays(made, U, a_uuid(2))
    made.store.put(layout.data_key(TOPIC, a_uuid(3)), header(9, 0))
    made.store.put("notes", b"x")
    clock.now += 2 * HOUR
    return made, clock


def test_all_that_is_certain_is_marked_once_and_nothing_else():
    made, clock = with_strays()
    scan = scanner(made.store, clock).scan()
    before = {key: stat for key, stat in made.store.list() if not key.startswith("_deletion/")}
    assert Counter(m.outcome for m in quarantine(made, clock, dry=True).mark(scan).marks) == {
        MarkOutcome.WOULD_BE_MARKED: 6
    }
    first = quarantine(made, clock).mark(scan)
    assert Counter(mark.outcome for mark in first.marks) == {MARKED: 6}
    assert Counter(mark.outcome for mark in quarantine(made, clock).mark(scan).marks) == {PENDING: 6}
    assert {key: stat for key, stat in made.store.list() if not key.startswith("_deletion/")} == before
    stored = list(quarantine(made, clock).queue.readable())
    assert {one.record.object_key for one in stored} == {mark.id for mark in first.marks}
    assert all(one.record.evidence.says for one in stored)


def test_what_is_named_is_marked_with_all_of_its_segment_and_what_cannot_go_says_why():
    made, clock = with_strays()
    scan = scanner(made.store, clock).scan()
    suspect = layout.data_key(TOPIC, a_uuid(3))
    marks = {mark.id: mark for mark in quarantine(made, clock).mark(scan, {INDEX, suspect, "notes"}).marks}
    assert {key: mark.outcome for key, mark in marks.items()} == {
        DATA: MARKED,
        INDEX: MARKED,
        RECORD: MARKED,
        suspect: MarkOutcome.NOT_DELETABLE,
        "notes": MarkOutcome.NOT_DELETABLE,
    }
    assert "a process that was paused" in marks[suspect].why
    assert "foreign" in marks["notes"].why


def test_more_than_is_set_is_not_marked_at_all():
    made, clock = with_strays()
    scan = scanner(made.store, clock).scan()
    for bounds in (DeletionBounds(percent=5), DeletionBounds(number=5, percent=100)):
        marks = quarantine(made, clock, bounds=bounds).mark(scan)
        assert len(marks.refusals) == 1
        assert "objects would go at once" in marks.refusals[0]
        assert marks.marks == ()


def test_what_somebody_has_undone_is_marked_again_only_by_its_name():
    made, clock = with_strays()
    scan = scanner(made.store, clock).scan()
    marking = quarantine(made, clock)
    marking.mark(scan)
    marking.queue.change(object_record_name(DATA), lambda record: undone(record, clock.now))
    again = {mark.id: mark.outcome for mark in marking.mark(scan).marks}
    assert again[DATA] is MarkOutcome.SPARED
    assert {mark.id: mark.outcome for mark in marking.mark(scan, {DATA}).marks}[DATA] is MARKED


def test_a_scan_by_which_nothing_may_go_marks_nothing():
    made, clock = with_strays()
    made.store.put(layout.epoch_folder("broken", 1) + layout.slot_name(0), b"damage")
    marks = quarantine(made, clock).mark(scanner(made.store, clock).scan())
    assert marks.marks == ()
    assert "A journal cannot be read" in marks.refusals[0]
