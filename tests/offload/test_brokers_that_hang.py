"""A broker that hangs is waited for by its own topics; those of other brokers go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from offloader.errors import AccessDeniedError, BrokerUnavailableError, OffloadError, OutcomeUnknownError
from offloader.model import Position, TopicName
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.driver import observed
from offloader.offload.driver.work import WorkKind
from offloader.ports.pins import TopicEnd
from tests.offload.simulation import Simulation

FIRST_MS = 30_000
LAST_MS = 240_000
SOON_MS = 1000

HEALTHY = TopicName.parse("public/default/t")
HUNG = [TopicName.parse(f"public/default/hung{n}") for n in range(3)]
TIME_OUT_MS = 30_000
FIVE_MINUTES = 300_000


class Stuck(Executor):
    """Every thread waits for a broker."""

    def __init__(self) -> None:
        self.asked = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked += 1
        return Future()


class Queued(Executor):
    """Threads that are busy for now."""

    def __init__(self) -> None:
        self.calls: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.calls.append((future, fn))
        return future

    def serve(self) -> None:
        for future, call in self.calls:
            try:
                future.set_result(call())
            except OffloadError as error:
                future.set_exception(error)


def started(*others: TopicName, **settings: object) -> Simulation:
    sim = Simulation(1, **{"roll": "10m", "max_size": 10**8, **settings})
    for topic in (HEALTHY, *others):
        sim.cluster.create(topic)
    sim.rounds(4)
    return sim


def alarm_of(sim: Simulation) -> str:
    return {status.topic: status.alarm for status in sim.driver.statuses.latest}[HEALTHY]


def go_on(sim: Simulation) -> int:
    """Five minutes in which the healthy topic is written to; the number of its batches."""
    began, batches = sim.clock.now, 0
    while sim.clock.now - began < FIVE_MINUTES:
        sim.produce(HEALTHY, 5)
        sim.clock.now += 1_000
        sim.round()
        batches += bool(sim.batch())
    return batches


def test_looks_that_are_waited_for_become_rare_and_the_other_topics_go_on() -> None:
    sim = started(*HUNG)
    undisturbed = go_on(sim)
    looks, waits, ends = 0, 0, sim.pins.ends

    def hung(topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        nonlocal looks, waits
        found = ends(topics)
        failing = [t for t in topics if t in HUNG]
        looks += len(failing)
        if failing:
            waits += 1
            sim.clock.now += TIME_OUT_MS
        return found | {t: BrokerUnavailableError("did not answer") for t in failing}

    sim.pins.ends = hung
    for topic in HUNG:
        observed.soon(sim.registry.topics[topic])
    assert go_on(sim) > undisturbed / 2
    assert waits <= 5
    assert looks == waits * len(HUNG)


def test_topics_that_cannot_be_adopted_yet_keep_no_other_topic_waiting() -> None:
    sim = started()
    sim.executors[WorkKind.ADOPT] = stuck = Stuck()
    for topic in HUNG:
        sim.cluster.create(topic)
    assert go_on(sim) > 10
    assert stuck.asked == len(HUNG)


def test_an_acknowledgement_is_not_tried_where_the_last_look_failed() -> None:
    sim = started(roll="5s")
    sim.produce(HEALTHY, 10)
    sim.cluster.faults.add("pins.acknowledge", lambda: BrokerUnavailableError("not now"))
    while not sim.context.catalogs.load(HEALTHY).segments:
        sim.rounds(1)
    topic = sim.registry.topics[HEALTHY]
    observed.explain(topic, "did not answer")
    observed.soon(topic, sim.clock.now + FIVE_MINUTES)
    asked = sim.cluster.faults.count("pins.acknowledge")
    sim.rounds(5, step_ms=10_000)
    assert sim.cluster.faults.count("pins.acknowledge") == asked
    observed.soon(topic)
    sim.settle()
    assert sim.cluster.faults.count("pins.acknowledge") > asked


def test_an_acknowledgement_that_fails_is_an_alarm_until_it_is_done(caplog: pytest.LogCaptureFixture) -> None:
    sim = started(roll="5s")
    sim.produce(HEALTHY, 10)
    sim.cluster.faults.add("pins.acknowledge", lambda: AccessDeniedError("no right to consume"), times=1_000)
    told = "cannot acknowledge topic=persistent://public/default/t"
    sim.rounds(10, 10_000)
    assert alarm_of(sim) == "no right to consume"
    assert caplog.text.count(told) == 1
    sim.cluster.faults.clear()
    sim.settle()
    sim.rounds(2, 60_000)
    assert alarm_of(sim) == ""


def test_an_acknowledgement_that_was_done_is_no_alarm_though_its_receipt_never_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = started(roll="5s")
    sim.produce(HEALTHY, 10)
    acknowledge = sim.pins.acknowledge

    def unanswered(topic: TopicName, position: Position) -> None:
        acknowledge(topic, position)
        sim.clock.now += TIME_OUT_MS
        raise OutcomeUnknownError("no receipt came")

    sim.pins.acknowledge = unanswered
    sim.rounds(20, 2_000)
    assert "yet: no receipt came" in caplog.text
    sim.rounds(5, 60_000)
    assert alarm_of(sim) == ""


def test_an_acknowledgement_that_stood_in_a_queue_was_not_waited_for() -> None:
    sim = started(roll="5s")
    sim.produce(HEALTHY, 10)
    sim.rounds(1)
    sim.executors[WorkKind.ACKNOWLEDGE] = queue = Queued()
    sim.cluster.faults.add("pins.acknowledge", lambda: BrokerUnavailableError("not now"), times=1)
    sim.rounds(20)
    assert len(queue.calls) == 1
    sim.clock.now += TIME_OUT_MS
    queue.serve()
    sim.round()
    assert sim.registry.topics[HEALTHY].pin.retry.again_at <= sim.clock.now + SOON_MS


def test_a_release_that_is_waited_for_is_tried_less_and_less_often() -> None:
    sim = started()
    sim.produce(HEALTHY, 10)
    asked = 0

    def hung(topic: TopicName) -> None:
        nonlocal asked
        asked += 1
        sim.clock.now += TIME_OUT_MS
        raise BrokerUnavailableError(f"{topic} did not answer")

    sim.pins.release = hung
    for topic in list(sim.registry.topics):
        sim.release(topic)
    go_on(sim)
    assert 1 <= asked <= 5


@pytest.mark.parametrize("took", [0, 500])
def test_what_fails_at_once_is_tried_again_soon(took: int) -> None:
    retry = RetrySchedule()
    for _ in range(5):
        retry = retry.failed(1_000, 1_000 + took)
        assert retry.again_at == 1_000 + took + SOON_MS


def test_what_is_waited_for_is_tried_at_moments_that_topics_share() -> None:
    one, other = RetrySchedule(), RetrySchedule()
    now, delays = 1_700_000_000_000, []
    for _ in range(8):
        one, other = (each.failed(now, now + TIME_OUT_MS) for each in (one, other))
        assert one.again_at == other.again_at
        delays.append(one.again_at - now - TIME_OUT_MS)
        now = one.again_at
    assert max(delays) <= LAST_MS
    assert delays[0] <= FIRST_MS < delays[-1]
    one = one.succeeded().failed(now, now + TIME_OUT_MS)
    assert one.again_at - now - TIME_OUT_MS <= FIRST_MS
