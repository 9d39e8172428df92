"""The policy that names an age: by nodes first, by the broker's look in the end; rounds are bounded."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError, OvertakenError
from offloader.lifecycle.deletion.timing import HOUR_MS, DeletionBounds
from offloader.lifecycle.topics.cursors import task as tasks
from offloader.lifecycle.topics.cursors.records import RemovalState
from offloader.lifecycle.topics.cursors.task import CursorRemovalTask
from offloader.metrics import Metrics
from offloader.model import TopicName
from offloader.testing.cluster_subscriptions import HeldCursor

from .removing import SUB, TIMING, TOPIC, RemovalWorld

WEEK = 7 * 24 * HOUR_MS


@pytest.fixture
def world():
    world = RemovalWorld()
    for cursor in world.topic.cursors.values():
        cursor.active_ms = world.now
    world.brokers.flush()
    return world


def task(world, after=WEEK, metrics=None, **more):
    return CursorRemovalTask(world.remover, after, 600.0, metrics or Metrics(), **more)


def states(world):
    return {one.record.subscription: one.record.state for one in world.removals.records()}


def test_what_nobody_used_for_so_long_is_marked_and_goes_a_quarantine_later(world):
    world.topic.cursors["live"].active_ms = world.now + WEEK
    world.brokers.flush()
    policy = task(world)
    assert policy.run() == 600.0
    assert states(world) == {}
    world.pass_time(WEEK + 1)
    policy.run()
    assert states(world) == {SUB: RemovalState.MARKED}
    policy.run()
    assert world.facts() is not None
    world.pass_time()
    policy.run()
    assert states(world) == {SUB: RemovalState.REMOVED}
    assert world.facts() is None


def test_the_broker_knows_of_a_use_that_the_node_does_not(world):
    world.pass_time(WEEK + 1)
    world.topic.cursors[SUB].active_ms = world.now - 5  # in memory only
    task(world).run()
    assert SUB not in states(world)


def test_no_topic_is_looked_at_by_its_broker_but_for_what_its_nodes_say(world):
    task(world).run()
    assert world.brokers.faults.count("look") == 0


def test_without_a_policy_only_what_was_marked_by_name_goes_on(world):
    world.mark()
    world.pass_time(2 * WEEK)
    world.topic.cursors["other"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    task(world, None).run()
    assert states(world) == {SUB: RemovalState.REMOVED}


def test_what_somebody_took_back_counts_as_used(world):
    del world.topic.cursors["live"]
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    policy = task(world)
    policy.run()
    world.undo()
    world.pass_time(WEEK - 5)
    policy.run()
    assert states(world) == {SUB: RemovalState.UNDONE}
    world.pass_time(10)
    policy.run()
    assert states(world) == {SUB: RemovalState.MARKED}


def test_more_pending_than_set_marks_nothing_more(world):
    for number in range(5):
        world.topic.cursors[f"old{number}"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    policy = task(world, bounds=DeletionBounds(number=3, a_round=2))
    policy.run()
    assert len(states(world)) == 2
    policy.run()
    policy.run()
    assert len(states(world)) == 3


def test_those_that_are_in_use_hold_up_no_others(world):
    """Their nodes say that nobody was there for years; their brokers know better, and are asked so often a round."""
    for number in range(9):
        topic = world.brokers.make(TopicName.parse(f"public/default/a{number}"), {1: 5, 2: 0})
        topic.cursors["used"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    for held in world.brokers.topics.values():
        for cursor in held.cursors.values():
            cursor.consumers = 1
    world.topic.cursors[SUB].consumers = 0
    world.pass_time(WEEK + 1)
    policy = task(world, bounds=DeletionBounds(a_round=3))
    for round_number in range(1, 6):
        policy.run()
        assert world.brokers.faults.count("look") <= 8 * round_number
    assert states(world) == {SUB: RemovalState.MARKED}


def test_rounds_go_on_where_the_last_one_ended(world, monkeypatch):
    monkeypatch.setattr(tasks, "TOPICS_A_ROUND", 2)
    names = [f"{tenant}/ns/{name}" for tenant in ("a", "a-b", "a.c") for name in ("x", "~y", "Z")]
    for name in names:
        topic = world.brokers.make(TopicName.parse(f"persistent://{name}"), {1: 5, 2: 0})
        topic.cursors["old"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    policy = task(world)
    for _ in range(5):
        policy.run()
    assert len([one for one in world.removals.records() if one.record.subscription == "old"]) == len(names)


def test_a_topic_in_trouble_does_not_stop_the_others_and_is_told(world, caplog):
    other = world.brokers.make(TopicName.parse("public/default/a"), {1: 5, 2: 0})
    other.cursors["old"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), topic=TopicName.parse("public/default/a"))
    task(world).run()
    assert states(world)[SUB] is RemovalState.MARKED
    assert "could not be looked at: away" in caplog.text


def test_whoever_is_overtaken_ends(world):
    world.mark()
    world.pass_time()

    def overtaken():
        raise OvertakenError("another process")

    world.brokers.before_delete = overtaken
    world.topic.cursors.pop(SUB)
    world.brokers.flush()
    policy = task(world, None)
    policy.run()
    world.removals._check_owner = overtaken
    assert states(world) == {SUB: RemovalState.KEPT}
    world.pass_time(TIMING.kept + 1)
    with pytest.raises(OvertakenError):
        policy.run()


def test_a_record_that_has_ended_long_ago_is_forgotten(world):
    world.mark()
    world.undo()
    world.pass_time(TIMING.kept + 1)
    task(world, None).run()
    assert list(world.removals.records()) == []
    assert world.removals.read((TOPIC, SUB)) is None


def test_what_is_forgotten_only_in_part_does_not_begin_again(world):
    """The store takes some objects of those that are to go, and then fails: the end of a record goes last."""
    world.mark()
    world.undo()
    world.pass_time(TIMING.kept + 1)
    (ended,) = world.removals.records()
    delete, calls = world.store.delete, []

    def cut_short(keys):
        calls.append(list(keys))
        delete(calls[-1])
        if len(calls) == 2:
            raise BrokerUnavailableError("cut off")

    world.store.delete = cut_short
    with pytest.raises(BrokerUnavailableError):
        world.removals.remove(ended)
    assert states(world) == {SUB: RemovalState.UNDONE}


def value(metrics, series, **labels):
    return metrics.registry.get_sample_value(f"offloader_cursor_removals_{series}", labels)


def test_removals_are_counted_from_the_mark_to_the_end(world):
    metrics = Metrics()
    world.pass_time(WEEK + 1)
    policy = task(world, metrics=metrics)
    policy.run()
    marked = value(metrics, "total", outcome="marked")
    assert marked == len(states(world))
    policy.run()
    assert value(metrics, "pending", state="marked") == value(metrics, "in_flight") == marked
    world.topic.cursors["live"].consumers = 1
    world.pass_time()
    policy.run()
    assert value(metrics, "total", outcome="removed") == 1
    assert value(metrics, "total", outcome="kept") == 1
    assert value(metrics, "in_flight") == 0
    assert value(metrics, "pending", state="marked") is None


def test_a_removal_that_is_given_up_is_told_once_with_its_alarm_and_counted(world, caplog):
    metrics = Metrics()
    world.mark()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=99)
    policy = task(world, None, metrics=metrics)
    for _ in range(TIMING.max_tries + 3):
        world.pass_time()
        policy.run()
    assert value(metrics, "total", outcome="failed") == TIMING.max_tries
    assert value(metrics, "total", outcome="gave up") == 1
    assert value(metrics, "pending", state="given up") == 1
    assert [one.see for one in caplog.records if one.levelname == "WARNING"] == ["cursor-removal-given-up"]


def test_an_undo_that_was_interrupted_is_told_until_somebody_repeats_it(world, caplog):
    world.mark()
    world.pass_time()
    task(world, None).run()
    world.brokers.faults.add("create", lambda: BrokerUnavailableError("away"))
    with pytest.raises(BrokerUnavailableError):
        world.undo()
    task(world, None).run()
    assert "its undo was interrupted: call it again" in caplog.text
