"""Whatever happens to a topic with history, its segments stand in a row and are committed in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.model import Failure, FailureKind, Source
from offloader.offload.core import planner
from offloader.offload.core.history import unread
from tests.examples import worlds
from tests.offload.history_fuzz import FuzzedTopic

ANEW_AFTER = 3

seeds = st.integers(0, 10**9)


@worlds
@given(seeds)
def test_a_history_is_committed_whole_and_in_order_whatever_happens(seed: int) -> None:
    topic = FuzzedTopic(seed)
    topic.settle()


@worlds
@given(seeds, st.integers(1, 60))
def test_what_is_uploaded_outlives_a_topic_that_is_deleted_at_any_moment(seed: int, rounds: int) -> None:
    topic = FuzzedTopic(seed, max_size=600_000, late=2)
    for _ in range(rounds):
        if not topic.done:
            topic.round()
    missing, losses = topic.deleted()
    assert not missing, losses


def test_a_row_that_is_not_mended_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "normalise", lambda state, *_: state)
    with pytest.raises(AssertionError):
        _settle(range(100))


def _settle(numbers: Iterable[int]) -> list[FuzzedTopic]:
    topics = [FuzzedTopic(number) for number in numbers]
    for topic in topics:
        topic.settle()
    return topics


def test_some_of_them_have_much_ahead() -> None:
    assert max(topic.seen["ahead"] for topic in _settle(range(8))) > 4


def test_a_segment_ahead_that_ends_where_its_source_is_gone_leaves_no_hole() -> None:
    """It has another source by now: what is uploaded stays, the next one begins there in the same decision."""
    ended = 0
    for topic in (FuzzedTopic(seed, max_size=600_000, late=0) for seed in range(60)):
        for _ in range(40):
            state = topic.state
            halves = [n for n, each in enumerate(state.ahead[:-1]) if unread(each.segment) and each.segment.parts]
            if halves and state.open is not None and state.failure is None:
                lost = Failure(FailureKind.DATA_LOST, "gone", ANEW_AFTER, 0)
                ahead = list(state.ahead)
                ahead[halves[0]] = replace(ahead[halves[0]], failure=lost)
                topic.state, topic.source = replace(state, ahead=tuple(ahead)), Source.BROKER_WITH_BOOKIES
                decision = topic.decide()
                first, topic.state = ahead[halves[0]].segment, decision.state
                ended += any((s.uuid, s.closing_end) == (first.uuid, first.covered) for s in topic.state.unfinished)
                topic.check()
                break
            if topic.done:
                break
            topic.round()
    assert ended
