"""The data of a shadow topic (PIP-180) is its source's: it is offloaded once, with the source."""

from __future__ import annotations

import logging

import pytest

from offloader.model import TopicName
from tests.offload.simulation import Simulation

SOURCE = TopicName.parse("public/default/source")
PARTITIONED = TopicName.parse("public/default/partitioned")


@pytest.mark.parametrize("partition", [False, True])
def test_a_shadow_topic_is_skipped_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture, *, partition: bool
) -> None:
    caplog.set_level(logging.INFO)
    sim = Simulation(1)
    shadow = TopicName.parse(f"public/default/{'partitioned-partition-0' if partition else 'shadow'}")
    sim.cluster.admin.shadows[PARTITIONED if partition else shadow] = str(SOURCE)
    sim.cluster.create(SOURCE)
    sim.cluster.create(shadow)
    sim.rounds(4)
    assert set(sim.registry.topics) == {SOURCE}
    assert not sim.registry.refused
    assert sim.registry.settled
    assert sim.cluster.mark_delete(shadow) is None
    sim.rounds(60)
    sim.rounds(2, step_ms=600_000)
    lines = [line for line in caplog.messages if line.startswith(f"skipped topic={shadow}:")]
    assert len(lines) == 1
    assert str(SOURCE) in lines[0]
    calls = sim.cluster.faults.calls
    assert calls["admin.shadow_source", PARTITIONED] + calls["admin.topic_info", shadow] <= 3
    sim.close()


def test_a_topic_that_is_created_again_as_no_shadow_is_offloaded() -> None:
    sim = Simulation(1)
    shadow = TopicName.parse("public/default/shadow")
    sim.cluster.admin.shadows[shadow] = str(SOURCE)
    sim.cluster.create(shadow)
    sim.rounds(4)
    sim.cluster.delete(shadow)
    sim.rounds(4)
    del sim.cluster.admin.shadows[shadow]
    sim.cluster.create(shadow)
    sim.rounds(4)
    assert set(sim.registry.topics) == {shadow}
    sim.close()
