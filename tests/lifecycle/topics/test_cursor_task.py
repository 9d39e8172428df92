"""The policy that names an age, and what the one service does of it: by nodes first, by the broker's look in the end;
rounds are bounded."""

from __future__ import annotations

import gc

import pytest

from offloader.cli.orphans.purge import Heard
from offloader.errors import BrokerUnavailableError, OvertakenError
from offloader.lifecycle.clocks import Clocks
from offloader.lifecycle.deletion import service as deletion
from offloader.lifecycle.deletion.machine import undone
from offloader.lifecycle.deletion.records import DeletionState, LedgerType, subscription_record_name
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.topics.cursors import policy as policies
from offloader.lifecycle.topics.cursors.former import former_removals
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.policy import UnusedSubscriptions
from offloader.lifecycle.topics.cursors.saved import SavedCursor
from offloader.metadata.records import Records
from offloader.model import TopicName
from tests.fakes.cluster_subscriptions import HeldCursor
from tests.times import HOUR_MS

from .removing import SUB, TIMING, TOPIC, RemovalWorld, write_former

FAILED_IN_A_ROW = 3

WEEK = 7 * 24 * HOUR_MS


@pytest.fixture
def world():
    world = RemovalWorld()
    for cursor in world.topic.cursors.values():
        cursor.active_ms = world.now
    world.brokers.flush()
    return world


class Application:
    """What it does in one interval: second phases that are due, then the policy's marks."""

    def __init__(self, world, after=WEEK, clocks=None, **more):
        self.service = world.service_of(**more)
        clocks = clocks or Clocks(
            host_ms=lambda: world.now,
            broker_ms=lambda: world.now,
            broker_is_independent=True,
            steady_ms=lambda: world.now,
        )
        bounds = more.get("bounds", DeletionBounds())
        self.policy = after and UnusedSubscriptions(
            lambda _: world.side, world.queue, after, 600.0, world.metrics, clocks, bounds,
            lambda: former_removals(world.store, "main"),
        )  # fmt: skip

    def run(self):
        self.service.round()
        return self.policy.run() if self.policy else None


def task(world, after=WEEK, **more):
    return Application(world, after, **more)


def states(world):
    return {one.record.cursor_name: one.record.state for one in world.queue.records()}


def test_what_nobody_used_for_so_long_is_marked_and_goes_a_quarantine_later(world):
    world.topic.cursors["live"].active_ms = world.now + WEEK
    world.brokers.flush()
    policy = task(world)
    assert policy.run() == 600.0
    assert states(world) == {}
    world.pass_time(WEEK + 1)
    policy.run()
    assert states(world) == {SUB: DeletionState.MARKED}
    policy.run()
    assert world.facts() is not None
    world.pass_time()
    policy.run()
    assert states(world) == {SUB: DeletionState.DELETED}
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
    assert states(world) == {SUB: DeletionState.DELETED}


def test_what_somebody_took_back_counts_as_used(world):
    del world.topic.cursors["live"]
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    policy = task(world)
    policy.run()
    world.undo()
    world.pass_time(WEEK - 5)
    policy.run()
    assert states(world) == {SUB: DeletionState.UNDONE}
    world.pass_time(10)
    policy.run()
    assert states(world) == {SUB: DeletionState.MARKED}


def replicate(cursor, world):
    cursor.replicated = True


def replicate_in_memory(cursor, world):
    """The broker knows it, and its node does not say so yet."""
    world.brokers.flush()
    cursor.replicated = True
    world.brokers.flush = lambda: None


def offload_into_another_archive(cursor, world):
    cursor.properties = {"pin": "a token"}


def forget_stored_properties(cursor, world):
    world.brokers.broker_version = "2.10.0"


BY_NAME_ONLY = [replicate, replicate_in_memory, offload_into_another_archive, forget_stored_properties]


@pytest.mark.parametrize("change", BY_NAME_ONLY)
def test_no_policy_removes_what_is_replicated_or_offloads_or_may(world, change):
    change(world.topic.cursors[SUB], world)
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    task(world).run()
    assert SUB not in states(world)


