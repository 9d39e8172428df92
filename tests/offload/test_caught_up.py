"""`--until-caught-up` gives a topic up for what it meets itself, not for what an earlier run met."""

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from offloader.errors import AuthorizationFailedError, SubscriptionBusyError
from offloader.model import Failure, FailureKind, GapKind, Position, TopicName
from offloader.offload.caught_up import CaughtUp, CaughtUpState
from offloader.offload.core.evidence import Being
from offloader.offload.core.facets import Inquiry
from offloader.offload.driver import losses
from offloader.offload.driver.driver import Driver
from tests.offload.simulation import Simulation

GIVE_UP_ATTEMPTS = 5
MAX_LOOKUPS = 1000

TOPIC = TopicName.parse("persistent://t/n/a")


def failed(attempts, retry_at):
    return Failure(FailureKind.INTEGRITY, "a gap", attempts, retry_at)


class Watched:
    """A driver with one topic that is not where it should be."""

    def __init__(self, failure):
        goal = Position(0, 5, 9)
        topic = SimpleNamespace(
            retire_at=goal,
            tail=SimpleNamespace(undecided=False),
            observed=SimpleNamespace(acknowledged=None),
            catalog=SimpleNamespace(end=None),
            begin=lambda: goal,
            inquiry=None,
            in_question=False,
            committed=SimpleNamespace(failure=None),
        )
        self.registry = SimpleNamespace(
            settled=True, refused={}, found=SimpleNamespace(unread={}), topics={TOPIC: topic}
        )
        self.context = SimpleNamespace(features=[])
        self.failure = failure

    def state(self, name):
        assert name == TOPIC
        return SimpleNamespace(failure=self.failure, open=object())


def test_failures_of_an_earlier_run_get_another_try():
    driver = Watched(failed(GIVE_UP_ATTEMPTS, 1))
    watch = CaughtUp(cast("Driver", driver), 0, None)
    assert watch.look(0) is CaughtUpState.NOT_YET
    assert watch.look(1) is CaughtUpState.NOT_YET
    driver.failure = failed(GIVE_UP_ATTEMPTS + 1, 2)
    assert watch.look(2) is CaughtUpState.CANNOT


def test_a_topic_that_fails_often_enough_is_given_up():
    driver = Watched(None)
    watch = CaughtUp(cast("Driver", driver), 0, None)
    for attempts in range(1, GIVE_UP_ATTEMPTS):
        driver.failure = failed(attempts, attempts)
        assert watch.look(attempts) is CaughtUpState.NOT_YET
    driver.failure = failed(GIVE_UP_ATTEMPTS, 9)
    assert watch.look(9) is CaughtUpState.CANNOT


def test_a_topic_that_is_to_be_taken_in_anew_is_not_there_yet():
    driver = Watched(None)
    (topic,) = driver.registry.topics.values()
    topic.begin, topic.retire_at = (lambda: Position(0, 5, 10)), Position(0, -1, -1)
    topic.inquiry = Inquiry(adopted=False, found=Being.SAME)
    watch = CaughtUp(cast("Driver", driver), 0, None)
    assert watch.left() == [TOPIC]


def test_a_namespace_that_could_not_be_read_is_not_caught_up():
    driver = Watched(None)
    driver.registry.topics = {}
    watch = CaughtUp(cast("Driver", driver), 0, None)
    assert watch.look(0) is CaughtUpState.CAUGHT_UP
    driver.registry.found.unread = {"shop/orders": AuthorizationFailedError("no administrator of this tenant")}
    assert watch.look(1) is CaughtUpState.CANNOT
    assert watch.unfinished() == ["not looked at: shop/orders: no administrator of this tenant"]


def run_once(sim):
    """As `--until-caught-up`: what is adopted from now on has its end as its goal."""
    sim.registry._until_caught_up = True
    return CaughtUp(sim.driver, sim.clock.now, None)


def until_an_outcome(sim, watch, rounds=400, step_ms=1_000):
    for _ in range(rounds):
        sim.clock.now += step_ms
        sim.round()
        sim.batch()
        outcome = watch.look(sim.clock.now)
        if outcome is not CaughtUpState.NOT_YET:
            return outcome
    return CaughtUpState.NOT_YET


def test_a_paused_topic_is_caught_up_without_being_read():
    sim = Simulation(1)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 30)
    sim.settle()
    end = sim.context.catalogs.load(TOPIC).end
    sim.produce(TOPIC, 30)
    sim.enabled = False
    sim.kill()
    watch = run_once(sim)
    assert until_an_outcome(sim, watch) is CaughtUpState.CAUGHT_UP
    assert sim.context.catalogs.load(TOPIC).end == end
    assert sim.cluster.mark_delete(TOPIC) is not None


def test_a_topic_is_seen_by_the_watching_thread_only_once_it_has_its_goal():
    sim = Simulation(1)
    sim.cluster.create(TOPIC)
    run_once(sim)
    goals = []

    class Told(dict):
        def __setitem__(self, name, topic):
            goals.append(topic.retire_at)
            super().__setitem__(name, topic)

    sim.registry.topics = Told()
    sim.rounds(4)
    assert len(goals) == 1
    assert goals[0] is not None


def test_a_topic_that_was_created_again_has_a_goal_too():
    sim = Simulation(1)
    sim.cluster.create(TOPIC)
    sim.cluster.create(TopicName.parse("t/n/witness"))
    sim.produce(TOPIC, 30)
    sim.settle()
    sim.pins.close()
    sim.cluster.delete(TOPIC)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 30)
    sim.kill()
    assert until_an_outcome(sim, run_once(sim)) is CaughtUpState.CAUGHT_UP
    assert sim.context.catalogs.load(TOPIC).claim.incarnation == 1


