"""What a durable subscription of the gateway has not acknowledged stays, unless told otherwise."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import delete_kept
from offloader.errors import StoreUnavailableError
from offloader.lifecycle.retention.outlook import outlook
from offloader.lifecycle.retention.policy import RetentionPolicy
from offloader.metadata.layout import subscription_folder, subscriptions_folder
from offloader.model import Position
from tests.archive.support import APPLICATION, TOPIC, Archive, stream
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.lifecycle.retention.support import HOUR, NOW, OLD, Clock, application, retention, told
from tests.times import MINUTE_MS

TOKENS = itertools.count()
FIRST, SECOND = Position(0, 1, 9), Position(0, 1, 19)  # where the first segments end


def archive() -> Archive:
    """Three segments, of which the newest stays in any case."""
    made = Archive(sealed_at=OLD)
    made.claim(1)
    for first in (0, 10, 20):
        made.add(stream(1, first, first + 9))
    return made


def subscribed(made: Archive, name: str, mark_delete: Position) -> DurableCursor:
    folder = subscription_folder(TOPIC, name)
    return DurableCursor.open(made.store, folder, lambda: FirstState(mark_delete), lambda: f"cursor-{next(TOKENS)}")


def why_not(made: Archive, policy: RetentionPolicy = HOUR) -> str:
    found = outlook(made.store, made.catalogs.head(TOPIC), policy, APPLICATION, NOW, 0)
    return found.waiting[0].words if found.waiting else ""


@pytest.mark.parametrize(
    ("marks", "goes"),
    [
        ([SECOND], [("1:0", "1:19")]),
        ([Position(0, 1, 18)], [("1:0", "1:9")]),
        ([FIRST, Position(0, 1, 25)], [("1:0", "1:9")]),
        ([Position(0, 1, -1), SECOND], []),
        ([], [("1:0", "1:19")]),
    ],
)
def test_a_segment_goes_once_all_have_acknowledged_all_of_it(marks, goes) -> None:
    made = archive()
    for number, mark in enumerate(marks):
        subscribed(made, f"s{number}", mark)
    retention(made, HOUR).visit(TOPIC, noted=False)
    assert told(made) == goes


def test_the_plan_names_who_is_waited_for() -> None:
    made = archive()
    subscribed(made, "job", Position(0, 1, 3))
    assert "have not acknowledged it: job (at 1:3) (keepUnacknowledged)" in why_not(made)
    for number in range(4):
        subscribed(made, f"other{number}", FIRST)
        subscribed(made, f"early{number}", Position(0, 1, -1))
    assert "early0 (at 1:-1), early1 (at 1:-1), early2 (at 1:-1) and 2 more" in why_not(made)


def test_a_policy_that_says_so_does_not_wait() -> None:
    made = archive()
    subscribed(made, "job", Position(0, 1, 3))
    retention(made, replace(HOUR, keep_unacknowledged=False)).visit(TOPIC, noted=False)
    assert told(made) == [("1:0", "1:19")]


def test_an_operator_deletes_in_spite_of_them() -> None:
    made = archive()
    subscribed(made, "job", Position(0, 1, 3))
    one = retention(made, HOUR)
    one.delete(TOPIC, "me")
    assert "is done" in one.visit(TOPIC)
    assert told(made) == [("1:0", "1:19")]


def test_a_damaged_subscription_keeps_everything_until_it_is_deleted() -> None:
    made = archive()
    subscribed(made, "job", SECOND)
    for key, _ in list(made.store.list(subscriptions_folder(TOPIC))):
        made.store.put(key, b"nothing")
    one = retention(made, HOUR)
    assert one.visit(TOPIC, noted=False) == ""
    assert "job (damaged)" in why_not(made)
    delete_kept(made.store, TOPIC, "job", lambda: f"cursor-{next(TOKENS)}")
    assert retention(made, HOUR).visit(TOPIC, noted=False)


def test_who_has_unsubscribed_is_not_waited_for() -> None:
    made = archive()
    gone = subscribed(made, "gone", FIRST)
    gone.forget()
    gone.flush()
    retention(made, HOUR).visit(TOPIC, noted=False)
    assert told(made) == [("1:0", "1:19")]


def test_one_that_was_handed_over_to_brokers_keeps_everything_and_is_named_until_it_is_deleted() -> None:
    made = archive()
    away = subscribed(made, "away", SECOND)
    away.count_property("offloader.handed-over", NOW)
    away.flush()
    assert retention(made, HOUR).visit(TOPIC, noted=False) == ""
    assert f"{TOPIC}: subscription away was handed over to brokers, and 1db0db3f is the last commit" in why_not(made)
    delete_kept(made.store, TOPIC, "away", lambda: f"cursor-{next(TOKENS)}")
    assert retention(made, HOUR).visit(TOPIC, noted=False)


def test_the_second_look_waits_for_who_came_or_went_back_in_the_grace() -> None:
    made, clock = archive(), Clock()
    one = application(made, clock, HOUR)
    cursor = subscribed(made, "job", SECOND)
    one.visit(TOPIC, noted=False)
    assert told(made) == [("1:0", "1:19")]
    cursor.begin_anew(Position(0, 1, 12))
    cursor.flush()
    clock.now += 11 * MINUTE_MS
    said = one.visit(TOPIC)
    assert "is undone: the gateway's subscriptions have not acknowledged it: job (at 1:12)" in said
    one.visit(TOPIC, noted=False)
    assert told(made) == [("1:0", "1:9")], "what it has acknowledged goes by itself"


def test_one_whose_clock_is_behind_by_more_than_the_grace_looks_again_too() -> None:
    made, clock, behind = archive(), Clock(), Clock()
    application(made, clock, HOUR).visit(TOPIC, noted=False)
    behind.now -= 30 * MINUTE_MS
    two = application(made, behind, HOUR)
    made.store.backing.clock_ms = clock
    assert two.visit(TOPIC) == ""
    subscribed(made, "job", Position(0, 1, 12))
    clock.now += 11 * MINUTE_MS
    behind.now += 11 * MINUTE_MS
    assert "is undone: the gateway's subscriptions have not acknowledged it: job (at 1:12)" in two.visit(TOPIC)


def test_once_it_is_acknowledged_it_goes_within_an_hour() -> None:
    made, clock = archive(), Clock()
    one = application(made, clock, HOUR)
    cursor = subscribed(made, "job", Position(0, 1, 3))
    assert one.visit(TOPIC, noted=False) == ""
    cursor.acknowledge_up_to(FIRST)
    cursor.flush()
    clock.now += 60 * MINUTE_MS
    assert one.visit(TOPIC, noted=False)
    assert told(made) == [("1:0", "1:9")]


def test_subscriptions_are_looked_for_only_where_something_is_due() -> None:
    made, faults = archive(), StoreFaults()
    faults.add(StoreFault("list", Effect.BEFORE, key=lambda key: key.startswith(subscriptions_folder(TOPIC))))
    store = FaultyStore(made.store, faults)
    assert retention(made, RetentionPolicy(minutes=1_000_000), store).visit(TOPIC, noted=False) == ""
    with pytest.raises(StoreUnavailableError):
        retention(made, HOUR, store).visit(TOPIC, noted=False)
    assert told(made) == [], "where nobody knows who waits, nothing goes"