def test_a_subscription_of_the_default_name_of_offload_subscriptions_stays(world):
    """Another archive's, made where brokers did not store its property."""
    world.topic.cursors["__offloader"] = HeldCursor((1, 0), active_ms=1)
    world.side.names = SubscriptionNames("our-own")
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    task(world).run()
    assert "__offloader" not in states(world)
    assert SUB in states(world)


@pytest.mark.parametrize("change", BY_NAME_ONLY)
def test_the_policy_keeps_at_its_second_look_what_became_replicated_or_offloads(world, change):
    world.pass_time(WEEK + 1)
    policy = task(world)
    policy.run()
    assert states(world)[SUB] is DeletionState.MARKED
    change(world.topic.cursors[SUB], world)
    world.brokers.flush()
    world.pass_time()
    policy.run()
    assert states(world)[SUB] is DeletionState.KEPT
    assert "not removed by policy" in world.record().reason


@pytest.mark.parametrize("change", BY_NAME_ONLY)
def test_by_name_it_is_removed_with_a_warning(world, change):
    change(world.topic.cursors[SUB], world)
    world.brokers.flush()
    assert world.side.plan(TOPIC, SUB).by_name_only
    assert any(one.startswith("Warning: it") for one in world.mark().evidence.says)
    world.pass_time()
    task(world).run()
    assert states(world)[SUB] is DeletionState.DELETED


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


def test_a_record_is_read_once_to_be_counted(world, monkeypatch):
    for number in range(3):
        world.topic.cursors[f"old{number}"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    policy, reads, read = task(world, bounds=DeletionBounds(number=3)).policy, list[str](), Records.read
    policy.run()
    assert len(states(world)) == 3

    def counted(records, slot):
        reads.append(records.key(slot))
        return read(records, slot)

    monkeypatch.setattr(Records, "read", counted)
    policy.run()
    assert len(reads) == 3
    policy.run()
    assert len(reads) == 3
    world.topic.cursors["another"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    stored = world.queue.read(subscription_record_name(str(TOPIC), "old0"))
    world.queue.write(undone(stored.record, world.now), stored)
    policy.run()
    assert states(world)["another"] is DeletionState.MARKED, "what has ended leaves room"


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
    assert states(world) == {SUB: DeletionState.MARKED}


def test_rounds_go_on_where_the_last_one_ended(world, monkeypatch):
    monkeypatch.setattr(policies, "TOPICS_A_ROUND", 2)
    names = [f"{tenant}/ns/{name}" for tenant in ("a", "a-b", "a.c") for name in ("x", "~y", "Z")]
    for name in names:
        topic = world.brokers.make(TopicName.parse(f"persistent://{name}"), {1: 5, 2: 0})
        topic.cursors["old"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    policy = task(world)
    for _ in range(5):
        policy.run()
    assert len([one for one in world.queue.records() if one.record.cursor_name == "old"]) == len(names)


def test_a_topic_in_trouble_does_not_stop_the_others_and_is_told(world, caplog):
    other = world.brokers.make(TopicName.parse("public/default/a"), {1: 5, 2: 0})
    other.cursors["old"] = HeldCursor((1, 0), active_ms=1)
    world.brokers.flush()
    world.pass_time(WEEK + 1)
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), topic=TopicName.parse("public/default/a"))
    task(world).run()
    assert states(world)[SUB] is DeletionState.MARKED
    assert "could not be looked at: away" in caplog.text


def test_whoever_is_overtaken_ends(world):
    world.mark()
    world.pass_time()

    def overtaken():
        raise OvertakenError("another process")

    world.topic.cursors.pop(SUB)
    world.brokers.flush()
    policy = task(world, None)
    policy.run()
    world.queue._check_owner = overtaken
    assert states(world) == {SUB: DeletionState.DELETED}
    assert world.record().answer == "already gone"
    world.pass_time(TIMING.kept + 1)
    with pytest.raises(OvertakenError):
        policy.run()


def test_a_record_that_has_ended_long_ago_is_forgotten(world):
    world.mark()
    world.undo()
    world.pass_time(TIMING.kept + 1)
    task(world, None).run()
    assert list(world.queue.records()) == []


def value(metrics, series, **labels):
    return metrics.registry.get_sample_value(f"offloader_cursor_removals_{series}", labels)


def test_removals_are_counted_from_the_mark_to_the_end(world):
    metrics = world.metrics
    world.pass_time(WEEK + 1)
    policy = task(world)
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
    policy.run()
    assert value(metrics, "in_flight") == 0
    assert value(metrics, "pending", state="marked") is None


def test_a_removal_that_is_given_up_is_told_once_with_its_alarm_and_counted(world, caplog):
    metrics = world.metrics
    world.mark()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=99)
    policy = task(world, None)
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
    assert f"the undo of subscription {SUB} of {TOPIC} was interrupted: call it again" in caplog.text


