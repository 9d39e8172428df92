"""When a topic is let go of: not before what is left of it is offloaded, and not where nobody wants it any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from offloader.errors import BrokerUnavailableError, OutcomeUnknownError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import CatalogHead, Claim, Releasing
from offloader.model import FailureKind, Position, TopicName
from offloader.offload.driver import committing, losses, retiring
from offloader.offload.driver.context import Context
from offloader.ports.pins import TopicEnd
from offloader.storage.memory import MemoryStore
from offloader.testing.faulty import Effect, FaultyStore, StoreFault, StoreFaults
from offloader.testing.invariants import check_invariants
from offloader.testing.truth import truth_of_cluster
from tests.offload.simulation import Simulation

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
    sim.cluster.namespace("public/default").properties["offloader.enabled"] = "false"
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


@pytest.mark.parametrize("then", ["true", None])
def test_a_topic_that_was_said_to_be_disabled_once_is_not_released_where_that_is_taken_back_before(
    then: str | None,
) -> None:
    sim = Simulation(1, roll="10m", max_size=10**8, enabled=then is None)
    properties = sim.cluster.namespace("public/default").properties
    properties["offloader.enabled"] = "true"
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 60)
    properties["offloader.enabled"] = "false"
    while not sim.driver.state(TOPIC).releasing:
        sim.clock.now += 200
        sim.round()
    del properties["offloader.enabled"]
    if then is not None:
        properties["offloader.enabled"] = then
    sim.rounds(30)
    assert TOPIC in sim.registry.topics
    assert not sim.driver.state(TOPIC).releasing
    assert sim.cluster.mark_delete(TOPIC) is not None
    sim.produce(TOPIC, 20)
    sim.settle()


def test_a_topic_that_its_policy_let_go_of_and_that_is_enabled_again_is_taken_in_again() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8)
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 60)
    sim.rounds(4)
    properties = sim.cluster.namespace("public/default").properties
    properties["offloader.enabled"] = "false"
    while TOPIC in sim.registry.topics:
        sim.rounds(1, step_ms=100)
    properties["offloader.enabled"] = "true"  # before another look has seen it disabled
    sim.rounds(10)
    assert TOPIC in sim.registry.topics
    sim.produce(TOPIC, 20)
    sim.settle()


@pytest.mark.parametrize("before", [0, 7])
def test_what_was_written_and_trimmed_between_a_release_and_the_next_claim_is_recorded(before: int) -> None:
    """Also of a topic of which nothing was offloaded yet."""
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None)
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, before)
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
    properties[SWITCH] = "false"
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
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
    properties[SWITCH] = "false"
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
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
    sim.cluster.namespace("public/default").properties[SWITCH] = "false"
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


def test_what_somebody_else_deletes_after_a_release_was_taken_back_is_not_our_own_doing() -> None:
    sim = Simulation(1, roll="10s", max_size=10**8, entries_per_ledger=None)
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 7)
    sim.settle()
    sim.cluster.faults.add("pins.release", lambda: BrokerUnavailableError("not now"), times=2)
    properties[SWITCH] = "false"
    until(sim, lambda: sim.driver.state(TOPIC).releasing is not None)
    sim.rounds(1, step_ms=100)
    properties[SWITCH] = "true"
    sim.rounds(10)
    assert sim.cluster.mark_delete(TOPIC) is not None
    assert sim.driver.state(TOPIC).idle
    sim.produce(TOPIC, 5)
    sim.cluster.delete_subscription(TOPIC)
    sim.cluster.roll(TOPIC)
    sim.rounds(10)
    failure = sim.driver.state(TOPIC).failure
    assert failure is not None
    assert failure.kind is FailureKind.DATA_LOST


def released_by_policy(sim: Simulation) -> dict[str, str]:
    """The topic has much to offload, and is said to be disabled; the namespace's properties."""
    properties = sim.cluster.namespace("public/default").properties
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 60)
    properties[SWITCH] = "false"
    until(sim, lambda: sim.driver.state(TOPIC).releasing is Releasing.POLICY)
    return properties


