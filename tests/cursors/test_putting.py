"""A subscription is made on a broker where a copy says, and what the broker then says is compared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.copies import CopiedCursor, pieces_of
from offloader.cursors.putting import (
    EARLIEST,
    Difference,
    difference,
    never_put,
    parts_of,
    put_cursor,
    users_properties,
)
from offloader.errors import OutcomeUnknownError
from offloader.model import AcknowledgedRange, PartlyAcknowledged, TopicName
from offloader.ports.subscriptions import SubscriptionLook
from offloader.testing.cluster_subscriptions import MemorySubscriptions
from offloader.testing.ledger_metadata import MemoryMetadata

TOPIC = TopicName("public", "default", "t")
LEDGERS = {2: 10, 3: 10, 5: 10}
LENGTHS = [(2, 10), (3, 10), (5, None)]
PLACES = st.tuples(st.sampled_from([2, 3, 5]), st.integers(0, 9))
RANGES = st.tuples(PLACES, PLACES).map(lambda two: AcknowledgedRange(*sorted(two)))
BATCHES = st.builds(lambda place: PartlyAcknowledged(*place, (0b101,)), PLACES)
CURSORS = st.builds(
    lambda mark, ranges, batches: CopiedCursor("job", mark, pieces_of(mark, ranges, batches, LENGTHS)),
    PLACES | st.just(EARLIEST),
    st.lists(RANGES, max_size=5),
    st.lists(BATCHES, max_size=5),
)


def brokers() -> MemorySubscriptions:
    metadata = MemoryMetadata()
    found = MemorySubscriptions(metadata.nodes, metadata.uri.managed_ledgers, lambda: 0)
    found.make(TOPIC, LEDGERS)
    return found


def look(mark: tuple[int, int], *ranges: AcknowledgedRange) -> SubscriptionLook:
    return SubscriptionLook(0, mark, ranges, 0, 0, 0, lengths=tuple(LENGTHS))


@given(CURSORS)
def test_what_was_put_is_there(cursor: CopiedCursor) -> None:
    there = brokers()
    assert difference(cursor, put_cursor(there, TOPIC, cursor)) == Difference(0, 0, None)
    held = there.topics[TOPIC].cursors["job"]
    assert tuple(PartlyAcknowledged(*place, words) for place, words in sorted(held.batches.items())) == tuple(
        parts_of(cursor)
    )


@given(CURSORS, CURSORS)
def test_a_difference_counts_entries_of_either_side(one: CopiedCursor, other: CopiedCursor) -> None:
    there = brokers()
    found = difference(one, put_cursor(there, TOPIC, other))
    here, there_too = acknowledged(one), acknowledged(other)
    assert found.again == len(here - there_too)
    assert found.unseen == len(there_too - here)
    assert found.first == min(here ^ there_too, default=None)


def acknowledged(cursor: CopiedCursor) -> set[tuple[int, int]]:
    acks = cursor.acks()
    places = {(ledger, entry) for ledger in LEDGERS for entry in range(10)}
    return {
        (ledger, entry)
        for ledger, entry in places
        if (ledger, entry) <= cursor.mark_delete or (ledger in acks and acks[ledger].is_acknowledged(entry))
    }


def test_however_a_broker_writes_it_the_same_entries_are_the_same() -> None:
    wanted = CopiedCursor("job", (2, 9), pieces_of((2, 9), [AcknowledgedRange((3, -1), (3, 3))], (), LENGTHS))
    same = [
        look((3, 3)),
        look((2, 9), AcknowledgedRange((2, 9), (3, 3))),
        look((3, -1), AcknowledgedRange((3, -1), (3, 3))),
    ]
    assert [difference(wanted, one).first for one in same] == [None] * 3
    assert difference(wanted, look((3, 2))) == Difference(1, 0, (3, 3))


def test_what_is_beyond_a_ledger_s_end_does_not_count() -> None:
    wanted = CopiedCursor("job", (2, 50))
    assert difference(wanted, look((2, 9))).first is None


def test_a_lost_answer_may_be_followed_by_the_same_call() -> None:
    there = brokers()
    there.faults.add("move", lambda: OutcomeUnknownError("lost"), effect=True)
    cursor = CopiedCursor("job", (3, 1), pieces_of((3, 1), [AcknowledgedRange((3, 4), (3, 6))], (), LENGTHS))
    with pytest.raises(OutcomeUnknownError):
        put_cursor(there, TOPIC, cursor)
    assert difference(cursor, put_cursor(there, TOPIC, cursor)).first is None


def test_one_that_is_gone_at_the_end_is_no_success() -> None:
    class Forgetful(MemorySubscriptions):
        def look(self, topic: TopicName, subscription: str) -> Any:
            super().look(topic, subscription)

    metadata = MemoryMetadata()
    there = Forgetful(metadata.nodes, metadata.uri.managed_ledgers, lambda: 0)
    there.make(TOPIC, LEDGERS)
    with pytest.raises(OutcomeUnknownError, match="job was made, and is not there"):
        put_cursor(there, TOPIC, CopiedCursor("job", (3, 1)))


def test_properties_of_users_are_put_and_the_rest_is_told() -> None:
    cursor = CopiedCursor(
        "job",
        (2, 0),
        properties=(("mine", 4), ("pulsar.replicated.subscription", 1)),
        subscription_properties=(("owner", "joe"), ("#pulsar.internal.delayed.bucket_1", "9")),
    )
    there = brokers()
    assert put_cursor(there, TOPIC, cursor).properties == (("owner", "joe"),)
    assert users_properties(cursor) == {"owner": "joe"}
    said = list(never_put(cursor))
    assert len(said) == 3
    assert "replicated" in said[0]
    assert "mine" in said[1]
    assert "delayed" in said[2]
    assert list(never_put(CopiedCursor("job", (2, 0)))) == []
