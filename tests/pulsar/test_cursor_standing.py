"""A subscription is made to stand where it shall, and only the look at the end proves it."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.errors import BrokerUnavailableError, OutcomeUnknownError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, TopicName
from offloader.ports.subscriptions import EARLIEST
from offloader.pulsar.cursor_standing import (
    Acknowledged,
    CursorStanding,
    bring,
    difference,
    is_same,
)
from tests.fakes.cluster_subscriptions import MemorySubscriptions
from tests.fakes.memory_nodes import MemoryNodes

TOPIC = TopicName.parse("persistent://public/default/t")
LENGTHS = [(2, 10), (5, 10), (7, None)]
STANDING = CursorStanding(
    (2, 3), (EntryRange(2, 5, 8), EntryRange(7, 0, 2)), (PartlyAcknowledged(5, 1, (0x3E0,)),), (("mine", "yes"),)
)
PLACES = st.tuples(st.sampled_from([2, 5, 7]), st.integers(-1, 9))
RANGES = st.tuples(PLACES, PLACES).map(lambda two: AcknowledgedRange(*sorted(two)))
STATES = st.builds(Acknowledged, PLACES | st.just(EARLIEST), st.lists(RANGES, max_size=5).map(tuple))


@pytest.fixture
def brokers() -> MemorySubscriptions:
    found = MemorySubscriptions(MemoryNodes(), "/managed-ledgers", lambda: 1)
    found.make(TOPIC, dict.fromkeys((2, 5, 7), 10))
    return found


def test_it_stands_there_however_often_it_is_brought(brokers) -> None:
    for _ in range(2):
        look = bring(brokers, TOPIC, "s", STANDING)
        assert (look.mark_delete, look.ranges) == STANDING.acknowledged
        assert look.properties == (("mine", "yes"),)
    assert brokers.topics[TOPIC].cursors["s"].batches == {(5, 1): (0x3E0,)}


@pytest.mark.parametrize("step", ["create", "move", "acknowledge", "look"])
def test_after_a_lost_answer_of_any_step_it_is_brought_again(brokers, step) -> None:
    brokers.faults.add(step, lambda: BrokerUnavailableError("lost"), effect=True)
    with pytest.raises(BrokerUnavailableError):
        bring(brokers, TOPIC, "s", STANDING, LENGTHS)
    bring(brokers, TOPIC, "s", STANDING, LENGTHS)


def test_what_a_broker_drops_without_a_word_is_noticed(brokers, monkeypatch) -> None:
    monkeypatch.setattr(brokers, "acknowledge", lambda *_: None)
    with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
        bring(brokers, TOPIC, "s", STANDING, LENGTHS)


def test_the_same_entries_may_be_written_in_two_ways() -> None:
    one = Acknowledged((2, 9), (AcknowledgedRange((5, -1), (5, 9)),))
    assert is_same(one, Acknowledged((5, 9), ()), LENGTHS)
    assert not is_same(one, Acknowledged((5, 8), ()), LENGTHS)
    assert is_same(Acknowledged(EARLIEST, ()), Acknowledged((2, -1), ()), LENGTHS)


@given(STATES, STATES)
def test_a_difference_counts_entries_of_either_side(one, other) -> None:
    lengths = [(2, 10), (5, 10), (7, 10)]
    here, there = (
        {(ledger, entry) for ledger, count in lengths for entry in range(count) if has(state, (ledger, entry))}
        for state in (one, other)
    )
    wanted = (len(here - there), len(there - here), min(here ^ there, default=None))
    assert difference(one, other, lengths) == wanted
    assert is_same(one, other, lengths) is (here == there)


def test_a_difference_takes_memory_for_one_ledger_at_a_time() -> None:
    lengths = [(ledger, 50_000) for ledger in range(100)]
    tracemalloc.start()
    try:
        found = difference(Acknowledged((99, 40_000), ()), Acknowledged((1, -1), ()), lengths)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.again == 98 * 50_000 + 40_001
    assert most < 1_000_000


def has(state, place) -> bool:
    return place <= state.mark_delete or any(after < place <= last for after, last in state.ranges)


def test_what_is_beyond_a_ledger_s_end_is_no_difference() -> None:
    assert is_same(Acknowledged((5, 50), ()), Acknowledged((5, 9), ()), LENGTHS)
