"""Brokers that answer late: what is known of a topic is decided on before more is asked, and what nobody waits for any
more is not late."""

from __future__ import annotations

import pytest

from offloader.model import TopicName
from tests.examples import few
from tests.world.application import Setup
from tests.world.world import World, live

TOPICS = [TopicName.parse(f"public/default/t{n}") for n in range(3)]
ROLL = 20
POLL = 5  # seconds, as spark.trigger
ONES_OWN = 5  # what is left for reading, uploading and sealing


def longest_wait(world: World, seconds: int) -> float:
    longest = 0.0
    for _ in range(5 * seconds):
        world.sleep(0.2)
        longest = max(longest, *(world.waiting(topic) for topic in TOPICS))
    return longest


@pytest.mark.parametrize("latency", few([50, 150], 1))
def test_a_topic_whose_end_moves_between_any_two_looks_is_offloaded_in_time(latency: float) -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        world.brokers.latency_ms = (latency, 1.5 * latency)
        for topic in TOPICS:
            world.keep_producing(topic, every=0.1, seconds=120)
        longest = longest_wait(world, 120)
        world.rest()
        world.check()
        assert longest <= ROLL + POLL + ONES_OWN, f"somebody waited {longest:.0f} s"

    live(scenario, setup=Setup(roll=f"{ROLL}s", poll_ms=1_000 * POLL))


@pytest.mark.parametrize("latency", [5, 300])
@pytest.mark.parametrize("phase", range(POLL))
def test_the_first_entries_for_long_are_offloaded_as_soon_as_their_segment_is_old_enough(
    latency: float, phase: int
) -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        world.brokers.latency_ms = (latency, 1.5 * latency)
        world.sleep(120 + phase)
        for topic in TOPICS:
            world.produce(topic, 2)
        longest = longest_wait(world, 60)
        world.rest()
        world.check()
        assert longest <= ROLL + POLL + ONES_OWN, f"somebody waited {longest:.0f} s"

    live(scenario, setup=Setup(roll=f"{ROLL}s", poll_ms=1_000 * POLL))
