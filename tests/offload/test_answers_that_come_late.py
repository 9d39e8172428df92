"""What was posted and is not answered yet: nothing is concluded from what it will say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from offloader.metadata.state import Abandoned, TopicState
from offloader.model import TopicName
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.driver import losses
from offloader.offload.driver.work import WorkKind
from tests.in_turn import InTurn
from tests.offload.simulation import Simulation

TOPIC = TopicName.parse("public/default/t")


class Later(Executor):
    """Calls are made when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    def answer(self) -> None:
        """All of them."""
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001
                future.set_exception(error)


def put_off(sim: Simulation, kind: WorkKind) -> Later:
    later = Later()
    sim.executors[kind] = later
    return later


def answer_from_now_on(sim: Simulation, kind: WorkKind, later: Later) -> None:
    sim.executors[kind] = InTurn()
    later.answer()


def test_a_topic_is_released_at_the_end_that_it_has_then_not_at_one_that_was_known_before() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 5)
    sim.rounds(4)
    sim.clock.now += 300_000  # quiet: the next look is a while away
    sim.rounds(1)
    later = put_off(sim, WorkKind.LEDGERS)
    sim.produce(TOPIC, 7)
    written = max((e.ledger, e.entry) for e in sim.cluster.entries(TOPIC))
    sim.release(TOPIC)
    sim.rounds(8)
    assert later.waiting, "the look has seen that the end moved; the ledger list is not there yet"
    answer_from_now_on(sim, WorkKind.LEDGERS, later)
    sim.rounds(60)
    assert TOPIC not in sim.registry.topics, "it is released"
    end = sim.context.catalogs.head(TOPIC).end
    assert end is not None
    assert (end.ledger, end.entry) == written


def test_an_upload_that_begins_in_mid_round_is_not_begun_twice() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    later = put_off(sim, WorkKind.BEGIN)
    begun = 0
    begin = sim.store.begin

    def counted(*args: Any, **kwargs: Any) -> str:
        nonlocal begun
        begun += 1
        return begin(*args, **kwargs)

    sim.store.begin = counted
    sim.produce(TOPIC, 60)
    sim.rounds(2)
    assert len(later.waiting) == 1
    update = sim.registry.update

    def update_meanwhile() -> None:
        update()
        later.answer()

    sim.registry.update = update_meanwhile
    sim.rounds(1)
    sim.registry.update = update
    answer_from_now_on(sim, WorkKind.BEGIN, later)
    sim.rounds(5)
    assert begun == 1
    segment = sim.driver.state(TOPIC).open
    assert segment is not None
    assert segment.parts


def test_a_topic_whose_subscription_is_being_deleted_is_not_looked_at() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 5)
    sim.rounds(4)
    later = put_off(sim, WorkKind.RELEASE)
    sim.release(TOPIC)
    sim.rounds(30)
    assert later.waiting
    looks = sim.cluster.faults.count("pins.ends")
    sim.rounds(30)
    assert sim.cluster.faults.count("pins.ends") == looks, "a look would subscribe again where the connection is lost"
    answer_from_now_on(sim, WorkKind.RELEASE, later)
    sim.rounds(5)
    assert TOPIC not in sim.registry.topics
    assert sim.cluster.mark_delete(TOPIC) is None


@pytest.mark.parametrize("kind", [WorkKind.ADOPT, WorkKind.ADOPT_AGAIN])
def test_what_adoption_has_journaled_is_not_overwritten_by_uploads_that_were_aborted_meanwhile(kind: WorkKind) -> None:
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=5, pin_holds_last_entry=False)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 5)
    sim.settle()
    sim.rounds(10)
    sim.produce(TOPIC, 8)  # a whole ledger, and more: nobody keeps the former
    sim.journal.record([replace(sim.driver.state(TOPIC), abandoned=(Abandoned("gone", None, "a test"),))])
    sim.cluster.delete_subscription(TOPIC)
    sim.cluster.check_retention(TOPIC)
    sim.kill()
    if kind is WorkKind.ADOPT_AGAIN:
        sim.registry._adoptions[TOPIC] = RetrySchedule(in_vain=1)  # its broker hung
    adoption = put_off(sim, kind)
    sim.driver._abandoned._again_at = sim.clock.now + 3_000
    record = sim.journal.record

    def record_meanwhile(changes: Iterable[TopicState]) -> None:
        changes = list(changes)
        if any(state.topic == TOPIC for state in changes):
            sim.journal.record = record
            adoption.answer()  # its thread journals between the driver's look at the state and its record
        record(changes)

    sim.rounds(2, step_ms=1_000)
    assert adoption.waiting
    sim.journal.record = record_meanwhile
    sim.rounds(10)
    sim.journal.record = record
    answer_from_now_on(sim, kind, adoption)
    sim.rounds(20)
    state = sim.driver.state(TOPIC)
    assert state.lost_after is not None
    assert not state.abandoned
    losses.accept(sim.registry.topics[TOPIC], sim.registry.topics[TOPIC].last)
    sim.forget_failure(TOPIC)
    sim.rounds(5)
    assert len(sim.context.catalogs.load(TOPIC).losses) == 1


def test_an_end_that_is_newer_than_the_ledger_list_is_offloaded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is slow, while a topic is taken in: its ledgers roll between the two answers, and then nothing is
    written any more."""
    sim = Simulation(1, roll="10s", entries_per_ledger=3)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 4)
    sim.settle()  # or the list would be read anew, for the sake of the pin's token
    sim.pins.close()
    sim.journal.close()
    opened = type(sim.pins).open

    def open_late(pins: Any, topic: TopicName) -> object:
        sim.produce(TOPIC, 20)
        monkeypatch.undo()
        return opened(pins, topic)

    monkeypatch.setattr(type(sim.pins), "open", open_late)
    sim.start()
    sim.settle()
    head = sim.context.catalogs.head(TOPIC)
    written = max((e.ledger, e.entry) for e in sim.cluster.entries(TOPIC))
    assert head.end is not None
    assert head.end[1:] == written
