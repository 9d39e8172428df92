"""The subscriptions of the archive, for whoever is not their owner."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offloader.cursors import stored as stored_module
from offloader.cursors.copies import CopiedCursor, pieces_of
from offloader.cursors.core.records import FirstState, SubscriptionMark
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import HandedOverError
from offloader.cursors.stored import (
    delete_kept,
    import_copy,
    kept_properties,
    kept_subscription,
    kept_subscriptions,
    subscription_marks,
)
from offloader.errors import DamagedRecordError, FatalError, IntegrityError, OvertakenError
from offloader.metadata.layout import subscription_folder
from offloader.model import AcknowledgedRange, PartlyAcknowledged, Position, TopicName
from offloader.storage.memory import MemoryStore
from tests.cursors.marks import mark_delete_of
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

TOPIC = TopicName.parse("public/default/orders")
TOKENS = itertools.count()
START = Position(0, 1, -1)
COPY = CopiedCursor(
    "job",
    (1, 3),
    pieces_of((1, 3), [AcknowledgedRange((1, 5), (1, 7))], [PartlyAcknowledged(1, 9, (0b110,))], [(1, 20)]),
    (("replicated", 1),),
)


def token() -> str:
    return f"t{next(TOKENS)}"


def opened(store: MemoryStore, name: str) -> DurableCursor:
    return DurableCursor.open(store, subscription_folder(TOPIC, name), lambda: FirstState(START), token)


def test_where_one_was_opened_often_each_is_listed_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_module, "LOOKED_AT", 3)
    store, faults = MemoryStore(), StoreFaults()
    for name in ("a", "b", "b", "b", "b", "b", "b", "b/c"):
        cursor = opened(store, name)
        cursor.acknowledge_up_to(Position(0, 1, 4))
        cursor.flush()
    found = subscription_marks(FaultyStore(store, faults), TOPIC)
    assert found == [SubscriptionMark(name, Position(0, 1, 4)) for name in ("a", "b", "b/c")]
    assert faults.calls["list"] == 1 + 1 + 3, "of all, of the names, and of each"


def damage(store: MemoryStore, name: str) -> None:
    for key, _ in list(store.list(subscription_folder(TOPIC, name))):
        store.put(key, b"nothing")


def test_each_subscription_stands_where_its_newest_record_says() -> None:
    store = MemoryStore()
    for name, entry in (("a", 4), ("b/c", 7)):
        cursor = opened(store, name)
        cursor.acknowledge_up_to(Position(0, 1, entry))
        cursor.flush()
    opened(store, "b")
    assert subscription_marks(store, TOPIC) == [
        SubscriptionMark("a", Position(0, 1, 4)),
        SubscriptionMark("b", START),
        SubscriptionMark("b/c", Position(0, 1, 7)),
    ]
    assert mark_delete_of(store, TOPIC, "b/c") == Position(0, 1, 7)


def test_one_that_was_deleted_is_none() -> None:
    store = MemoryStore()
    cursor = opened(store, "a")
    cursor.forget()
    cursor.flush()
    assert subscription_marks(store, TOPIC) == []
    assert list(kept_subscriptions(store, TOPIC)) == []
    assert mark_delete_of(store, TOPIC, "a") is None
    with pytest.raises(FatalError, match="no subscription a"):
        delete_kept(store, TOPIC, "a", token)


REFUSAL = (
    "persistent://public/default/orders: subscription a/b was handed over to brokers, and 1db0db3f is the last commit "
    "that supports that: use it there, and delete it here with `offloader gateway subscriptions delete`"
)


@pytest.mark.parametrize("properties", [("offloader.hand-over",), ("offloader.hand-over", "offloader.handed-over")])
def test_one_that_was_handed_over_to_brokers_is_refused_by_name_until_it_is_deleted(properties: tuple[str]) -> None:
    store = MemoryStore()
    cursor = opened(store, "a/b")
    for name in properties:
        cursor.count_property(name, 1_000)
        cursor.flush()
    with pytest.raises(HandedOverError) as refused:
        opened(store, "a/b")
    assert str(refused.value) == REFUSAL
    with pytest.raises(IntegrityError, match="goes its own way"):
        import_copy(store, TOPIC, replace(COPY, name="a/b"), 0, token)
    assert subscription_marks(store, TOPIC) == [SubscriptionMark("a/b", None, REFUSAL)], "it is not read as deleted"
    (kept,) = kept_subscriptions(store, TOPIC)
    assert kept.damage == REFUSAL
    assert kept_properties(store, TOPIC, ["a/b"]) == {"a/b": ()}, "it counts among the topic's subscriptions"
    delete_kept(store, TOPIC, "a/b", token)
    assert opened(store, "a/b").mark_delete == START
    assert subscription_marks(store, TOPIC) == [SubscriptionMark("a/b", START)]


def test_records_before_the_newest_may_be_of_a_hand_over_that_was_taken_back() -> None:
    store = MemoryStore()
    cursor = opened(store, "a")
    cursor.count_property("offloader.hand-over", 7)
    cursor.flush()
    cursor.begin_anew(Position(0, 1, 4), ())
    cursor.flush()
    assert opened(store, "a").mark_delete == Position(0, 1, 4)
    assert opened(store, "a").mark_delete == Position(0, 1, 4)


def test_of_a_damaged_one_nobody_knows_where_it_stands_and_it_can_be_deleted() -> None:
    store = MemoryStore()
    opened(store, "a")
    damage(store, "a")
    assert subscription_marks(store, TOPIC) == [SubscriptionMark("a", None, "damaged")]
    found = kept_subscription(store, TOPIC, "a")
    assert found is not None
    assert "no record that can be used" in found.damage
    with pytest.raises(DamagedRecordError):
        opened(store, "a")
    delete_kept(store, TOPIC, "a", token)
    assert opened(store, "a").mark_delete == START


def test_who_serves_a_subscription_that_is_deleted_by_hand_is_told() -> None:
    store = MemoryStore()
    cursor = opened(store, "a")
    delete_kept(store, TOPIC, "a", token)
    cursor.acknowledge((0, 1), 5, 5)
    with pytest.raises(OvertakenError):
        cursor.flush()


def test_whoever_looks_while_the_owner_removes_what_was_named_looks_again() -> None:
    store, faults = MemoryStore(), StoreFaults()
    cursor = opened(store, "a")
    for ledger in (1, 2):
        cursor.acknowledge((0, ledger), 5, 5)
        cursor.flush()

    def meanwhile() -> None:
        for entry in (7, 9):
            for ledger in (1, 2):
                cursor.acknowledge((0, ledger), entry, entry)
                cursor.flush()

    faults.add(StoreFault("read", Effect.HOOK, hook=meanwhile))
    found = kept_subscription(FaultyStore(store, faults), TOPIC, "a")
    assert found is not None
    assert not found.damage
    assert {ledger for _, ledger in found.pieces} == {1, 2}


def test_a_subscription_begins_with_a_copy_and_goes_its_own_way() -> None:
    store = MemoryStore()
    import_copy(store, TOPIC, COPY, 2, token)
    import_copy(store, TOPIC, COPY, 2, token)  # as long as it stands there
    cursor = opened(store, "job")
    assert cursor.mark_delete == Position(2, 1, 3)
    assert [entry for entry in range(12) if cursor.is_acknowledged(Position(2, 1, entry))] == [0, 1, 2, 3, 6, 7]
    left = cursor.left_of(Position(2, 1, 9))
    assert left is not None
    assert left.left == 0b110
    cursor.acknowledge((2, 1), 8, 8)
    cursor.flush()
    with pytest.raises(IntegrityError, match="goes its own way"):
        import_copy(store, TOPIC, COPY, 2, token)
    assert opened(store, "job").is_acknowledged(Position(2, 1, 8))


def test_what_another_begins_meanwhile_is_not_told_to_have_begun_with_the_copy() -> None:
    store, faults = MemoryStore(), StoreFaults()
    faults.add(StoreFault("list", Effect.HOOK, after=1, hook=lambda: opened(store, "job")))
    with pytest.raises(IntegrityError, match="goes its own way"):
        import_copy(FaultyStore(store, faults), TOPIC, COPY, 2, token)
    assert mark_delete_of(store, TOPIC, "job") == START


def test_who_knows_of_a_subscription_does_not_bring_it_back_once_it_is_deleted() -> None:
    """Between the look and the taking over."""
    store = MemoryStore()
    opened(store, "job")
    delete_kept(store, TOPIC, "job", token)
    with pytest.raises(OvertakenError, match="has deleted"):
        DurableCursor.open(store, subscription_folder(TOPIC, "job"), None, token)
    assert mark_delete_of(store, TOPIC, "job") is None


def test_a_deleted_subscription_may_begin_with_a_copy() -> None:
    store = MemoryStore()
    opened(store, "job")
    delete_kept(store, TOPIC, "job", token)
    import_copy(store, TOPIC, COPY, 0, token)
    found = kept_subscription(store, TOPIC, "job")
    assert found is not None
    assert found.as_copy(0).mark_delete == (1, 3)
    assert found.as_copy(0).pieces == COPY.pieces
