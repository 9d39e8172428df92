"""A subscription that is not the one that a topic was claimed with: before anything is committed, only its token
tells."""

from __future__ import annotations

import pytest

from offloader.errors import BrokerUnavailableError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.state import TopicCatalog
from offloader.metadata.takeover import takeover
from offloader.model import Loss, TopicName
from tests.fakes.cluster import PIN
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")


def started(**settings: object) -> Simulation:
    """One topic, claimed while it was empty."""
    sim = Simulation(1, roll="10s", fail_on_data_loss=False, entries_per_ledger=None, **settings)
    sim.cluster.create(T)
    sim.rounds(4)
    return sim


def catalog(sim: Simulation) -> TopicCatalog:
    return Catalogs(sim.store, sim.application).load(T)


def token(sim: Simulation) -> str | None:
    claim = catalog(sim).claim
    return None if claim is None else claim.token


def stop(sim: Simulation) -> None:
    sim.pins.close()
    sim.journal.close()


def robbed(sim: Simulation, *, by_somebody: bool = False) -> None:
    """Something is written, the subscription deleted, the ledger trimmed, and perhaps somebody makes the subscription
    anew."""
    sim.produce(T, 20)
    sim.cluster.delete_subscription(T)
    sim.cluster.roll(T)
    if by_somebody:
        sim.cluster.add_subscription(T, PIN)


def goes_on(sim: Simulation) -> tuple[Loss, ...]:
    """What is lost by then; the invariants hold."""
    sim.rounds(4)
    sim.produce(T, 5)
    sim.settle()
    check_invariants(sim.store, {T: truth_of_cluster(sim.cluster, T)}, at_rest=True)
    return catalog(sim).losses


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("by_somebody", [True, False])
def test_what_went_with_the_subscription_of_a_topic_claimed_while_empty_is_a_loss(
    running: bool, by_somebody: bool
) -> None:
    sim = started()
    if not running:
        stop(sim)
    robbed(sim, by_somebody=by_somebody)
    if not running:
        sim.start()
    claim = catalog(sim).claim
    assert claim is not None
    assert [loss.start for loss in goes_on(sim)] == [claim.begin]


def test_nor_is_it_forgotten_with_a_takeover() -> None:
    sim = started()
    stop(sim)
    robbed(sim, by_somebody=True)
    takeover(sim.store, "sim", "other", sim.uuid, sim.clock())
    other = Simulation(2, roll="10s", fail_on_data_loss=False, cluster_of=sim, store=sim.store, application="other")
    assert goes_on(other)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("running", [True, False])
def test_an_empty_topic_whose_ledger_is_replaced_has_lost_nothing(times: int, running: bool) -> None:
    sim = started()
    for _ in range(times):
        if not running:
            stop(sim)
        sim.cluster.unload(T)
        if not running:
            sim.start()
        sim.rounds(3)
    assert not goes_on(sim)


def test_a_subscription_that_is_made_anew_while_all_is_there_is_the_one_that_keeps_the_topic_then() -> None:
    sim = started()
    before = token(sim)
    sim.cluster.delete_subscription(T)
    sim.cluster.add_subscription(T, "another")  # which keeps all that there is
    sim.produce(T, 1)
    sim.rounds(1, step_ms=1)
    stop(sim)
    sim.start()
    sim.rounds(1, step_ms=1)
    assert before != token(sim) != ""
    assert not goes_on(sim)


def test_nor_does_it_call_anything_lost_when_its_empty_ledger_is_replaced_later() -> None:
    sim = started()
    before = token(sim)
    stop(sim)
    sim.cluster.delete_subscription(T)
    sim.start()
    sim.rounds(3)
    assert token(sim) not in (before, "")
    sim.cluster.unload(T)
    assert not goes_on(sim)


def test_a_crash_between_subscribing_and_claiming_neither_alarms_nor_hides_anything() -> None:
    """The claim says which subscription there is, whoever made it."""
    sim = Simulation(1, roll="10s", fail_on_data_loss=False, entries_per_ledger=None)
    sim.cluster.faults.add("admin.pin_token", lambda: BrokerUnavailableError("gone"), times=3)
    sim.cluster.create(T)
    sim.rounds(2)
    assert sim.cluster.mark_delete(T) is not None
    assert token(sim) is None
    sim.kill()
    sim.rounds(8, step_ms=3_000)
    assert token(sim)
    sim.cluster.unload(T)
    assert not goes_on(sim)
    assert sim.cluster.admin.pin_token(T, PIN) == token(sim)


def test_a_topic_that_is_released_and_taken_in_again_has_the_token_of_its_new_subscription() -> None:
    sim = started()
    before = token(sim)
    properties = sim.cluster.namespace("public/default").properties
    sim.release(T)
    properties["offloader.enabled"] = "false"
    sim.rounds(20)
    assert T not in sim.registry.topics
    assert sim.cluster.mark_delete(T) is None
    del properties["offloader.enabled"]
    sim.rounds(20)
    assert token(sim) not in (before, "", None)
    assert token(sim) == sim.cluster.admin.pin_token(T, PIN)
    robbed(sim)
    assert goes_on(sim)


def test_brokers_that_keep_no_properties_raise_no_alarm() -> None:
    sim = Simulation(1, roll="10s", fail_on_data_loss=False, entries_per_ledger=None)
    sim.cluster.admin.broker_version = "2.10.0"
    sim.cluster.create(T)
    sim.rounds(4)
    assert token(sim) == ""
    for _ in range(3):
        sim.cluster.unload(T)
        sim.rounds(3)
    sim.cluster.admin.broker_version = "4.0.7"  # the brokers are replaced
    sim.cluster.unload(T)
    assert not goes_on(sim)


@pytest.mark.parametrize("from_the_beginning", [True, False])
def test_brokers_that_recover_cursors_lazily_say_the_token_of_whoever_subscribes_after_a_load_and_raise_no_alarm(
    from_the_beginning: bool,
) -> None:
    sim = Simulation(1, roll="10s", fail_on_data_loss=False, entries_per_ledger=None)
    if from_the_beginning:
        sim.cluster.configuration["lazyCursorRecovery"] = "true"
    sim.cluster.create(T)
    sim.rounds(4)
    sim.cluster.configuration["lazyCursorRecovery"] = "true"
    records = catalog(sim).next_slot
    for _ in range(3):
        sim.cluster.unload(T)
        sim.rounds(3)
    assert not goes_on(sim)
    assert catalog(sim).next_slot - records == len(catalog(sim).segments), "nothing else is recorded of it"


def test_a_subscription_that_somebody_else_made_before_us_raises_no_alarm() -> None:
    sim = Simulation(1, roll="10s", fail_on_data_loss=False, entries_per_ledger=None)
    sim.cluster.create(T)
    sim.cluster.add_subscription(T, PIN)
    sim.rounds(4)
    assert token(sim) == ""
    sim.cluster.unload(T)
    assert not goes_on(sim)


@pytest.mark.parametrize("running", [True, False])
def test_whoever_answers_something_else_than_a_version_hides_no_loss(running: bool) -> None:
    sim = started()
    claim = catalog(sim).claim
    assert claim is not None
    sim.cluster.admin.broker_version = "<html>please sign in</html>"
    if not running:
        stop(sim)
    robbed(sim, by_somebody=True)
    sim.produce(T, 5)
    if not running:
        sim.start()
    sim.rounds(8, step_ms=3_000)
    assert catalog(sim).end is None
    sim.cluster.admin.broker_version = "4.0.7"
    sim.rounds(100, step_ms=10_000)
    assert [loss.start for loss in goes_on(sim)] == [claim.begin]
