"""Whatever happens to a topic with history, its segments stand in a row and are committed in order."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.offload.core import planner
from tests.examples import worlds
from tests.offload.history_fuzz import FuzzedTopic

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
