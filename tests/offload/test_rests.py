"""A round decides on the topics of which something is known that was not: the others rest, and miss nothing. That they
would have nothing to do is checked in each round of all simulations, too (`CheckedPlans`)."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from offloader.model import Lane, RollReason, TopicName
from offloader.offload.core import facets, planner
from offloader.offload.core.decisions import Decision
from offloader.offload.core.facets import Rest, Retirement
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.lane_plans import LaneBatch
from offloader.offload.driver.work import WorkKind
from tests.offload.simulation import Simulation, is_on

OTHERS = 3
LONGEST_REST_MS = 60_000
LEAST_MS = 250

TOPICS = [TopicName.parse(f"public/default/t{number}") for number in range(20)]


@pytest.fixture
def sim() -> Simulation:
    """Topics that are offloaded to their end and rest, long ago."""
    sim = Simulation(1, roll="10m", max_size=10**8, checked=False)
    for topic in TOPICS:
        sim.cluster.create(topic)
        sim.produce(topic, 3)
    sim.settle()
    sim.rounds(30, step_ms=30_000)
    return sim


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[TopicName]:
    """The topics that are decided on."""
    names: list[TopicName] = []
    plain = planner.decide

    def decide(topic: Topic, *arguments: Any) -> Decision:
        names.append(topic.name)
        return plain(topic, *arguments)

    monkeypatch.setattr("offloader.offload.driver.lane_plans.planner.decide", decide)
    return names


def test_nobody_decides_on_topics_that_are_as_they_were(sim: Simulation, decided: list[TopicName]) -> None:
    sim.rounds(1, step_ms=LONGEST_REST_MS)
    decided.clear()
    sim.rounds(40, step_ms=250)
    assert decided == []
    for _ in TOPICS:  # until no list of ledgers is old
        _look_at_all(sim)
    decided.clear()
    sim.produce(TOPICS[3], 5)
    _look_at_all(sim)
    assert set(decided) == {TOPICS[3]}


def _look_at_all(sim: Simulation) -> None:
    for topic in sim.registry.topics.values():
        observed.soon(topic)
    sim.rounds(1, step_ms=LEAST_MS)


class WatchedTopics(dict[TopicName, Topic]):
    """Counts the topics that are looked at, one by one or in a walk."""

    def __init__(self, topics: Mapping[TopicName, Topic]) -> None:
        super().__init__(topics)
        self.looks = Counter[TopicName]()

    def get(self, name: TopicName, default: Any = None) -> Any:
        self.looks[name] += 1
        return super().get(name, default)

    def __getitem__(self, name: TopicName) -> Topic:
        self.looks[name] += 1
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[TopicName]:
        for name in super().__iter__():
            self.looks[name] += 1
            yield name

    def values(self) -> Iterator[Topic]:  # type: ignore[override]
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[TopicName, Topic]]:  # type: ignore[override]
        return ((name, self[name]) for name in self)

    def __contains__(self, name: object) -> bool:
        assert isinstance(name, TopicName)
        self.looks[name] += 1
        return super().__contains__(name)


def test_a_round_looks_at_the_topics_of_which_something_changed(sim: Simulation) -> None:
    sim.rounds(1, step_ms=1)
    watched = WatchedTopics(sim.registry.topics)
    sim.registry.topics = watched
    sim.driver.round()
    assert sum(watched.looks.values()) == 0

    def produced(topic: Topic) -> None:
        sim.produce(topic.name, 5)
        observed.soon(topic)

    for change in (
        lambda topic: observed.doubt(topic),
        lambda topic: sim.journal.record([replace(sim.driver.state(topic.name), paused_at=1)]),
        produced,
    ):
        changed = dict.__getitem__(watched, TOPICS[0])  # the first one also shows whether Pulsar answers
        change(changed)
        watched.looks.clear()
        sim.clock.now += LEAST_MS
        sim.driver.round()
        assert set(watched.looks) == {TOPICS[0]}
        sim.batch()
        sim.driver.round()


def test_a_poll_that_says_nothing_new_wakes_the_step_that_polls_alone(sim: Simulation) -> None:
    sim.rounds(1, step_ms=1)
    topic, changes = sim.registry.topics[TOPICS[0]], sim.context.changes
    resting = [agenda for agenda in changes._steps if not is_on(agenda, topic.name)]
    observed.asked([topic])
    observed.answered(topic, topic.end)
    observed.same(topic, sim.clock.now, sim.clock.now + 1_000)
    changes.hand_out()
    assert [agenda for agenda in resting if is_on(agenda, topic.name)] == [sim.driver.plans._polls]
    observed.answered(topic, replace(topic.end, mark_delete=(0, -1)))
    changes.hand_out()
    assert all(is_on(agenda, topic.name) for agenda in resting), "what was acknowledged may be taken back"


def test_a_topic_whose_time_has_come_is_looked_at_alone(sim: Simulation) -> None:
    sim.rounds(1, step_ms=1)
    topic = sim.registry.topics[TOPICS[0]]
    assert topic.rest is not None
    topic.rest = replace(topic.rest, ends_at=sim.clock.now + LEAST_MS)
    sim.context.changes.mark([topic.name])
    sim.driver.round()
    sim.registry.topics = watched = WatchedTopics(sim.registry.topics)
    sim.clock.now += LEAST_MS
    sim.driver.round()
    assert set(watched.looks) == {topic.name}


def test_whatever_is_known_anew_ends_a_rest(sim: Simulation) -> None:
    topic = sim.registry.topics[TOPICS[0]]
    state, now = sim.driver.state(topic.name), sim.clock.now
    topic.rest = rest = Rest(state, now + 1, None)
    topic.observed = replace(topic.observed, seen_at=now)
    topic.poll = replace(topic.poll, again_at=now)
    assert topic.rests(state, now), "it was seen to be as it was"
    assert not topic.rests(state, now + 1)
    assert not topic.rests(replace(state, let_go=True), now)
    begin = topic.begin()
    assert begin is not None
    others = {
        "rules": replace(topic.rules, max_size=1), "committed": replace(topic.committed, catalog_error="x"),
        "observed": replace(topic.observed, doubted=True), "source": "another",
        "poll": replace(topic.poll, error="away"), "tail": facets.HiddenTail(asked_at=1),
        "learnt": facets.Learnt(died=True), "planned": facets.Planned(at=1),
        "times": facets.PublishTimes({begin: 1}), "retirement": Retirement(RollReason.DELETED, None, 1),
        "release": facets.Release(done=True), "pin": facets.PinState("moved"),
        "losses": facets.LossState(begin), "features": {int: 1}, "inquiry": facets.Inquiry(),
    }  # fmt: skip
    assert set(others) == {each.name for each in fields(Topic)} - {"name", "rest", "changes"}
    for name, other in others.items():
        before = getattr(topic, name)
        setattr(topic, name, other)
        assert not topic.rests(state, now), name
        setattr(topic, name, before)
        topic.rest = rest
    assert topic.rests(state, now)


def test_a_segment_is_rolled_by_age_though_its_topic_rests(sim: Simulation) -> None:
    sim.produce(TOPICS[0], 3)
    sim.rounds(8, step_ms=10_000)
    topic = sim.registry.topics[TOPICS[0]]
    assert topic.rest is not None
    assert topic.rest.due_at is not None
    assert sim.driver.plans.due_at <= topic.rest.due_at
    sim.rounds(3, step_ms=topic.rest.due_at - sim.clock.now)
    assert sim.driver.state(TOPICS[0]).open is None


@pytest.mark.parametrize("batch", [None, LaneBatch(Lane.FAST, [])])
def test_others_have_the_processor_longer_than_a_round_had_it(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch, batch: LaneBatch | None
) -> None:
    """Where an answer is in before each round ends, as with thousands of topics that are being adopted. Receipts are
    taken at once: Spark waits for them."""
    waits: list[float] = []

    class Inbox(queue.Queue[LaneBatch | None]):
        """Time stands still while an answer is there."""

        def get(self, block: bool = True, timeout: float | None = None) -> LaneBatch | None:
            waits.append(timeout or 0)
            return super().get(block=False)

    sim.driver._inbox = Inbox()
    sim.driver._cpu_seconds = partial(next, count(step=0.2))
    turns = iter(range(3))

    def turn() -> float:
        sim.driver._inbox.put(batch)
        if next(turns, None) is None:
            sim.driver.stop()
        return 10.0

    monkeypatch.setattr(sim.driver, "turn", turn)
    monkeypatch.setattr("offloader.offload.driver.driver.time.monotonic", lambda: 0.0)
    sim.driver.run()
    between = [10.0] if batch is not None else [10.0, OTHERS * 0.2]
    assert waits == pytest.approx([*between * 3, 10.0])


def test_an_answer_that_says_nothing_new_is_worth_no_round(sim: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    work, woke = sim.context.work, list[bool]()
    plain = work.post

    def post(kind: WorkKind, key: Any, call: Any, then: Any, wakes: Any = lambda _: True) -> bool:
        def told(answer: Any) -> bool:
            if kind is WorkKind.LOOK:
                woke.append(wakes(answer))
            return bool(wakes(answer))

        return plain(kind, key, call, then, told)

    monkeypatch.setattr(work, "post", post)
    _look_at_all(sim)
    assert set(woke) == {False}
    sim.produce(TOPICS[3], 5)
    _look_at_all(sim)
    assert True in woke
