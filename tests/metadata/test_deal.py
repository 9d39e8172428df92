"""How topics are dealt out to shards: evenly, the same for everybody, and as few as possible elsewhere when the number
of shards changes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.metadata.deal import Deal, DealBy, family_of, is_shard_of, shard_name
from offloader.model import TopicName

TOPICS = [TopicName.parse(f"tenant/ns{number % 50}/topic-{number}") for number in range(20_000)]
COUNTS = st.integers(1, 256)


@given(COUNTS, st.integers(0, len(TOPICS) - 1), st.sampled_from(DealBy))
def test_each_topic_is_dealt_to_exactly_one_shard(count: int, number: int, by: DealBy) -> None:
    topic = TOPICS[number]
    assert sum(Deal("app", index, count, by).is_dealt(topic) for index in range(count)) == 1


@given(COUNTS, COUNTS, st.integers(0, len(TOPICS) - 1))
def test_from_a_changed_number_of_shards_a_topic_goes_only_to_shards_that_are_new_or_from_those_that_end(
    one: int, other: int, number: int
) -> None:
    few, many = sorted((one, other))
    before, after = Deal("app", 0, few).index_of(TOPICS[number]), Deal("app", 0, many).index_of(TOPICS[number])
    assert after == before or after >= few


@pytest.mark.parametrize("count", [2, 3, 8, 10, 100])
def test_the_deal_is_even(count: int) -> None:
    dealt = Counter(map(Deal("app", 0, count).index_of, TOPICS))
    fair = len(TOPICS) / count
    assert len(dealt) == count
    assert all(abs(found - fair) < 5 * fair**0.5 for found in dealt.values())


def test_no_more_move_than_must() -> None:
    before, after = Deal("app", 0, 8), Deal("app", 0, 10)
    moved = sum(before.index_of(t) != after.index_of(t) for t in TOPICS)
    assert 0.17 < moved / len(TOPICS) < 0.23


def test_the_deal_never_changes_from_one_version_to_the_next() -> None:
    """Shards of two versions run at the same time."""
    deal = Deal("app", 0, 8)
    assert [deal.index_of(topic) for topic in TOPICS[:12]] == EXPECTED


EXPECTED = [5, 5, 2, 4, 2, 5, 3, 0, 4, 5, 2, 4]


def test_by_namespace_all_topics_of_one_stay_together() -> None:
    deal = Deal("app", 0, 8, DealBy.NAMESPACE)
    owners = {(topic.namespace, deal.owner_of(topic)) for topic in TOPICS}
    assert len(owners) == 50
    assert len({owner for _, owner in owners}) == 8


def test_nothing_is_dealt_to_a_shard_beyond_the_number_of_them() -> None:
    deal = Deal("app", 9, 8)
    assert deal.name == "app~9"
    assert not any(map(deal.is_dealt, TOPICS))


def test_shard_0_is_the_application_that_is_not_sharded() -> None:
    assert shard_name("app", 0) == "app" == Deal("app").name
    assert family_of("app~3") == "app" == family_of("app")
    assert is_shard_of("app~3", "app")
    assert is_shard_of("app", "app~7")
    assert not is_shard_of("", "app")
    assert not is_shard_of("app.3", "app")
