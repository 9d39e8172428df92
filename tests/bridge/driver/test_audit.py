"""What brokers say of bridged ledgers is heard all the time: of a topic that nobody writes to, too, and while a round
is stuck."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from offloader.bridge.core.rounds import BridgeHead, BridgePhase, BridgeVerdict
from offloader.bridge.core.schedule import BridgeWork, PassOffloaded
from offloader.bridge.core.swap_steps import SwapOutcome
from offloader.bridge.driver.steps import BridgeSteps
from offloader.bridge.log import BridgeReader
from offloader.config.bridging import Bridge
from offloader.errors import RetryableError, StoreUnavailableError
from offloader.model import GapKind, Position, TopicName
from tests.bridge.driver.simulation import TOPIC, BridgedSimulation, KilledError, MemoryBuilds, MemorySwaps
from tests.bridge.driver.test_rounds import OTHER, alarms, ask, blocked_at, started

STALE_FOR_MS = 600_000  # at most


def known(sim: BridgedSimulation) -> set[int]:
    """What the topic's broker reads from objects."""
    return {ledger.id for ledger in sim.cluster.state.topic(TOPIC).ledgers if ledger.offloaded}


def damage(sim: BridgedSimulation, what: str, ledger: int) -> None:
    if what == "stale broker":
        for one in sim.cluster.state.topic(TOPIC).ledgers:
            one.offloaded = False
    else:
        sim.records.take(TOPIC, ledger)
        sim.records.unload(TOPIC)


