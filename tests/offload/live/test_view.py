"""What the driver publishes of its topics: once a second at most, frozen, and only what changed is made anew."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from offloader.errors import AuthorizationFailedError
from offloader.metrics.recent import MINUTES, Minute, Recent
from offloader.model import FailureKind, Lane, RollReason, TopicName
from offloader.offload.driver import topic_status
from offloader.offload.live.status import Need
from tests.offload.simulation import Simulation

SEGMENTS = 12

BUSY, QUIET = TopicName.parse("public/default/t"), TopicName.parse("public/default/quiet")


def started() -> Simulation:
    sim = Simulation(1, roll="10m", max_size=10**8)
    for topic in (BUSY, QUIET):
        sim.cluster.create(topic)
    sim.rounds(4)
    sim.produce(BUSY, 60)
    sim.rounds(4)
    return sim


def seen(sim):
    sim.clock.now += 2_000
    sim.round()
    return {status.topic: status for status in sim.driver.view.topics}


def test_a_view_says_how_far_each_topic_is():
    sim = started()
    sim.batch()
    busy, quiet = seen(sim)[BUSY], seen(sim)[QUIET]
    assert (busy.state, quiet.state) == ("Assigned", "Caught up")
    state, topic = sim.driver.state(BUSY), sim.registry.topics[BUSY]
    assert busy.filling.size == state.open.size > 0
    assert (busy.filling.max_size, busy.filling.roll_ms) == (topic.rules.max_size, topic.rules.roll_ms)
    assert busy.entries + busy.lag_entries == 60
    assert busy.pinned_bytes >= busy.lag_bytes
    assert busy.lag_ms(sim.clock.now) == sim.clock.now - state.open.assigned_at
    assert (quiet.lag_entries, quiet.lag_bytes, quiet.pinned_bytes, quiet.filling) == (0, 0, 0, None)
    assert {lane.lane: lane.topics for lane in sim.driver.view.lanes} == {Lane.FAST: 2, Lane.SLOW: 0}


def test_a_plan_that_is_read_is_told_with_its_lane():
    sim = started()
    sim.produce(BUSY, 60)
    seen(sim)
    assert BUSY in {work.id.topic for work in sim.plans.newest[Lane.FAST].slices}
    status = seen(sim)[BUSY]
    (lane,) = (lane for lane in sim.driver.view.lanes if lane.lane is Lane.FAST)
    assert (lane.slices, lane.since) == (1, status.planned_at)
    sim.batch()
    assert seen(sim)[QUIET].planned_at == 0


def test_what_did_not_change_is_the_same_object():
    sim = started()
    before = seen(sim)
    sim.produce(BUSY, 60)
    sim.rounds(3)
    after = seen(sim)
    assert after[QUIET] is before[QUIET]
    assert after[BUSY] != before[BUSY]
    with pytest.raises(FrozenInstanceError):
        after[BUSY].state = "mine"


def test_of_many_topics_only_the_lines_of_those_that_changed_are_made(monkeypatch):
    sim = started()
    names = [TopicName.parse(f"public/default/many-{n}") for n in range(2_000)]
    seen(sim)
    many = [replace(sim.registry.topics[BUSY], name=name) for name in names]
    for topic in many:
        sim.registry._hold(topic)
    made = []
    told = topic_status._status

    def status(features, topic, state):
        made.append(topic.name)
        return told(features, topic, state)

    monkeypatch.setattr(topic_status, "_status", status)
    first = sim.driver.statuses.latest = sim.driver.statuses._look(sim.registry.topics, 1_000)
    assert made == names
    made.clear()
    many[7].pin = replace(many[7].pin, alarm="moved")
    second = sim.driver.statuses._look(sim.registry.topics, 2_000)
    assert made == [names[7]]
    assert [line.topic for line, before in zip(second, first, strict=True) if line is not before] == [names[7]]


def test_a_round_that_follows_at_once_makes_no_view():
    sim = started()
    seen(sim)
    view = sim.driver.view
    sim.round()
    assert sim.driver.view is view


def test_a_look_that_takes_long_comes_less_often():
    """A twentieth of the driver's time, however many topics there are."""
    sim = started()
    seen(sim)
    told = sim.driver.statuses._look

    def slow(topics, now):
        sim.clock.now += 400
        return told(topics, now)

    sim.driver.statuses._look = slow
    seen(sim)
    view = sim.driver.view
    sim.driver.statuses._look = told
    sim.clock.now += 7_000
    sim.round()
    assert sim.driver.view is view
    sim.clock.now += 1_000
    sim.round()
    assert sim.driver.view is not view


