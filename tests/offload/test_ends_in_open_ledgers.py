"""A topic with a little traffic has its list of ledgers read twice a minute; whatever happens to it in between is seen
at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from offloader.model import Position, TopicName
from offloader.offload.driver.inquiries import vouch
from tests.examples import few
from tests.fakes.cluster import PIN
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
WITNESS = TopicName.parse("public/default/witness")


def with_traffic(seed: int = 1, *, offloaded: bool = True, **settings: object) -> Simulation:
    """Its list was read a second ago. `offloaded`: some of it is."""
    sim = Simulation(seed, roll="10m", entries_per_ledger=None, fail_on_data_loss=False, **settings)
    sim.cluster.create(T)
    sim.cluster.create(WITNESS)
    sim.rounds(4)
    if offloaded:
        sim.produce(T, 30)
        sim.settle()
    reads = listed(sim)
    while listed(sim) == reads:
        traffic(sim, 1)
    traffic(sim, 1)
    return sim


def listed(sim: Simulation) -> int:
    """How often the topic's list was read."""
    return sim.cluster.faults.calls["admin.topic_info", T]


def traffic(sim: Simulation, seconds: int) -> None:
    """An entry a second."""
    for _ in range(seconds):
        sim.produce(T, 1, largest=100)
        sim.rounds(1)


def checked(sim: Simulation) -> None:
    sim.settle()
    truths = {t: truth_of_cluster(sim.cluster, t) for t in (T, WITNESS)}
    check_invariants(sim.store, truths, at_rest=True, paces=[sim.pace])
    sim.close()


def test_the_list_of_a_topic_with_an_entry_a_second_is_read_twice_a_minute() -> None:
    sim = with_traffic()
    before = listed(sim)
    traffic(sim, 120)
    assert listed(sim) - before <= 5
    topic = sim.registry.topics[T]
    assert topic.end.last == topic.info.last_confirmed == sim.cluster.admin.topic_info(T).last_confirmed
    assert topic.end.last is not None
    ledger = topic.end.last[0]
    entries, size = topic.info.sizes[ledger]
    truly, bytes_of_it = sim.cluster.admin.topic_info(T).sizes[ledger]
    assert entries == truly
    assert bytes_of_it / 3 < size < bytes_of_it * 3
    checked(sim)


def skipped(sim: Simulation) -> None:
    sim.cluster.skip(T, 1)


def rolled_and_trimmed(sim: Simulation) -> None:
    sim.cluster.roll(T)
    sim.cluster.check_retention(T)


def skipped_and_trimmed(sim: Simulation) -> None:
    sim.cluster.skip_all(T)
    rolled_and_trimmed(sim)


def pin_deleted(sim: Simulation) -> None:
    sim.cluster.delete_subscription(T)
    rolled_and_trimmed(sim)


def pin_made_anew(sim: Simulation) -> None:
    sim.cluster.delete_subscription(T)
    sim.cluster.add_subscription(T, PIN)


def unloaded(sim: Simulation) -> None:
    sim.cluster.unload(T)


def terminated(sim: Simulation) -> None:
    sim.cluster.terminate(T)
    sim.cluster.delete(T)
    sim.cluster.create(T)


def created_again(sim: Simulation) -> None:
    sim.cluster.delete(T)
    sim.cluster.create(T)


EVENTS: list[Callable[[Simulation], None]] = [
    skipped,
    rolled_and_trimmed,
    skipped_and_trimmed,
    pin_deleted,
    pin_made_anew,
    unloaded,
    terminated,
    created_again,
]


@pytest.mark.parametrize("offloaded", [True, False])
@pytest.mark.parametrize("event", EVENTS)
def test_what_happens_between_two_lists_has_the_next_one_read_at_once(
    event: Callable[[Simulation], None], *, offloaded: bool
) -> None:
    sim = with_traffic(offloaded=offloaded)
    traffic(sim, 3)
    before = listed(sim)
    event(sim)
    traffic(sim, 2)
    assert listed(sim) > before
    traffic(sim, 40)
    checked(sim)


@pytest.mark.parametrize("seed", few(range(24), 6))
def test_whatever_happens_every_few_seconds_nothing_is_missing_without_a_record(seed: int) -> None:
    sim, chance = with_traffic(seed, offloaded=seed % 2 == 0, pin_holds_last_entry=seed % 3 > 0), random.Random(seed)
    for _ in range(12):
        traffic(sim, chance.randrange(1, 12))
        if chance.random() < 0.2:
            sim.kill()
        chance.choice(EVENTS if sim.cluster.mark_delete(T) else [unloaded, created_again])(sim)
    traffic(sim, 5)
    checked(sim)


@pytest.mark.parametrize("same_ledgers", [True, False])
def test_the_topic_of_a_cluster_that_was_built_anew_is_not_taken_for_the_former_one(*, same_ledgers: bool) -> None:
    sim = with_traffic()
    ledger = sim.cluster.admin.topic_info(T).ledgers.spans[0].ledger
    for topic in (T, WITNESS):
        sim.cluster.delete(topic)
    sim.cluster.state.last_ledger = ledger - 1 if same_ledgers else 0
    sim.cluster.state.rng.seed(3)
    for topic in (T, WITNESS):
        sim.cluster.create(topic)
    before = listed(sim)
    traffic(sim, 3)
    assert listed(sim) > before
    if not same_ledgers:
        assert sim.registry.topics[T].in_question
        vouch(sim.registry.topics[T])
        vouch(sim.registry.topics[WITNESS])
        sim.until_believed()
        sim.settle()
        (span,) = sim.cluster.ledgers(T).spans
        catalog = sim.context.catalogs.load(T)
        assert catalog.end == Position(1, span.ledger, 2)
        assert not [loss for loss in catalog.losses if loss.start.incarnation == 1]
    sim.close()
