"""What a journal's records add up to."""

import pytest

from offloader.metadata.journal_codec import JournalRecord
from offloader.metadata.journal_rules import FENCE_LIMIT, HoleError, Loaded, fold, outdated, snapshot_due
from offloader.model import MIB

from .support import OTHER_TOPIC, TOPIC

FENCE = JournalRecord("f", fence=True)


def full(**topics: bytes) -> JournalRecord:
    return JournalRecord("s", {TOPIC: topics["a"]} if topics else {}, full=True)


def changes(a: bytes) -> JournalRecord:
    return JournalRecord("c", {TOPIC: a})


def test_changes_follow_the_newest_snapshot():
    records = [(0, full()), (1, changes(b"old")), (2, full(a=b"1")), (3, changes(b"2"))]
    assert fold(4, records) == Loaded(4, 4, fenced=False, topics={TOPIC: b"2"}, removable=(0, 1, 2, 3))


def test_a_removed_topic_is_gone_and_may_come_back():
    gone = JournalRecord("c", {OTHER_TOPIC: b"x"}, removed=(TOPIC,))
    assert fold(1, [(0, full(a=b"1")), (1, gone)]).topics == {OTHER_TOPIC: b"x"}
    assert fold(1, [(0, full(a=b"1")), (1, gone), (2, changes(b"2"))]).topics == {OTHER_TOPIC: b"x", TOPIC: b"2"}


def test_a_fence_ends_an_epoch():
    loaded = fold(1, [(0, full(a=b"1")), (1, FENCE)])
    assert (loaded.fenced, loaded.next_slot, loaded.removable) == (True, 1, (0,))


@pytest.mark.parametrize(
    "records",
    [
        [],
        [(1, changes(b"1"))],
        [(0, FENCE)],
        [(0, full()), (2, changes(b"1"))],
        [(0, full()), (1, FENCE), (2, changes(b"1"))],
        [(0, full()), (1, FENCE), (2, FENCE)],
    ],
)
def test_what_does_not_hang_together_is_not_a_state(records):
    with pytest.raises(HoleError):
        fold(1, records)


def test_what_lies_below_the_newest_snapshot_does_not_count():
    loaded = fold(1, [(0, full(a=b"late")), (4, FENCE), (7, full(a=b"1"))])
    assert (loaded.topics, loaded.next_slot, loaded.fenced, loaded.removable) == ({TOPIC: b"1"}, 8, False, (0, 7))


def test_a_snapshot_is_due_when_the_log_is_twice_the_last_one_or_long():
    assert not snapshot_due(100, MIB, 1)
    assert snapshot_due(100, MIB + 1, 1)
    assert not snapshot_due(10 * MIB, 20 * MIB, 1)
    assert snapshot_due(10 * MIB, 20 * MIB + 1, 1)
    assert snapshot_due(0, 0, 500)


def test_a_new_epoch_covers_everything_older_but_the_fences():
    before = Loaded(3, 5, fenced=True, removable=(0, 4))
    sizes = [
        ((2, 0), 9000),
        ((2, 1), FENCE_LIMIT),
        ((3, 0), 50),
        ((3, 2), 50),
        ((3, 4), 9000),
        ((3, 5), 50),
        ((4, 0), 9000),
    ]
    assert outdated(before, sizes) == [(2, 0), (3, 0), (3, 4)]
