"""What goes by a policy, against a simple oracle: whole segments, oldest first, never what must stay."""

from __future__ import annotations

from random import Random

import pytest

from offloader.lifecycle.retention.plan import Holding, KeptSegment, aged_from, all_of, due, next_due
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.deletions import DeletionReason, PulsarTrimmed
from offloader.model import MIB, Position
from tests.times import DAY_MS, MINUTE_MS

NOW = 1_800_000_000_000


def segment(number: int, sealed_at: int, size: int = MIB, newest: int | None = None) -> KeptSegment:
    start, end = Position(0, number, 0), Position(0, number, 9)
    return KeptSegment(f"u{number}", start, end, size, 10, sealed_at, newest, newest, (number,))


def holding(*segments: KeptSegment, protected: bool = True, over: int | None = None) -> Holding:
    size = sum(each.size for each in segments)
    newest = segments[-1].uuid if protected else ""
    return Holding(0, segments[0].start, segments, size, over, newest, closed=over is not None)


def aged(*minutes: int) -> Holding:
    return holding(*(segment(n, NOW - age * MINUTE_MS) for n, age in enumerate(minutes)))


def gone(of: Holding, policy: RetentionPolicy, trimmed: PulsarTrimmed | None = None) -> list[str]:
    found = due(of, policy, NOW, trimmed)
    return [] if found is None else [each.segment.uuid for each in found.due]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (RetentionPolicy(), []),
        (RetentionPolicy(minutes=25), ["u0"]),
        (RetentionPolicy(minutes=30), []),  # past it, not at it
        (RetentionPolicy(minutes=5), ["u0", "u1", "u2"]),
        (RetentionPolicy(minutes=0, megabytes=0), ["u0", "u1", "u2"]),  # the newest stays
        (RetentionPolicy(megabytes=2), ["u0", "u1"]),
        (RetentionPolicy(megabytes=3), ["u0"]),
        (RetentionPolicy(megabytes=4), []),
        (RetentionPolicy(minutes=25, megabytes=2), ["u0", "u1"]),  # the one or the other, as in Pulsar
        (RetentionPolicy(minutes=5, hold="court"), []),
        (RetentionPolicy(gone_minutes=0), []),  # it is there
    ],
)
def test_time_or_size_as_in_pulsar(policy, expected):
    assert gone(aged(30, 20, 10, 1), policy) == expected


def test_a_younger_segment_keeps_what_is_behind_it():
    assert gone(aged(30, 1, 30, 1), RetentionPolicy(minutes=5)) == ["u0"]


def test_no_time_of_a_producer_makes_data_go_before_its_seal_is_old_enough():
    old, future = NOW - 300 * DAY_MS, NOW + 400 * DAY_MS
    young = segment(0, NOW - MINUTE_MS, newest=old)
    assert gone(holding(young, segment(1, NOW)), RetentionPolicy(minutes=5)) == []
    assert aged_from(young, NOW) == NOW - MINUTE_MS
    # Nor does a time that lies ahead keep it for ever.
    lying = segment(0, NOW - 10 * MINUTE_MS, newest=future)
    assert gone(holding(lying, segment(1, NOW)), RetentionPolicy(minutes=5)) == ["u0"]
    # A clock that was wrong when it was sealed: its messages say that it is younger.
    early = segment(0, 1_000, newest=NOW - MINUTE_MS)
    assert gone(holding(early, segment(1, NOW)), RetentionPolicy(minutes=5)) == []


def test_of_a_topic_that_is_gone_everything_goes_once_its_time_is_over():
    over = holding(segment(0, NOW - 90 * MINUTE_MS), segment(1, NOW - 80 * MINUTE_MS), protected=False, over=NOW)
    assert gone(over, RetentionPolicy(gone_minutes=60)) == []
    earlier = holding(*over.segments, protected=False, over=NOW - 61 * MINUTE_MS)
    found = due(earlier, RetentionPolicy(gone_minutes=60), NOW)
    assert found is not None
    assert ([each.reason for each in found.due], found.range.whole) == ([DeletionReason.TOPIC_GONE] * 2, True)


def test_a_segment_goes_with_pulsar_when_all_of_its_ledgers_are_marked():
    of = holding(*(segment(n, NOW) for n in range(4)))
    policy = RetentionPolicy(follow_pulsar=True)
    assert gone(of, policy, PulsarTrimmed(0, 2, NOW)) == ["u0", "u1"]
    assert gone(of, policy, PulsarTrimmed(1, 2, NOW)) == []
    assert gone(of, RetentionPolicy(), PulsarTrimmed(0, 2, NOW)) == []


