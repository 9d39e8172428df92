"""Copies are written where something has changed, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from offloader.cursors.copies import CopiedCursor, CursorCopy
from offloader.cursors.copy_store import CursorCopier, copy_times, read_copy
from offloader.metadata.layout import cursor_copies_folder, slot_name
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.times import DAY_MS

THIN_EVERY_MS = 3_600_000

TOPIC = TopicName("public", "default", "t")


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def copier(store):
    return CursorCopier(store, map(str, count()).__next__)


def copy(at, mark=0):
    return CursorCopy(TOPIC, 0, at, (CopiedCursor("job", (2, mark)),))


def version():
    return "4.0.7"


def test_the_same_is_written_once(store, copier):
    known = copier.take(copy(100), version, None)
    assert known.written
    assert not copier.take(copy(200), version, known).written
    assert copy_times(store, TOPIC) == [100]
    assert read_copy(store, TOPIC).broker_version == "4.0.7"


def test_after_a_start_the_newest_copy_is_known_again(store, copier):
    copier.take(copy(100), version, None)
    assert not copier.take(copy(200), version, None).written
    assert copier.take(copy(300, 5), version, None).written
    assert copy_times(store, TOPIC) == [100, 300]


def test_a_clock_that_goes_back_hides_no_copy(store, copier):
    known = copier.take(copy(100), version, None)
    known = copier.take(copy(50, 1), version, known)
    assert (copy_times(store, TOPIC), read_copy(store, TOPIC).cursors) == ([100, 101], copy(0, 1).cursors)


def test_a_damaged_newest_copy_is_followed_by_a_sound_one(store, copier):
    store.put(cursor_copies_folder(TOPIC) + slot_name(500), b"nothing of ours")
    assert copier.take(copy(100), version, None).at == 501
    assert read_copy(store, TOPIC).cursors == copy(0).cursors


def test_what_could_not_be_read_whole_is_not_taken_for_a_damaged_copy_of_it(store, copier):
    """Whose pieces are not known any more."""
    damaged = CopiedCursor("job", (2, 0), {2: b"junk"}, missing=("parts of batches",))
    copier.take(CursorCopy(TOPIC, 0, 100, (damaged,)), version, None)
    whole = replace(damaged, pieces={})
    assert copier.take(CursorCopy(TOPIC, 0, 200, (whole,)), version, None).written


def test_history_is_thinned_at_times(store, copier):
    known = None
    for number in range(5):
        known = copier.take(copy(10 * DAY_MS + number, number), version, known)
    assert len(copy_times(store, TOPIC)) == 5
    known = copier.take(copy(12 * DAY_MS, 9), version, known)
    assert copy_times(store, TOPIC) == [10 * DAY_MS + 4, 12 * DAY_MS]
    assert known.thinned_at - 10 * DAY_MS >= THIN_EVERY_MS
