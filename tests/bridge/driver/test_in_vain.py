"""Rounds that brokers, or a lost catalog, keep from their end: how long they are waited for, and what stays."""

from __future__ import annotations

import pytest

from offloader.bridge.core.rounds import BridgePhase, BridgeVerdict
from offloader.bridge.core.schedule import BridgeWork
from offloader.bridge.driver.progress import progress_of
from offloader.bridge.driver.status import hopeless
from offloader.errors import RetryableError
from tests.bridge.driver.simulation import TOPIC, KilledError, MemorySwaps
from tests.bridge.driver.test_rounds import started


def test_an_offload_that_brokers_begin_again_and_again_counts_as_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try of theirs fails after some minutes, and has a uuid of its own: none is ten minutes old, ever."""
    sim = started()
    first = sim.closed()[0]
    monkeypatch.setattr(
        MemorySwaps,
        "begun",
        lambda *_: {first: f"00000000-0000-4000-8000-{sim.clock.now // 300_000:012d}"},
    )
    sim.rounds(240, step_ms=60_000)  # four hours
    state = sim.state()
    assert state is not None, progress_of(sim.registry.topics[TOPIC]).error
    assert state.blocked is not None
    assert state.blocked.verdict is BridgeVerdict.OFFLOADING
    sim.close()


def test_a_round_of_a_former_incarnation_does_not_go_while_the_record_names_it() -> None:
    """As `GONE` does: the incarnation is what the catalog's claim says, and a catalog can be lost, and claimed anew."""
    sim = started()
    sim.kills_at.at = sim.kills_at.calls + 7
    with pytest.raises(KilledError):
        sim.rounds(20, step_ms=30_000)
    sim.kills_at.at = -1
    sim.kill()
    state = sim.state()
    assert state is not None
    assert state.round is not None
    assert state.round.phase is BridgePhase.SWAPPING
    assert sim.records.contexts[TOPIC], "the record names the round's objects"
    steps = sim.steps
    with pytest.raises(RetryableError):
        steps.go_on(TOPIC, steps.load(TOPIC), state.incarnation + 1, BridgeWork.ANEW)
    sim.close()


def test_a_ledger_that_brokers_are_offloading_is_waited_for_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong: brokers are at it. Handing over, and a run until caught up, must not give up before."""
    sim = started()
    first = sim.closed()[0]
    monkeypatch.setattr(MemorySwaps, "begun", lambda *_: {first: "00000000-0000-4000-8000-000000000001"})
    sim.rounds(14, step_ms=10_000)  # not two and a half minutes
    assert hopeless(sim.registry.topics[TOPIC]) == ""
    sim.close()