def until(sim: Simulation, there: Callable[[], bool]) -> None:
    for _ in range(100):
        if there():
            return
        sim.clock.now += 200
        sim.round()
    raise AssertionError("it did not happen")


def test_a_topic_that_is_enabled_again_while_nothing_runs_is_not_released() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8)
    properties = released_by_policy(sim)
    properties[SWITCH] = "true"
    sim.kill()
    sim.rounds(30)
    assert TOPIC in sim.registry.topics
    assert not sim.driver.state(TOPIC).releasing
    assert sim.registry.topics[TOPIC].retirement is None
    assert sim.cluster.mark_delete(TOPIC) is not None


def test_a_topic_that_nothing_enables_any_more_after_it_was_disabled_is_paused() -> None:
    sim = Simulation(1, roll="10m", max_size=10**8, enabled=False)
    sim.cluster.namespace("public/default").properties[SWITCH] = "true"
    del released_by_policy(sim)[SWITCH]
    sim.kill()
    sim.rounds(30)
    assert not sim.driver.state(TOPIC).releasing
    assert sim.cluster.mark_delete(TOPIC) is not None


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


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("what", ["namespace", "catalog"])
def test_a_topic_disabled_while_nothing_ran_is_released_also_where_it_could_not_be_read_at_first(
    what: str, times: int
) -> None:
    faults = StoreFaults()
    sim = Simulation(1, roll="5s", store=FaultyStore(MemoryStore(), faults))
    sim.cluster.create(TOPIC)
    sim.rounds(4)
    sim.produce(TOPIC, 10)
    sim.settle()
    sim.pins.close()
    sim.journal.close()
    sim.cluster.namespace("public/default").properties[SWITCH] = "false"
    sim.start()
    assert TOPIC not in sim.journal.topics
    if what == "namespace":
        sim.cluster.faults.add("admin.namespace_properties", lambda: BrokerUnavailableError("not now"), times=times)
    else:
        faults.add(StoreFault("*", key=lambda key: "/_catalog/" in key, times=times))
    sim.rounds(40)
    assert sim.cluster.mark_delete(TOPIC) is None
    claim = sim.context.catalogs.head(TOPIC).claim
    assert claim is not None
    assert claim.application == ""


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


def test_a_release_that_is_taken_back_while_the_journal_is_away_deletes_no_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check and the deletion there may be an hour."""
    faults = StoreFaults()
    sim = awaiting_release(faults)
    properties = sim.cluster.namespace("public/default").properties
    check, checked = retiring._check, []

    def checked_first(context: Context, catalog: CatalogHead, *, by_policy: bool) -> None:
        check(context, catalog, by_policy=by_policy)
        if not checked:
            faults.add(StoreFault("put", key=lambda key: "_journal" in key, times=60))
        checked.append(catalog.topic)

    monkeypatch.setattr(retiring, "_check", checked_first)
    properties[SWITCH] = "false"
    until(sim, lambda: bool(checked))
    properties[SWITCH] = "true"
    sim.produce(TOPIC, 20)
    sim.rounds(80, step_ms=60_000)
    sim.cluster.roll(TOPIC)
    sim.settle()
    assert TOPIC in sim.registry.topics
    assert sim.context.catalogs.load(TOPIC).losses == ()
    check_invariants(sim.store, {TOPIC: truth_of_cluster(sim.cluster, TOPIC)}, at_rest=True)


def test_a_topic_that_a_policy_released_is_taken_up_again_though_the_journal_failed_at_the_release_s_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults = StoreFaults()
    sim = awaiting_release(faults)
    properties = sim.cluster.namespace("public/default").properties
    end_claim = committing.end_claim

    def ended(context: Context, name: TopicName) -> None:
        end_claim(context, name)
        faults.add(StoreFault("put", key=lambda key: "_journal" in key))
        properties[SWITCH] = "true"  # before another discovery sees that it was false

    monkeypatch.setattr(committing, "end_claim", ended)
    properties[SWITCH] = "false"
    until(sim, lambda: sim.cluster.mark_delete(TOPIC) is None)
    sim.rounds(60)
    assert TOPIC in sim.registry.topics
    assert sim.cluster.mark_delete(TOPIC) is not None
