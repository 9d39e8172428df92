"""A topic that was deleted and created again is kept from the first answer on; what was trimmed before is a loss."""

from __future__ import annotations

import pytest

from offloader.model import TopicName
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

T = TopicName.parse("public/default/t")
WITNESS = TopicName.parse("public/default/witness")


def with_deleted_topic(*, hold: bool = True) -> Simulation:
    """Its absence was seen."""
    sim = Simulation(1, pin_holds_last_entry=hold)
    sim.cluster.create(T)
    sim.cluster.create(WITNESS)
    sim.rounds(4)
    sim.produce(T, 30)
    sim.settle()
    sim.cluster.delete(T)
    sim.rounds(4, step_ms=11_000)
    assert sim.registry.topics[T].in_question
    return sim


def with_quiet_topic() -> Simulation:
    """All of it is offloaded, and it is looked at once a minute."""
    sim = Simulation(1, roll="10m")
    sim.cluster.create(T)
    sim.cluster.create(WITNESS)
    sim.rounds(4)
    sim.produce(T, 30)
    sim.settle()
    sim.rounds(10, step_ms=60_000)
    assert sim.registry.topics[T].poll.again_at > sim.clock.now + 40_000
    return sim


def settled(sim: Simulation) -> None:
    sim.until_believed()
    sim.settle()
    assert sim.context.catalogs.load(T).claim.incarnation == 1
    truths = {t: truth_of_cluster(sim.cluster, t) for t in (T, WITNESS)}
    check_invariants(sim.store, truths, at_rest=True, paces=[sim.pace])
    sim.close()


def test_a_topic_that_was_created_again_has_the_subscription_before_its_incarnation_is_decided() -> None:
    sim = with_deleted_topic()
    sim.cluster.create(T)
    sim.rounds(4, step_ms=1_000)
    assert sim.registry.topics[T].in_question
    assert sim.cluster.mark_delete(T) is not None
    sim.produce(T, 70)
    settled(sim)
    assert not sim.context.catalogs.load(T).losses


def test_a_topic_that_is_deleted_twice_while_it_is_in_question_is_kept_each_time() -> None:
    sim = with_deleted_topic()
    for _ in range(2):
        sim.cluster.create(T)
        sim.rounds(11, step_ms=1_000)
        assert sim.cluster.mark_delete(T) is not None
        sim.cluster.delete(T)
        sim.rounds(2, step_ms=11_000)
    sim.cluster.create(T)
    sim.rounds(11, step_ms=1_000)
    sim.produce(T, 70)
    settled(sim)
    assert not sim.context.catalogs.load(T).losses


def test_a_quiet_topic_that_is_deleted_and_created_again_is_subscribed_to_at_once() -> None:
    sim = with_quiet_topic()
    sim.cluster.delete(T)
    sim.rounds(2, step_ms=1_000)
    assert sim.registry.topics[T].in_question
    sim.cluster.create(T)
    sim.rounds(3, step_ms=1_000)
    assert sim.cluster.mark_delete(T) is not None
    sim.produce(T, 70)
    settled(sim)
    assert not sim.context.catalogs.load(T).losses


def test_a_topic_that_was_created_again_between_two_looks_is_subscribed_to_at_once() -> None:
    sim = with_quiet_topic()
    sim.cluster.delete(T)
    sim.cluster.create(T)
    sim.rounds(2, step_ms=1_000)
    assert sim.cluster.mark_delete(T) is not None
    sim.produce(T, 70)
    settled(sim)
    assert not sim.context.catalogs.load(T).losses


def test_a_topic_of_another_cluster_is_not_subscribed_to() -> None:
    sim = with_deleted_topic()
    sim.cluster.name = "another"
    sim.cluster.create(T)
    sim.rounds(12, step_ms=11_000)
    assert sim.cluster.mark_delete(T) is None
    sim.cluster.name = "memory"
    settled(sim)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_trimmed_before_the_subscription_is_a_loss_of_unknown_size(*, hold: bool, restarted: bool) -> None:
    sim = with_deleted_topic(hold=hold)
    sim.cluster.create(T)
    sim.produce(T, 70)
    sim.cluster.check_retention(T)
    assert len(sim.cluster.admin.topic_info(T).ledgers.spans) == 1
    first = sim.cluster.admin.topic_info(T).ledgers.spans[0].ledger
    if restarted:
        sim.kill()
    settled(sim)
    (loss,) = (loss for loss in sim.context.catalogs.load(T).losses if loss.start.incarnation == 1)
    assert loss.uncounted
    assert (loss.end.ledger, loss.end.entry) == (first, -1)
    written = [e for e in sim.cluster.entries(T) if e.created == sim.cluster.admin.topic_info(T).created]
    assert (loss.start.ledger, loss.start.entry) <= (written[0].ledger, written[0].entry)


def test_a_lost_answer_to_the_claim_does_not_lose_the_record_of_what_was_trimmed() -> None:
    sim = with_deleted_topic()
    sim.cluster.create(T)
    sim.produce(T, 70)
    sim.until_believed()
    assert any(loss.start.incarnation == 1 for loss in sim.context.catalogs.load(T).losses)
    sim.kill()
    settled(sim)
    assert sum(loss.start.incarnation == 1 for loss in sim.context.catalogs.load(T).losses) == 1