def with_lost_data():
    """Its first ledger is gone before it was offloaded, and nobody has accepted that."""
    sim = Simulation(1, roll="2h", part=200 * 1024, max_size=10**6)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 70)
    first = sim.cluster.admin.topic_info(TOPIC).ledgers.spans[0].ledger
    sim.rounds(1)
    sim.pins.close()
    sim.journal.close()
    sim.cluster.lose(TOPIC, first)
    sim.start()
    return sim


def test_a_topic_with_lost_data_is_given_up_and_named():
    sim = with_lost_data()
    watch = run_once(sim)
    assert until_an_outcome(sim, watch) is CaughtUpState.CANNOT
    (line,) = watch.unfinished()
    assert str(TOPIC) in line
    assert "accept-loss" in line


def test_a_loss_that_somebody_accepts_soon_after_the_start_is_not_given_up():
    sim = with_lost_data()
    watch = run_once(sim)
    assert until_an_outcome(sim, watch, rounds=10) is CaughtUpState.NOT_YET
    losses.accept(sim.registry.topics[TOPIC], Position(0, 10**9, 0))
    assert until_an_outcome(sim, watch) is CaughtUpState.CAUGHT_UP
    assert len(sim.context.catalogs.load(TOPIC).losses) == 1


def test_a_pin_that_stays_busy_is_given_up_and_named():
    sim = Simulation(1)
    sim.cluster.create(TOPIC)
    sim.cluster.faults.add("pins.open", lambda: SubscriptionBusyError("busy"), times=10**6)
    watch = run_once(sim)
    began = sim.clock.now
    assert until_an_outcome(sim, watch) is CaughtUpState.CANNOT
    assert sim.clock.now - began > 60_000
    assert watch.unfinished() == [f"not offloaded: {TOPIC}: busy"]


def test_a_pin_that_is_busy_for_a_minute_is_waited_for():
    sim = Simulation(1)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 30)
    fault = sim.cluster.faults.add("pins.open", lambda: SubscriptionBusyError("busy"), times=10**6)
    watch = run_once(sim)
    assert until_an_outcome(sim, watch, rounds=60) is CaughtUpState.NOT_YET
    fault.times = 0
    assert until_an_outcome(sim, watch) is CaughtUpState.CAUGHT_UP


def test_topics_may_come_and_go_while_it_is_looked():
    sim = Simulation(1)
    registry, found, stop = sim.registry, sim.registry.found, threading.Event()
    policy = sim.context.policies.of(TOPIC)
    assert policy.enabled
    names = [TopicName("t", "n", f"a{n}") for n in range(500)]
    found.policies = dict.fromkeys(names, policy)
    registry.refused = dict.fromkeys(names, "refused")
    found.discovered = True
    watch = CaughtUp(sim.driver, 0, None)

    def come_and_go():
        number = 0
        while not stop.is_set():
            number += 1
            name = TopicName("t", "n", f"new{number}")
            found.policies[name] = policy
            del found.policies[name]
            registry.refused[name] = "refused"
            del registry.refused[name]
            registry._retrying[name] = 0
            del registry._retrying[name]

    changing = threading.Thread(target=come_and_go)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    changing.start()
    try:
        for _ in range(100):
            watch.look(0)
            watch.unfinished()
    finally:
        stop.set()
        changing.join()
        sys.setswitchinterval(before)


def test_a_topic_that_is_forgotten_between_two_questions_is_no_error():
    driver = Watched(failed(GIVE_UP_ATTEMPTS, 1))
    watch = CaughtUp(cast("Driver", driver), 0, None)
    known = driver.registry.topics
    driver.registry.topics = SimpleNamespace(items=known.items, get=lambda name: None)
    assert watch.look(0) is CaughtUpState.NOT_YET
    assert watch.unfinished() == [f"not caught up: {TOPIC}: a gap"]


def with_hidden_tail(entries, **settings):
    sim = Simulation(1, entries_per_ledger=None, **settings)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 30)
    for _ in range(entries):
        sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    return sim


@pytest.mark.parametrize("entries", [MAX_LOOKUPS - 1, MAX_LOOKUPS, MAX_LOOKUPS + 1, 2 * MAX_LOOKUPS + 500])
def test_a_long_tail_of_aborted_entries_is_no_open_transaction(entries):
    sim = with_hidden_tail(entries)
    watch = run_once(sim)
    assert until_an_outcome(sim, watch) is CaughtUpState.CAUGHT_UP
    last = sim.cluster.entries(TOPIC)[-1]
    assert sim.context.catalogs.load(TOPIC).end == Position(0, last.ledger, last.entry)


@pytest.mark.parametrize("before", [0, MAX_LOOKUPS, MAX_LOOKUPS + 1])
def test_an_open_transaction_behind_aborted_entries_is_in_the_way(before):
    sim = with_hidden_tail(before)
    sim.cluster.add_pending(TOPIC, b"open")
    watch = run_once(sim)
    assert until_an_outcome(sim, watch) is CaughtUpState.CANNOT
    assert watch.unfinished() == [f"not caught up: {TOPIC}: an open transaction is in the way"]


def test_a_long_tail_is_looked_up_in_several_pieces():
    sim = with_hidden_tail(2 * MAX_LOOKUPS + 500, roll="20s")
    sim.rounds(4)
    plans, asked = sim.driver.plans, []

    def explain(topic, missing, *, limit):
        asked.append(sim.clock.now)
        return sim.cluster.source.explain(topic, missing, limit=limit)

    plans._context = replace(plans._context, source=SimpleNamespace(explain=explain))
    sim.rounds(60)
    assert sim.registry.topics[TOPIC].hidden_tail() is None
    assert len(asked) == 3
    assert asked[-1] - asked[0] < 20_000
