"""When a topic's turn comes: at once, at the interval, and soon after a seal."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from offloader.model import TopicName
from offloader.offload.driver.topic_copies import CopyTurns

LEAST_MS = 60_000

INTERVAL = 5 * LEAST_MS


def topic(sealed: str | None = None) -> SimpleNamespace:
    newest = None if sealed is None else SimpleNamespace(uuid=sealed)
    return SimpleNamespace(name=TopicName("public", "default", "t"), catalog=SimpleNamespace(newest=newest))


@pytest.fixture
def turns():
    begun = CopyTurns()
    begun.begun(topic("a"), 1_000)
    return begun


def test_the_first_turn_comes_at_once():
    assert CopyTurns().due_at(topic(), INTERVAL) <= 0


@pytest.mark.parametrize(("sealed", "waited", "due"), [
    ("a", INTERVAL - 1, False),
    ("a", INTERVAL, True),
    ("b", LEAST_MS - 1, False),
    ("b", LEAST_MS, True),
])  # fmt: skip
def test_the_next_one_comes_at_the_interval_or_a_minute_after_the_last_where_it_was_sealed(turns, sealed, waited, due):
    assert (turns.due_at(topic(sealed), INTERVAL) <= 1_000 + waited) is due


def test_an_interval_shorter_than_a_minute_counts(turns):
    assert turns.due_at(topic("a"), 1_000) <= 2_000


def test_a_topic_that_is_not_ours_any_more_is_forgotten(turns):
    turns.keep([])
    assert turns.due_at(topic("a"), INTERVAL) <= 1_001
