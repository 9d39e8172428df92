"""Records of deletions: what they add up to, against a simple oracle, and that they survive."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import IntegrityError
from offloader.metadata.catalog_codec import decode_catalog, encode_catalog
from offloader.metadata.deletions import (
    FOR_GOOD,
    NOTHING_REMOVED,
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

reasons = st.sampled_from(DeletionReason)
ranges = st.builds(SegmentRange, positions, positions, i64, i64, i64, st.none() | i64, st.booleans())
deletings = st.builds(Deleting, i64, tuples(ranges), reasons, text, text, i64, i64)
records = (
    deletings
    | st.builds(DeletionUndone, i64, text, text, i64)
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
    still_read = reason is DeletionReason.BRIDGED
    kept = segment if still_read else replace(segment, parts=(), gaps=())
    assert all(getattr(stone, name) == getattr(kept, name) for name in Segment.__dataclass_fields__)
    assert buried(stone, DeletionReason.REQUEST, "another", 0) == stone


class Oracle:
    """Each position by itself: a topic of some incarnations with some positions each."""

    def __init__(self, rng: Random) -> None:
        self.places = [Position(i, 10 * i + ledger, e) for i in range(3) for ledger in range(3) for e in range(2)]
        self.gone: set[Position] = set()
        self.going: set[Position] = set()
        self.reasons: dict[Position, DeletionReason] = {}
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
            oracle.reasons |= dict.fromkeys(oracle.going, step.reason)
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
        # However much went: at most one range for each incarnation of which something is left, and one between; what
        # brokers have stays apart from what nobody has.
        turns = sum(one.is_bridged != other.is_bridged for one, other in pairwise(removal.ranges))
        assert len(removal.ranges) <= 2 * sum(bool(oracle.left(i)) for i in range(3)) + 1 + turns
        handed_over = {p for p in oracle.places if range_of(removal.handed_over, p) is not None}
        for_good = max((p for p in told if oracle.reasons[p] in FOR_GOOD), default=Position(-1, 0, 0))
        to_brokers = {p for p in told if oracle.reasons[p] is DeletionReason.BRIDGED and p > for_good}
        assert handed_over == to_brokers & absent
        assert {p for p in oracle.places if range_of(removal.withheld, p) is not None} == told - to_brokers
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
    found = [DeletionUndone(0, "me", "held", 5), DeletionBegun(0, "app", 9), one]
    assert in_order(found) == [one, DeletionBegun(0, "app", 9)]
    assert in_order([found[0], one]) == [one, found[0]]


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