def test_the_policy_marks_nothing_while_clocks_are_in_doubt(world, caplog):
    """What is marked by name goes on, by the earliest clock."""
    world.pass_time(WEEK + 1)
    ahead = [8 * WEEK]
    clocks = Clocks(
        host_ms=lambda: world.now + ahead[0],
        broker_ms=lambda: world.now,
        broker_is_independent=True,
        steady_ms=lambda: world.now,
    )
    application = task(world, 2 * WEEK, clocks=clocks)
    application.run()
    assert states(world) == {}
    assert "policies of time wait: removeCursorsAfter: this host's clock" in caplog.text
    ahead[0] = 0
    application.run()
    assert states(world) == {}, "it is used by less than two weeks ago"
    world.pass_time(WEEK)
    application.run()
    assert states(world)[SUB] is DeletionState.MARKED


def test_of_many_that_are_due_only_few_are_held_with_their_state(world):
    """A saved state may be megabytes."""
    names = [f"old{number}" for number in range(8 * deletion.SUBSCRIPTIONS_AT_ONCE)]
    for name in names:
        world.topic.cursors[name] = HeldCursor((1, 0))
        world.brokers.flush()
        world.mark(name)
    world.pass_time()
    held, look = list[int](), world.side.look

    def looked(records, **more):
        gc.collect()
        held.append(sum(isinstance(one, SavedCursor) for one in gc.get_objects()))
        return look(records, **more)

    world.side.look = looked
    heard = Heard()
    service = world.service_of()
    service._watcher = heard
    before = sum(isinstance(one, SavedCursor) for one in gc.get_objects())
    assert service.round().looked_at == len(names)
    assert set(states(world).values()) == {DeletionState.DELETED}
    assert len(heard.ends) == len(names)
    assert max(held) - before <= 3 * deletion.SUBSCRIPTIONS_AT_ONCE


def test_what_is_changed_after_it_was_found_due_is_left_alone(world):
    """It is undone, removed and marked again while others of the round are dealt with."""
    names = [f"old{number}" for number in range(2 * deletion.SUBSCRIPTIONS_AT_ONCE)]
    for name in names:
        world.topic.cursors[name] = HeldCursor((1, 0))
        world.brokers.flush()
        world.mark(name)
        world.pass_time(1)
    world.pass_time()
    last, look = world.queue.read(subscription_record_name(str(TOPIC), names[-1])), world.side.look

    def looked(records, **more):
        world.side.look = look
        world.queue.write(undone(last.record, world.now), last)
        world.queue.remove(world.queue.read(last.record.name))
        assert world.mark(names[-1]).state is DeletionState.MARKED
        assert world.queue.read(last.record.name).slot == last.slot
        return look(records, **more)

    world.side.look = looked
    world.service.round()
    assert {name: state for name, state in states(world).items() if state is not DeletionState.DELETED} == {
        names[-1]: DeletionState.MARKED
    }
    assert names[-1] in world.topic.cursors


@pytest.mark.parametrize("state", ["marked", "removing", "undoing", "given up"])
def test_what_an_earlier_version_left_pending_is_not_marked(world, state):
    write_former(world.store, TOPIC, SUB, state)
    world.pass_time(WEEK + 1)
    task(world).run()
    assert states(world) == {"live": DeletionState.MARKED}