@pytest.mark.parametrize("what", ["stale broker", "context taken out"])
def test_a_topic_that_nobody_writes_to_is_repaired_within_ten_minutes(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    sim = started()
    sim.until_bridged()
    sim.rounds(40, step_ms=60_000)
    unloads, bridged = len(sim.records.unloads), set(sim.bridged())
    assert not alarms(caplog, "bridge-stale")
    damage(sim, what, min(bridged))
    since = sim.clock.now
    while known(sim) != bridged:
        sim.rounds(1, step_ms=10_000)
        assert sim.clock.now - since <= STALE_FOR_MS + 30_000
    assert len(alarms(caplog, "bridge-stale")) == 1
    sim.rounds(40, step_ms=60_000)
    assert len(sim.records.unloads) - unloads <= 2
    sim.check()
    sim.close()


@pytest.mark.parametrize("what", ["stale broker", "context taken out"])
def test_a_round_that_is_stuck_keeps_nobody_from_noticing(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """A repair that rewrites the record is a round of its own, and waits for the other one's end."""
    sim = started()
    sim.until_bridged()
    bridged = set(sim.bridged())
    sim.produce(TOPIC, 45)
    sim.records.stuck_behind = max(bridged)
    sim.rounds(20, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.round is not None
    damage(sim, what, min(bridged))
    sim.rounds(60, step_ms=30_000)
    assert alarms(caplog, "bridge-stale")
    assert what == "context taken out" or known(sim) >= bridged
    sim.records.stuck_behind = None
    sim.rounds(60, step_ms=30_000)
    assert known(sim) >= bridged
    sim.until_bridged()
    sim.check()
    sim.close()


def test_what_cannot_be_repaired_holds_up_no_round() -> None:
    sim = started()
    sim.until_bridged()
    first, uuid = next(iter(sim.records.contexts[TOPIC].items()))
    sim.bucket.delete([f"{uuid}-ledger-{first}"])
    sim.records.take(TOPIC, first)
    sim.records.unload(TOPIC)
    sim.produce(TOPIC, 45)
    sim.rounds(60, step_ms=60_000)
    closed = sim.closed()
    assert set(closed) - {first} <= known(sim) | {closed[-1]}
    sim.close()


def test_a_ledger_that_was_let_go_is_no_stale_broker_after_a_restart_either(caplog: pytest.LogCaptureFixture) -> None:
    sim = started()
    sim.cluster.add_hidden(TOPIC, GapKind.ABORTED)
    sim.produce(TOPIC, 30)
    assert ask(sim, blocked_at(sim, BridgeVerdict.GAPS)).ok
    sim.until_bridged()
    sim.kill()
    sim.rounds(30, step_ms=60_000)
    assert not alarms(caplog, "bridge-stale")
    sim.close()


def test_many_idle_topics_are_listed_again_some_at_a_time() -> None:
    topics = [TopicName.parse(f"public/default/t{number}") for number in range(16)]
    sim = BridgedSimulation(seed=1)
    for topic in topics:
        sim.cluster.create(topic)
    sim.rounds(2)
    for topic in topics:
        sim.produce(topic, 21, 10)
    sim.until_bridged(rounds=200)
    sim.rounds(20, step_ms=60_000)
    listed, admin = list[tuple[int, TopicName]](), sim.cluster.admin
    topic_info = admin.topic_info
    admin.topic_info = lambda topic: (listed.append((sim.clock.now, topic)), topic_info(topic))[1]  # type: ignore[func-returns-value]
    began = sim.clock.now
    sim.rounds(30, step_ms=60_000)
    for topic in topics:
        times = [began, *(at for at, of in listed if of == topic), sim.clock.now]
        assert max(after - before for before, after in pairwise(times)) <= 660_000
    minutes = [(at - began) // 60_000 for at, _ in listed]
    assert max(minutes.count(minute) for minute in minutes) <= len(topics) // 4
    assert len(listed) <= len(topics) * 30 // 5 + len(topics)
    sim.close()


def test_a_newcomers_list_that_is_older_than_the_log_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was overtaken ends its withdrawal between the newcomer's look at the topic and at its log."""
    old, heads = started(), list[BridgeHead]()
    old.records.delivers = False

    def stop(_: BridgeSteps, __: TopicName, head: BridgeHead, *___: object) -> BridgeHead:
        heads.append(head)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(BridgeSteps, "_withdraw", stop)
        with pytest.raises(KilledError):
            old.rounds(60, step_ms=10_000)
    steps, withdrawn = old.steps, set(old.records.contexts[TOPIC])
    assert withdrawn
    paused = replace(steps, still_ours=lambda: None)  # it was asked before the newcomer came
    old.pins.close()
    old.records.delivers = True
    new = BridgedSimulation(seed=2, store=old.store, former=old)
    load, done = BridgeSteps.load, list[int]()

    def ended_before(self: BridgeSteps, topic: TopicName) -> BridgeHead:
        if not done:
            done.append(1)
            assert new.registry.topics[TOPIC].info.offloaded == withdrawn
            paused.go_on(TOPIC, heads[0], 0, BridgeWork.WITHDRAW)
        return load(self, topic)

    monkeypatch.setattr(BridgeSteps, "load", ended_before)
    new.until_bridged()
    assert withdrawn <= set(new.bridged()), "none was passed over"
    new.check()
    new.close()


def test_what_the_record_does_not_have_is_not_passed_over() -> None:
    """However new the list is, and whatever the broker says."""
    sim = started()
    steps = sim.steps
    first, second = sim.closed()[:2]
    passed = PassOffloaded(Position(0, second, 19), (first, second))
    for contexts in ({}, {first: "00000000-0000-4000-8000-000000000001"}):
        sim.records.contexts[TOPIC] = dict(contexts)
        sim.records.unload(TOPIC)
        with pytest.raises(RetryableError, match="by themselves"):
            steps.passed(TOPIC, steps.load(TOPIC), 0, passed)
    sim.close()


def test_what_a_round_of_ours_has_proven_is_not_brokers_own() -> None:
    sim = started()
    sim.until_bridged()
    steps, first = sim.steps, sim.bridged()[0]
    with pytest.raises(RetryableError, match="by themselves"):
        steps.passed(TOPIC, steps.load(TOPIC), 0, PassOffloaded(Position(0, first, 19), (first,)))
    sim.close()


def stuck_in(phase: BridgePhase, patch: pytest.MonkeyPatch) -> BridgedSimulation:
    """Its round comes no further."""

    def no_answer(*_: object) -> SwapOutcome:
        raise StoreUnavailableError("no answer")

    sim = started(OTHER)  # a witness: this is our cluster
    match phase:
        case BridgePhase.BUILDING:
            sim.kills_at.at = sim.kills_at.calls + 3
            with pytest.raises(KilledError):
                sim.rounds(20, step_ms=30_000)
            sim.kill()
            patch.setattr(MemoryBuilds, "build", no_answer)
        case BridgePhase.SWAPPING:
            sim.records.refuses = "not yet"
        case BridgePhase.WITHDRAWING:
            sim.records.delivers = False
            patch.setattr(MemorySwaps, "withdraw", no_answer)
    sim.rounds(20, step_ms=30_000)
    state = sim.state()
    assert state is not None
    assert state.round is not None
    assert state.round.phase is phase
    assert list(sim.bucket.list())
    assert BridgeReader(sim.store).of(TOPIC).under_way
    return sim


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("phase", list(BridgePhase))
def test_a_topic_that_is_deleted_for_good_is_let_go_of_once_its_round_is_over(
    phase: BridgePhase, restarted: bool, monkeypatch: pytest.MonkeyPatch
):
    sim = stuck_in(phase, monkeypatch)
    sim.cluster.delete(TOPIC)
    sim.records.contexts.pop(TOPIC, None)
    sim.records.behind.discard(TOPIC)
    if restarted:
        sim.kill()
    sim.until_believed()
    sim.rounds(10, step_ms=60_000)
    state = sim.state()
    assert state is not None
    assert (state.round, state.leaving) == (None, None)
    assert TOPIC not in sim.registry.topics
    assert not list(sim.bucket.list())
    assert not BridgeReader(sim.store).of(TOPIC).under_way
    sim.close()


def test_a_topic_that_is_deleted_is_not_let_go_of_while_its_record_names_objects(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    sim = stuck_in(BridgePhase.WITHDRAWING, monkeypatch)
    named, contexts = {key for key, _ in sim.bucket.list()}, dict(sim.records.contexts[TOPIC])
    assert contexts
    with monkeypatch.context() as patch:
        patch.setattr(MemorySwaps, "contexts", lambda _, __: contexts)
        sim.cluster.delete(TOPIC)
        sim.until_believed()
        sim.rounds(10, step_ms=60_000)
        assert TOPIC in sim.registry.topics
        assert {key for key, _ in sim.bucket.list()} == named
        assert any("still names" in line for line in alarms(caplog, "bridge-waits"))
    sim.rounds(30, step_ms=60_000)
    assert TOPIC not in sim.registry.topics
    assert not list(sim.bucket.list())
    sim.close()


def test_a_step_counts_for_as_many_unloads_as_it_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that brokers do not deliver after makes several."""
    unloads, bridge = list[int](), MemorySwaps.bridge

    def several(swaps: MemorySwaps, topic: TopicName, *arguments: object) -> SwapOutcome:
        outcome = bridge(swaps, topic, *arguments)
        unloads.append(swaps.records.sim.clock.now)
        return replace(outcome, unloads=5)

    monkeypatch.setattr(MemorySwaps, "bridge", several)
    settings = Bridge.model_validate({"minInterval": "0s", "maxInterval": "0s", "unloadsAMinute": 8})
    topics = [TopicName.parse(f"public/default/t{number}") for number in range(4)]
    sim = BridgedSimulation(seed=3, bridge=settings)
    for topic in topics:
        sim.cluster.create(topic)
    sim.rounds(2)
    for topic in topics:
        sim.produce(topic, 25, 100)
    sim.until_bridged(rounds=200, step_ms=5_000)
    assert all(sum(at - 60_000 < other <= at for other in unloads) <= 4 for at in unloads), "5, and 3 that have begun"
    assert unloads[-1] - unloads[0] > (len(unloads) - 4) // 4 * 60_000
    sim.close()