def test_on_request_all_goes_but_what_is_protected():
    found = all_of(aged(3, 2, 1), "request")
    assert found is not None
    assert [each.segment.uuid for each in found.due] == ["u0", "u1"]
    assert all_of(aged(1), "request") is None
    whole = all_of(holding(segment(0, 1), protected=False), "request")
    assert whole is not None
    assert whole.range.whole is False  # somebody may claim the topic again


@pytest.mark.parametrize("seed", range(500))
def test_against_an_oracle(seed):
    rng = Random(seed)
    of = holding(
        *(
            segment(
                n,
                NOW - rng.randint(0, 100) * MINUTE_MS,
                rng.randint(0, 4) * MIB,
                rng.choice([None, NOW - rng.randint(-200, 200) * MINUTE_MS]),
            )
            for n in range(rng.randint(1, 8))
        ),
        protected=rng.random() < 0.7,
        over=rng.choice([None, NOW - rng.randint(0, 100) * MINUTE_MS]),
    )
    limits = [rng.choice([-1, rng.randint(0, 100)]) for _ in range(3)]
    policy = RetentionPolicy(limits[0], rng.choice([-1, rng.randint(0, 12)]), limits[2])
    found = gone(of, policy)
    segments = list(of.segments)
    assert found == [each.uuid for each in segments[: len(found)]]  # a beginning

    def goes(n: int) -> bool:
        each = segments[n]
        if each.uuid == of.protected:
            return False
        times = [each.sealed_at, *([each.newest] if each.newest is not None and each.newest <= NOW + DAY_MS else [])]
        past = policy.minutes >= 0 and max(times) + policy.minutes * MINUTE_MS < NOW
        beyond = policy.megabytes >= 0 and sum(s.size for s in segments[n + 1 :]) >= policy.megabytes * MIB
        since = None if of.over_since is None else max(of.over_since, *times)
        over = policy.gone_minutes >= 0 and since is not None and since + policy.gone_minutes * MINUTE_MS < NOW
        return past or beyond or over

    assert all(goes(n) for n in range(len(found)))
    assert len(found) == len(segments) or not goes(len(found))


@pytest.mark.parametrize("seed", range(300))
def test_what_is_due_next_goes_on_the_day_that_is_told_and_not_before(seed):
    rng = Random(seed)
    of = holding(
        *(segment(n, NOW - rng.randint(0, 100) * MINUTE_MS) for n in range(rng.randint(1, 6))),
        protected=rng.random() < 0.5,
        over=rng.choice([None, NOW - rng.randint(0, 100) * MINUTE_MS]),
    )
    limits = [rng.choice([-1, rng.randint(0, 100)]) for _ in range(2)]
    policy = RetentionPolicy(limits[0], -1, limits[1])
    goes = due(of, policy, NOW)
    told = next_due(of, goes, policy, NOW)
    taken = 0 if goes is None else len(goes.due)
    if told is None:
        assert taken == len(list(of.segments))
        return
    assert told.segment == list(of.segments)[taken]
    assert told.size == sum(each.size for each in list(of.segments)[taken:])
    if told.at is None:
        assert gone_at(of, policy, NOW + 10**15) == gone_at(of, policy, NOW)
        return
    assert told.at >= NOW
    assert len(gone_at(of, policy, told.at)) == taken
    assert len(gone_at(of, policy, told.at + 1)) > taken


def gone_at(of: Holding, policy: RetentionPolicy, now: int) -> list[str]:
    found = due(of, policy, now)
    return [] if found is None else [each.segment.uuid for each in found.due]


def test_what_no_time_lets_go_is_told_with_its_condition():
    of = aged(30, 20, 10)
    for policy, words in (
        (RetentionPolicy(megabytes=3), f"goes once {MIB} bytes more are archived"),
        (RetentionPolicy(gone_minutes=5), "goes once the topic is gone"),
        (RetentionPolicy(follow_pulsar=True), "goes once Pulsar has deleted its ledgers up to 0"),
    ):
        told = next_due(of, None, policy, NOW)
        assert told is not None
        assert (told.at, told.words.startswith(words)) == (None, True), told
    both = next_due(of, None, RetentionPolicy(megabytes=3, follow_pulsar=True), NOW)
    assert both is not None
    assert " or " in both.words