def test_every_facet_of_a_topic_that_a_line_shows_is_in_its_basis():
    """Else a line would be an old one."""
    sim = started()
    topic, state = sim.registry.topics[BUSY], sim.driver.state(BUSY)
    status = topic_status._status(sim.context.features, topic, state)
    basis = topic_status._basis(topic, state)
    topic.pin = replace(topic.pin, alarm="moved")
    changed = topic_status._basis(topic, state)
    assert topic_status._status(sim.context.features, topic, state) != status
    assert changed != basis
    topic.pin = replace(topic.pin, alarm="")
    for _ in range(30):
        before = (
            topic_status._basis(topic, sim.driver.state(BUSY)),
            topic_status._status(sim.context.features, topic, sim.driver.state(BUSY)),
        )
        sim.produce(BUSY, 7)
        sim.rounds(1)
        after = (
            topic_status._basis(topic, sim.driver.state(BUSY)),
            topic_status._status(sim.context.features, topic, sim.driver.state(BUSY)),
        )
        assert before[1] == after[1] or before[0] != after[0]


def test_a_failing_topic_says_why_and_since_how_many_tries():
    sim = started()
    state = sim.driver.state(BUSY)
    sim.journal.record([sim.context.failed(state, AuthorizationFailedError("the role may not"))])
    status = seen(sim)[BUSY]
    assert (status.state, status.need(sim.clock.now)) == ("Failed", Need.TROUBLE)
    assert (status.trouble.alarm, status.trouble.kind) == ("slice-failed", FailureKind.FATAL)
    assert status.trouble.attempts >= 1
    assert "the role may not" in status.trouble.text


def line(sim, now):
    return {line.topic: line for line in sim.driver.statuses._look(sim.registry.topics, now)}[BUSY]


def test_how_long_the_same_is_wrong_is_told():
    sim = started()
    topic = sim.registry.topics[BUSY]
    topic.pin = replace(topic.pin, alarm="it stands at 1:1")
    status = line(sim, 1_000)
    topic.pin = replace(topic.pin, alarm="it stands at 1:2")
    later = line(sim, 9_000)
    topic.pin = replace(topic.pin, alarm="", error="no answer")
    other = line(sim, 12_000)
    assert [each.trouble.since for each in (status, later, other)] == [1_000, 1_000, 12_000]
    assert later.trouble.text == "it stands at 1:2"


def test_topics_that_are_refused_are_in_the_view():
    sim = started()
    sim.registry.refused[TopicName.parse("public/default/foreign")] = "claimed by application other"
    seen(sim)
    assert sim.driver.view.refused == ((TopicName.parse("public/default/foreign"), "claimed by application other"),)


def test_the_last_hour_is_bounded_and_forgets():
    now = [0.0]
    recent = Recent(lambda: now[0])
    for minute in range(200):
        now[0] = minute * 60.0
        recent.uploaded(minute, 1)
        recent.uploaded(1, 1)
        recent.committed(BUSY, RollReason.AGE, minute)
    assert recent.minutes() == [Minute(minute + 1, 2) for minute in range(200 - MINUTES, 200)]
    assert [(s.size, s.age) for s in recent.segments()][:2] == [(199, 0.0), (198, 60.0)]
    assert len(recent.segments()) == SEGMENTS
    now[0] += 59 * 60
    assert recent.minutes()[0] == Minute(200, 2)
    now[0] += 3600
    assert recent.minutes() == [Minute()] * MINUTES