@pytest.mark.parametrize("state", ["undone", "kept", "removed"])
def test_what_was_taken_back_with_an_earlier_version_counts_as_used_then(world, state):
    world.pass_time(WEEK + 1)
    write_former(world.store, TOPIC, SUB, state, world.now)
    policy = task(world)
    policy.run()
    world.pass_time(WEEK - 5)
    policy.run()
    assert SUB not in states(world)
    world.pass_time(10)
    policy.run()
    assert states(world)[SUB] is DeletionState.MARKED


def test_a_record_of_an_earlier_version_that_cannot_be_read_keeps_its_subscription(world):
    write_former(world.store, TOPIC, SUB, "undone", 1)
    (key,) = (key for key, _ in world.store.list("") if "/records/" in key)
    world.store.delete([key])
    world.store.put(key, b"damaged")
    world.pass_time(WEEK + 1)
    task(world).run()
    assert SUB not in states(world)


def many_that_are_due(world, number, topic=TOPIC, name="old"):
    """Each due a moment after the one before."""
    for each in range(number):
        world.brokers.topics[topic].cursors[f"{name}{each}"] = HeldCursor((1, 0))
        world.brokers.flush()
        world.mark(f"{name}{each}", topic=topic)
        world.pass_time(1)


def test_where_brokers_do_not_answer_the_rest_waits_and_costs_no_try(world):
    many_that_are_due(world, 3 * deletion.SUBSCRIPTIONS_AT_ONCE)
    world.pass_time()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=1000)
    heard, service, before = Heard(), world.service_of(), world.brokers.faults.count("look")
    service._watcher = heard
    done = service.round()
    assert (done.looked_at, done.left) == (0, 0), "the pass has ended for subscriptions"
    assert world.brokers.faults.count("look") - before == FAILED_IN_A_ROW
    assert sorted(one.record.tries for one in world.queue.records())[-FAILED_IN_A_ROW - 1 :] == [0, 1, 1, 1]
    assert set(states(world).values()) == {DeletionState.MARKED}
    (why,) = heard.refusals[LedgerType.SUBSCRIPTION]
    assert why == "3 looks in a row failed, and the others wait; the last one: away"
    world.brokers.faults.clear()
    service.round()
    assert len([one for one in states(world).values() if one is DeletionState.DELETED]) == len(states(world)) - 3
    world.pass_time(TIMING.longest_wait)
    service.round()
    assert set(states(world).values()) == {DeletionState.DELETED}


def test_a_topic_that_never_answers_keeps_no_other_from_its_turn(world):
    away = TopicName.parse("public/default/a")
    world.brokers.make(away, {1: 5, 2: 0})
    many_that_are_due(world, deletion.SUBSCRIPTIONS_AT_ONCE, away, "away")
    many_that_are_due(world, 2)
    world.pass_time()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=1000, topic=away)
    service = world.service_of()
    for _ in range(deletion.SUBSCRIPTIONS_AT_ONCE):
        service.round()
    assert {name for name, state in states(world).items() if state is DeletionState.DELETED} == {"old0", "old1"}


def test_whoever_stops_looks_at_no_more(world):
    many_that_are_due(world, 5)
    world.pass_time()
    looked, look = list[str](), world.brokers.look

    def counted(topic, name):
        looked.append(name)
        return look(topic, name)

    world.brokers.look = counted
    world.side.stopping = lambda: len(looked) > 1
    records = [one.record for one in world.queue.readable()]
    found = world.side.look(records)
    assert len(looked) == 2
    assert len(found.looks) == 5
    assert found.cut_short == ""


def test_the_system_topic_hears_of_no_subscription(world):
    world.mark()
    world.pass_time()
    heard = list[str]()
    service = world.service_of()
    service._announce = lambda record: heard.append(record.name)
    service.round()
    assert states(world) == {SUB: DeletionState.DELETED}
    assert heard == []
