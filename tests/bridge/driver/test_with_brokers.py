"""The application and brokers together: whatever happens to either, stock readers get every entry that is listed, and
in the end every closed ledger is read from our objects."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from offloader.bridge.core.rounds import BridgeHead, BridgeState, BridgeVerdict
from offloader.bridge.log import BridgeLog
from offloader.bridge.swapping import Swapper
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from tests.bridge.driver.brokers import BrokerSimulation
from tests.bridge.driver.simulation import TOPIC, KilledError
from tests.bridge.swap.support import write_objects
from tests.examples import tries

SEEDS = tries("BRIDGE_SEEDS", 4, 12)
STEPS = 44  # calls of a round by which brokers, their metadata and bookies are reached
OTHER = TopicName.parse("public/default/other")


def started(seed: int = 1, **settings: object) -> BrokerSimulation:
    sim = BrokerSimulation(seed=seed, **settings)
    for topic in (TOPIC, OTHER):
        sim.cluster.create(topic)
    sim.rounds(2)
    sim.produce(TOPIC, 70, 300)
    return sim


def test_readers_get_everything_from_our_objects_once_bookkeepers_copies_are_gone() -> None:
    sim = started()
    sim.until_bridged()
    sim.brokers.namespace(TOPIC.namespace).policies["offload_policies"] = {
        "managedLedgerOffloadDeletionLagInMillis": 1_000
    }
    sim.clock.now += 60_000
    sim.trim()
    bridged = sim.bridged()
    assert len(bridged) == 4
    assert not any(sim.brokers.has_entries(ledger) for ledger in bridged)
    sim.check()
    assert not sim.left_over()
    sim.produce(TOPIC, 50, 300)
    sim.until_bridged()
    sim.check()
    sim.close()


@pytest.mark.parametrize("at", range(STEPS))
def test_a_process_that_dies_anywhere_leaves_readers_what_they_had_and_a_successor_goes_on(at: int) -> None:
    sim = started()
    sim.kills_at.at = at
    try:
        sim.rounds(12, step_ms=30_000)
    except KilledError:
        sim.kills_at.at = -1
        sim.kill()
    sim.kills_at.at = -1
    assert sim.readable_entries() == sim.true_entries() or sim.state() is not None
    sim.until_bridged()
    sim.check()
    assert not sim.left_over()
    sim.close()


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(SEEDS))
def test_in_any_order_of_events_nothing_that_is_listed_is_lost_for_readers(seed: int) -> None:
    rng, sim = random.Random(seed), started(seed)
    for _ in range(40):
        happens(rng.randrange(11), rng, sim)
        try:
            sim.rounds(2, step_ms=rng.choice([1_000, 30_000, 600_000]))
        except KilledError:
            sim.kills_at.at = -1
            sim.kill()
    sim.kills_at.at = -1
    sim.readable = True
    sim.kill()
    for one in sim.brokers.record(TOPIC).ledgerInfo:
        if one.HasField("offloadContext") and not one.offloadContext.complete:
            broker_offloads(sim, complete=True)  # it does what it has begun
    sim.until_bridged(rounds=200)
    sim.check()
    assert not {key for key in sim.left_over() if key[:36] not in sim.theirs}
    sim.close()


def happens(what: int, rng: random.Random, sim: BrokerSimulation) -> None:
    """Something of the world."""
    match what:
        case 0 | 1:
            sim.produce(TOPIC, rng.randrange(40), 300)
        case 2:
            sim.cluster.unload(TOPIC)
        case 3:
            sim.cluster.roll(TOPIC)
        case 4:
            sim.kills_at.at = sim.kills_at.calls + rng.randrange(20)
        case 5:
            sim.kill()
        case 6:
            sim.clock.now += rng.choice([-3_600_000, 3_600_000, 86_400_000])
        case 7:
            sim.trim()
        case 8:
            sim.readable = not sim.readable
            sim.was_off = True
            sim.kill()
        case 9:
            broker_offloads(sim, complete=rng.random() < 0.5)
        case _:
            broker_offloads(sim, complete=True)


def broker_offloads(sim: BrokerSimulation, *, complete: bool) -> None:
    """Brokers offload the first ledger that nobody has bridged by themselves, or begin to."""
    recorded = {one.ledgerId: one.offloadContext for one in sim.brokers.record(TOPIC).ledgerInfo}
    free = [ledger for ledger in sim.closed() if not recorded[ledger].complete]
    if free:
        uuid = sim.uuid()
        entries = [one.data for one in sim.cluster.entries(TOPIC) if one.ledger == free[0]]
        write_objects(sim.bucket, uuid, free[0], entries)
        if sim.brokers.offload(TOPIC, free[0], uuid, complete=complete):
            sim.theirs.add(uuid)


def test_what_brokers_never_end_blocks_and_holds_nothing_before_it(caplog: pytest.LogCaptureFixture) -> None:
    """They were killed while they offloaded, and automatic offload was switched off. A command has them do it."""
    sim = started()
    sim.produce(TOPIC, 100, 300)
    stuck = sim.closed()[4]
    sim.brokers.offload(TOPIC, stuck, sim.uuid(), complete=False)
    sim.rounds(30, step_ms=60_000)
    state = sim.state()
    assert state is not None
    assert state.blocked is not None
    assert (state.blocked.ledger, state.blocked.verdict) == (stuck, BridgeVerdict.OFFLOADING)
    assert "pulsar-admin topics offload" in state.blocked.why
    assert sim.bridged() == [ledger for ledger in sim.closed() if ledger < stuck]
    sim.check()
    assert not sim.left_over()
    broker_offloads(sim, complete=True)
    sim.produce(TOPIC, 1)
    sim.until_bridged()
    assert stuck not in sim.bridged()
    assert max(sim.bridged()) > stuck
    sim.check()
    sim.close()


@pytest.mark.parametrize("at", range(4))
def test_brokers_begin_to_offload_a_ledger_while_its_round_is_built(at: int) -> None:
    """What is before it is bridged, the others of the round come later; a process dies meanwhile."""
    sim = started()
    with pytest.MonkeyPatch.context() as patch:
        begin, stuck, uuid = Swapper.begun, sim.closed()[1], sim.uuid()

        def begun(swapper: Swapper, topic: TopicName) -> Mapping[int, str]:
            found = begin(swapper, topic)
            if topic == TOPIC and not found:
                sim.brokers.offload(TOPIC, stuck, uuid, complete=False)
            return found

        patch.setattr(Swapper, "begun", begun)
        sim.kills_at.at = sim.kills_at.calls + 20 * at + 5
        for _ in range(30):
            try:
                sim.rounds(1, step_ms=60_000)
            except KilledError:
                sim.kill()
    sim.kills_at.at = -1
    assert sim.bridged() == sim.closed()[:1]
    sim.check()
    assert not sim.left_over()
    broker_offloads(sim, complete=True)
    sim.produce(TOPIC, 1)
    sim.until_bridged()
    assert set(sim.closed()) == {stuck, *sim.bridged()}
    sim.check()
    sim.close()


def test_an_object_that_somebody_deletes_is_built_again_although_bookkeepers_copies_are_gone() -> None:
    """A process died between the proof and its record, and was away for longer than brokers keep their copies."""
    sim = started()
    log, kept = BridgeLog.append, list[int]()

    def dies(self: BridgeLog, head: BridgeHead, state: BridgeState) -> BridgeHead:
        if state.finished is not None and not kept:
            kept.extend(each.ledger for each in state.finished.ledgers)
            raise KilledError
        return log(self, head, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BridgeLog, "append", dies)
        with pytest.raises(KilledError):
            sim.rounds(20, step_ms=30_000)
        sim.kill()
        sim.brokers.namespace(TOPIC.namespace).policies["offload_policies"] = {
            "managedLedgerOffloadDeletionLagInMillis": 0
        }
        sim.clock.now += 60_000
        sim.trim()
        assert not any(sim.brokers.has_entries(ledger) for ledger in kept)
        state = sim.state()
        assert state is not None
        assert state.round is not None
        gone = state.round.ledgers[1]
        sim.bucket.delete([data_key(gone.uuid, gone.ledger), index_key(gone.uuid, gone.ledger)])
        sim.until_bridged()
    assert sim.bridged()[: len(kept)] == kept
    sim.check()
    sim.close()


def test_many_topics_are_bridged_beside_each_other() -> None:
    sim = BrokerSimulation(seed=5)
    topics = [TopicName.parse(f"public/default/t{number}") for number in range(30)]
    for topic in topics:
        sim.cluster.create(topic)
    sim.rounds(2)
    for topic in topics:
        sim.produce(topic, 25, 100)
    sim.until_bridged(rounds=300, step_ms=10_000)
    for topic in topics:
        assert sim.readable_entries(topic) == sim.true_entries(topic)
    assert not sim.left_over(*topics)
    sim.close()
