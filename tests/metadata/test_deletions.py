"""Records of deletions: what they add up to, against a simple oracle, and that they survive."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import IntegrityError
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog
from offloader.metadata.deletions import (
    Deleted,
    DeletedRange,
    Deleting,
    DeletionBegun,
    DeletionReason,
    DeletionRecord,
    DeletionUndone,
    PulsarTrimmed,
    Removal,
    SegmentRange,
    TopicGone,
    buried,
    in_order,
    range_of,
)
from offloader.metadata.message_codec import message_of, read_value
from offloader.model import Position, Segment

from .support import i64, offloaded, positions, segments, text, tuples

NOTHING_REMOVED = Removal()

reasons = st.sampled_from(DeletionReason)
ranges = st.builds(SegmentRange, positions, positions, i64, i64, i64, st.none() | i64, st.booleans())
deletings = st.builds(Deleting, i64, tuples(ranges), reasons, text, text, i64, i64)
records = (
    deletings
    | st.builds(DeletionUndone, i64, text, text, i64, st.booleans())
    | st.builds(DeletionBegun, i64, text, i64)
    | st.builds(Deleted, i64, tuples(ranges), reasons, text, text, i64, i64)
    | st.builds(TopicGone, i64, i64)
    | st.builds(PulsarTrimmed, i64, i64, i64)
)
deleted = st.builds(
    DeletedRange, positions, positions, tuples(reasons), text, i64, i64, i64, i64, i64, st.none() | i64, st.booleans()
)
removals = st.builds(
    Removal,
    tuples(deleted),
    st.none() | deletings,
    st.none() | st.builds(DeletionBegun, i64, text, i64),
    i64,
    st.none() | st.builds(TopicGone, i64, i64),
    st.none() | st.builds(PulsarTrimmed, i64, i64, i64),
)


@given(records)
def test_a_record_of_a_deletion_survives(record: DeletionRecord):
    assert decode_catalog("key", encode_catalog("t", record)) == record


@given(removals)
def test_what_they_add_up_to_survives(removal: Removal):
    assert read_value(Removal, message_of(removal)) == removal


@given(segments, reasons, text, i64)
def test_a_tombstone_survives_and_is_the_segment_without_its_bytes(segment: Segment, reason, policy, at):
    stone = buried(segment, reason, policy, at)
    assert decode_catalog("key", encode_catalog("t", stone)) == stone
    kept = replace(segment, parts=(), gaps=())
    assert all(getattr(stone, name) == getattr(kept, name) for name in Segment.__dataclass_fields__)
    assert buried(stone, DeletionReason.REQUEST, "another", 0) == stone


class Oracle:
    """Each position by itself: a topic of some incarnations with some positions each."""

    def __init__(self, rng: Random) -> None:
        self.places = [Position(i, 10 * i + ledger, e) for i in range(3) for ledger in range(3) for e in range(2)]
        self.gone: set[Position] = set()
        self.going: set[Position] = set()
        self.rng = rng

    def left(self, incarnation: int) -> list[Position]:
        return [p for p in self.places if p.incarnation == incarnation and p not in self.gone]

    def choose(self) -> tuple[SegmentRange, ...]:
        found = []
        for incarnation in sorted(self.rng.sample(range(3), self.rng.randint(1, 3))):
            left = self.left(incarnation)
            if left:
                count = self.rng.randint(1, len(left))
                whole = count == len(left) and incarnation < 2
                found.append(SegmentRange(left[0], left[count - 1], count, count, count, count, whole))
        return tuple(found)


@pytest.mark.parametrize("seed", range(300))
def test_the_fold_tells_of_each_position_what_was_recorded_last(seed):
    rng = Random(seed)
    oracle, removal, log = Oracle(rng), NOTHING_REMOVED, list[DeletionRecord]()
    for at in range(rng.randint(1, 25)):
        number = removal.following - 1
        step: DeletionRecord
        if removal.pending is None:
            chosen = oracle.choose()
            if not chosen:
                break
            step = Deleting(removal.following, chosen, rng.choice(list(DeletionReason)), f"policy {at}", "app", at, at)
            oracle.going = {p for each in chosen for p in oracle.places if each.start <= p <= each.end}
        elif removal.begun:
            pending = removal.pending
            step = Deleted(number, pending.ranges, pending.reason, pending.policy, "app", at)
            oracle.gone, oracle.going = oracle.gone | oracle.going, set()
        elif rng.random() < 0.4:
            step = DeletionUndone(number, "me", "", at)
            oracle.going = set()
        else:
            step = DeletionBegun(number, "app", at)
        removal = removal.after(step)
        log.append(step)
        told = {p for p in oracle.places if range_of(removal.told, p) is not None}
        absent = {p for p in oracle.places if range_of(removal.absent, p) is not None}
        assert told == oracle.gone | oracle.going
        assert absent == oracle.gone | (oracle.going if removal.begun else set())
        assert sum(each.segments for each in removal.ranges) == len(oracle.gone)
        # However much went: at most one range for each incarnation of which something is left, and one between.
        assert len(removal.ranges) <= 2 * sum(bool(oracle.left(i)) for i in range(3)) + 1
        assert [*removal.ranges] == sorted(removal.ranges, key=lambda each: each.start)
        for incarnation in range(3):
            gone = [p for p in oracle.gone if p.incarnation == incarnation]
            up_to = removal.up_to(incarnation)
            assert (up_to is None) == (not gone)
            assert up_to is None or all(p <= up_to for p in gone)
    # A rebuild finds the same records in any order.
    shuffled = rng.sample(log, len(log))
    assert folded(in_order(shuffled)) == removal


def folded(records: list[DeletionRecord]) -> Removal:
    removal = NOTHING_REMOVED
    for each in records:
        removal = removal.after(each)
    return removal


def whole(incarnation: int, last: int) -> SegmentRange:
    first = Position(incarnation, 10 * incarnation, 0)
    return SegmentRange(first, first.at(last), 1, 1, 1, None, whole=True)


@pytest.mark.parametrize("done", [False, True])
def test_what_follows_a_range_takes_back_that_it_is_whole(done):
    removal = NOTHING_REMOVED.after(one := Deleting(0, (whole(0, 9),), DeletionReason.REQUEST, "", "", 0, 0))
    ended = Deleted(0, one.ranges, one.reason, "", "", 0)
    if done:
        removal = removal.after(DeletionBegun(0, "", 0)).after(ended)
    later = removal.continued(Position(0, 0, 19))
    assert removal.continued(Position(0, 0, 9)) == removal == removal.continued(Position(1, 10, 0))
    later = later if done else later.after(DeletionBegun(0, "", 0)).after(ended)
    of_next = Deleted(1, (whole(1, 4),), DeletionReason.TIME, "", "", 1)
    assert [(str(each.start), str(each.end)) for each in later.after(of_next).ranges] == [
        ("0:0", "0:9"),
        ("10:0", "10:4"),
    ]
    assert len((removal if done else removal.after(ended)).after(of_next).ranges) == 1


def test_what_has_begun_was_not_undone_whatever_is_found_beside():
    one = Deleting(0, (whole(0, 9),), DeletionReason.REQUEST, "", "", 0, 0)
    undo, begun = DeletionUndone(0, "me", "held", 5), DeletionBegun(0, "app", 9)
    assert in_order([undo, begun, one]) == [one, begun]
    assert in_order([undo, one]) == [one, undo]


def test_an_undo_from_behind_the_beginning_counts_unless_objects_have_gone_since():
    one = Deleting(0, (whole(0, 9),), DeletionReason.REQUEST, "", "", 7, 7)
    begun, undone = DeletionBegun(0, "app", 9), DeletionUndone(0, "me", "held", 9, begun=True)
    early = DeletionUndone(0, "me", "held", 5)
    for found in ([undone, early, begun, one], [early, undone, one, begun]):
        assert in_order(found) == [one, begun, undone]
    assert folded([one, begun, undone]) == replace(NOTHING_REMOVED, following=1)
    done = Deleted(0, one.ranges, one.reason, "", "", 7)
    assert in_order([undone, begun, one, done]) == [one, begun, done]
    went = replace(offloaded("u", 0, 9), start=one.ranges[0].start, end=one.ranges[0].end)
    gone = buried(went, one.reason, "", one.at)
    assert in_order([undone, begun, one], [gone]) == [one, begun]
    assert in_order([undone, begun, one], [replace(gone, deleted_at=3)]) == [one, begun, undone]


def test_what_has_begun_is_not_undone_by_whoever_did_not_look():
    one = Deleting(0, (whole(0, 9),), DeletionReason.REQUEST, "", "", 7, 7)
    with pytest.raises(IntegrityError, match="has begun"):
        folded([one, DeletionBegun(0, "app", 9), DeletionUndone(0, "me", "", 9)])


def test_only_one_deletion_is_under_way():
    one = Deleting(0, (), DeletionReason.REQUEST, "", "", 0, 0)
    with pytest.raises(IntegrityError, match="deletion 0 is under way"):
        NOTHING_REMOVED.after(one).after(replace(one, number=1))


def test_a_topic_that_is_claimed_again_is_there():
    gone = NOTHING_REMOVED.after(TopicGone(2, 100))
    assert gone.claimed(2, 99) == gone
    assert gone.claimed(2, 100).gone is None
    assert gone.claimed(3, 0).gone is None


def test_a_tombstone_in_a_log_adds_to_the_same_range():
    segment = offloaded("u", 0, 9)
    stone = buried(segment, DeletionReason.SIZE, "p", 5)
    removal = NOTHING_REMOVED.buried(stone)
    span = SegmentRange(segment.start, segment.end, 1, segment.entries, segment.size, 7, False)
    both = removal.after(Deleted(0, (span,), DeletionReason.SIZE, "p", "app", 5))
    assert len(both.ranges) == 1
    assert (both.ranges[0].segments, both.ranges[0].late) == (1, 7)
