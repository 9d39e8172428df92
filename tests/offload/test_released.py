"""When a topic is let go of: not before what is left of it is offloaded, and not where nobody wants it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.errors import OutcomeUnknownError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import Claim, Releasing
from offloader.model import FailureKind, Position, TopicName
from offloader.offload.driver import losses, retiring
from offloader.ports.pins import TopicEnd
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

TOPIC = TopicName.parse("public/default/t")
SWITCH = "offloader.enabled"


def test_a_topic_of_which_something_is_lost_is_not_released_before_the_rest_is_offloaded() -> None:
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=5)
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 7)
    sim.settle()
    held = sim.context.catalogs.head(TOPIC).end
    assert held is not None
    sim.produce(TOPIC, 12)  # the rest of that ledger, a whole one, and more
    sim.cluster.lose(TOPIC, held.ledger)
    sim.rounds(5)
    failure = sim.driver.state(TOPIC).failure
    assert failure is not None
    assert failure.kind is FailureKind.DATA_LOST
    sim.release(TOPIC)
    sim.rounds(60)
    assert TOPIC in sim.registry.topics, "somebody must accept the loss first"
    assert sim.cluster.mark_delete(TOPIC) is not None
    topic = sim.registry.topics[TOPIC]
    losses.accept(topic, topic.last)
    sim.forget_failure(TOPIC)
    written = max((e.ledger, e.entry) for e in sim.cluster.entries(TOPIC))
    sim.rounds(60)
    assert TOPIC not in sim.registry.topics, "it is released"
    end = sim.context.catalogs.head(TOPIC).end
    assert end is not None
    assert (end.ledger, end.entry) == written


@pytest.mark.parametrize("before", [0, 7])
def test_what_was_written_and_trimmed_between_a_release_and_the_next_claim_is_recorded(before: int) -> None:
    """Also of a topic of which nothing was offloaded yet."""
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None)
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, before)
    sim.release(TOPIC)
    properties[SWITCH] = "false"
    sim.rounds(60)
    assert TOPIC not in sim.registry.topics
    sim.produce(TOPIC, 5)
    sim.cluster.roll(TOPIC)
    sim.cluster.check_retention(TOPIC)
    properties[SWITCH] = "true"
    sim.rounds(10)
    sim.produce(TOPIC, 5)
    sim.settle()
    losses = sim.context.catalogs.load(TOPIC).losses
    assert [loss.accepted_by for loss in losses] == ["release"]
    check_invariants(sim.store, {TOPIC: truth_of_cluster(sim.cluster, TOPIC)}, at_rest=True)


def test_an_empty_topic_that_is_released_and_claimed_again_with_its_ledger_has_lost_nothing() -> None:
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None)
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.release(TOPIC)
    properties[SWITCH] = "false"
    sim.rounds(60)
    assert TOPIC not in sim.registry.topics
    properties[SWITCH] = "true"
    sim.rounds(10)
    sim.produce(TOPIC, 5)
    sim.settle()
    assert not sim.context.catalogs.load(TOPIC).losses
    check_invariants(sim.store, {TOPIC: truth_of_cluster(sim.cluster, TOPIC)}, at_rest=True)


@pytest.mark.parametrize("trimmed", [True, False])
@pytest.mark.parametrize("before", [0, 7])
@pytest.mark.parametrize("ends", [True, False])
def test_a_release_that_is_cut_off_after_its_subscription_was_deleted_is_our_own_doing(
    ends: bool, before: int, trimmed: bool
) -> None:
    """And the topic is enabled again: the process ended before the claim did, or the answer to the deletion was lost.
    Nobody has to accept what was lost in between."""
    faults = StoreFaults()
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None, store=FaultyStore(MemoryStore(), faults))
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, before)
    if before:
        sim.settle()
    if ends:
        faults.add(StoreFault("put", key=lambda key: "/_catalog/" in key, times=1))
    else:
        sim.cluster.faults.add("pins.release", lambda: OutcomeUnknownError("no answer"), effect=True)
    sim.release(TOPIC)
    properties[SWITCH] = "false"
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
    take_back(sim)
    if ends:
        sim.pins.close()
        sim.journal.close()
    if trimmed:
        sim.produce(TOPIC, 5)
        sim.cluster.roll(TOPIC)
        sim.cluster.check_retention(TOPIC)
    properties[SWITCH] = "true"
    if ends:
        sim.start()
    sim.rounds(10)
    assert sim.driver.state(TOPIC).failure is None
    sim.produce(TOPIC, 5)
    sim.settle()
    sim.rounds(3)
    assert [loss.accepted_by for loss in sim.context.catalogs.load(TOPIC).losses] == ["release"] * trimmed
    assert sim.driver.state(TOPIC).idle
    check_invariants(sim.store, {TOPIC: truth_of_cluster(sim.cluster, TOPIC)}, at_rest=True)


def test_what_is_trimmed_while_the_next_start_reads_the_list_is_our_own_doing_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = StoreFaults()
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None, store=FaultyStore(MemoryStore(), faults))
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 7)
    sim.settle()
    faults.add(StoreFault("put", key=lambda key: "/_catalog/" in key, times=1))
    sim.cluster.add_subscription(TOPIC, "other")
    sim.release(TOPIC)
    properties[SWITCH] = "false"
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
    take_back(sim)
    sim.pins.close()
    sim.journal.close()
    sim.produce(TOPIC, 5)
    sim.cluster.roll(TOPIC)
    properties[SWITCH] = "true"
    sim.start()
    plain = sim.pins.open

    def open_(topic: TopicName) -> TopicEnd:
        if sim.cluster.mark_delete(TOPIC, "other") is not None:  # it was listed: now it goes
            sim.cluster.delete_subscription(TOPIC, "other")
        return plain(topic)

    monkeypatch.setattr(sim.pins, "open", open_)
    sim.rounds(10)
    assert sim.driver.state(TOPIC).failure is None
    sim.produce(TOPIC, 5)
    sim.settle()
    assert [loss.accepted_by for loss in sim.context.catalogs.load(TOPIC).losses] == ["release"]


def test_a_release_that_is_cut_off_so_is_ended_by_the_next_start() -> None:
    faults = StoreFaults()
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None, store=FaultyStore(MemoryStore(), faults))
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 7)
    sim.settle()
    faults.add(StoreFault("put", key=lambda key: "/_catalog/" in key, times=1))
    sim.release(TOPIC)
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
    sim.pins.close()
    sim.journal.close()
    sim.cluster.roll(TOPIC)
    sim.cluster.check_retention(TOPIC)
    sim.start()
    sim.rounds(60)
    assert TOPIC not in sim.registry.topics
    assert sim.cluster.mark_delete(TOPIC) is None
    claim = sim.context.catalogs.head(TOPIC).claim
    assert claim is not None
    assert claim.application == ""


def take_back(sim: Simulation) -> None:
    """Nobody asks for the release any more; an older version took one back whose policy was gone."""
    retiring.take_back(sim.context, sim.registry.topics[TOPIC])


def until(sim: Simulation, there: Callable[[], bool]) -> None:
    for _ in range(100):
        if there():
            return
        sim.clock.now += 200
        sim.round()
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("switch", ["true", "false", None])
@pytest.mark.parametrize("restart", [True, False])
def test_a_release_that_somebody_asked_for_goes_on_whatever_policies_say(switch: str | None, restart: bool) -> None:
    sim = Simulation(1, roll="10m", max_size=10**8, enabled=switch is not None)
    properties = sim.cluster.namespace("public/default").properties
    properties[SWITCH] = "true"
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 60)
    sim.context.record(replace(sim.driver.state(TOPIC), releasing=Releasing.REQUEST))
    del properties[SWITCH]
    if switch is not None:
        properties[SWITCH] = switch
    if restart:
        sim.kill()
    sim.rounds(30)
    assert TOPIC not in sim.registry.topics
    assert sim.cluster.mark_delete(TOPIC) is None


def test_a_claim_that_another_process_makes_meanwhile_stays_in_the_list() -> None:
    """The list said that it was ours, the catalog does not; before that is put right, our successor claims it."""
    faults = StoreFaults()
    sim = Simulation(1, roll="5s", store=FaultyStore(MemoryStore(), faults))
    mine = Catalogs(sim.store, sim.application)
    mine.mark(TOPIC)
    claim = Claim(sim.application, 0, 1, Position(0, 3, 0), 1)
    successor = Catalogs(sim.store, sim.application)

    def claims() -> None:
        successor.append(successor.head(TOPIC), claim)

    faults.add(StoreFault("delete", Effect.HOOK, hook=claims))
    assert sim.registry.found._is_ours(TOPIC)
    assert Catalogs(sim.store, sim.application).claimed() == [TOPIC]


def awaiting_release(faults: StoreFaults) -> Simulation:
    """Everything is offloaded."""
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=5, store=FaultyStore(MemoryStore(), faults))
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 7)
    sim.settle()
    return sim
