"""A step of a round looks at the topics that changed and at those whose time has come, and at no others."""

from __future__ import annotations

from random import Random

from offloader.model import TopicName
from offloader.offload.core.changes import DueTimes, TopicChanges

NAMES = [TopicName.parse(f"public/default/t{number}") for number in range(5)]
TOPICS = {name: str(name) for name in NAMES}


def test_each_step_looks_at_all_topics_once_and_then_at_those_that_were_marked() -> None:
    changes = TopicChanges()
    first, second = changes.agenda(), changes.agenda()
    for agenda in (first, second):
        assert agenda.names(TOPICS, 0) == NAMES
    for name in NAMES:
        first.rest(name)
    assert first.take(TOPICS, 0) == []
    assert second.names(TOPICS, 0) == NAMES, "it has let none rest"
    changes.mark([NAMES[2], NAMES[2], NAMES[1]])
    assert first.names(TOPICS, 0) == [NAMES[2], NAMES[1]]
    assert first.names(TOPICS, 0) == [NAMES[2], NAMES[1]], "until they rest"


def test_a_topic_that_rests_until_a_time_comes_back_then() -> None:
    agenda = TopicChanges().agenda()
    agenda.names(TOPICS, 0)
    for number, name in enumerate(NAMES):
        agenda.rest(name, 10 * number or None)
    assert agenda.names(TOPICS, 9) == []
    assert agenda.names(TOPICS, 20) == NAMES[1:3]
    agenda.rest(NAMES[1])
    agenda.rest(NAMES[2], 25)
    assert agenda.names(TOPICS, 29) == [NAMES[2]]


def test_topics_that_are_gone_are_named_and_not_taken() -> None:
    changes = TopicChanges()
    agenda = changes.agenda()
    agenda.names(TOPICS, 0)
    for name in NAMES:
        agenda.rest(name)
    changes.mark([NAMES[0]])
    assert agenda.names({}, 0) == [NAMES[0]]
    assert agenda.take({}, 0) == []
    assert agenda.names({}, 0) == []


def test_due_times_are_those_that_were_put_last() -> None:
    random, times, expected = Random(1), DueTimes(), dict[TopicName, int]()
    for now in range(2_000):
        name, at = random.choice(NAMES), random.choice([None, now + random.randint(1, 50)])
        times.put(name, at)
        expected.pop(name, None)
        if at is not None:
            expected[name] = at
        assert times.first() == min(expected.values(), default=None)
        if random.random() < 0.2:
            due = times.take(now)
            assert set(due) == {name for name, at in expected.items() if at <= now}
            expected = {name: at for name, at in expected.items() if at > now}
    assert len(times._heap) < 100, "what was put earlier is not kept"
