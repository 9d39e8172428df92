"""Processes that stop, stall and wake, are killed, or work on without anybody listening."""

from __future__ import annotations

import pytest

from offloader.model import TopicName
from tests.examples import few
from tests.world.application import Setup
from tests.world.test_random_worlds import WORLDS
from tests.world.world import World, live

T, U = TopicName.parse("public/default/t"), TopicName.parse("public/default/u")


@pytest.mark.parametrize("seconds", [5, 90, 200])  # brokers notice after 60; what is refused is so for good after 120
@pytest.mark.parametrize("after", few([0.0, 0.05, 0.3, 2.0, 20.0], 3))
@pytest.mark.parametrize("seed", range(-(-WORLDS // 500)))
def test_a_process_that_stands_still_and_wakes_harms_nobody_who_has_taken_over(
    after: float, seconds: float, seed: int
) -> None:
    def scenario(world: World) -> None:
        first = world.begin(T, U)
        world.produce(T, 40)
        world.produce(U, 10)
        world.sleep(after)
        world.pause(first, seconds)
        world.sleep(1)
        world.start()
        world.produce(T, 40)
        world.sleep(seconds + 10)
        assert first.code == 3
        world.produce(U, 10)
        world.rest()
        world.check()

    live(scenario, seed)


@pytest.mark.parametrize("zombie", [0, 30])
def test_an_executor_that_is_lost_in_mid_slice_costs_time_and_nothing_else(zombie: float) -> None:
    def scenario(world: World) -> None:
        world.begin(T, U)
        for _ in range(6):
            world.produce(T, 40)
            world.produce(U, 10)
            world.sleep(world.rng.uniform(0, 2))
            spark = world.app.spark
            assert spark is not None
            busy = [e for e in spark.executors if e.running] or spark.executors
            spark.lose(busy[0], zombie_seconds=zombie)
            world.sleep(10)
        world.rest()
        world.check()

    live(scenario)


def test_workers_hold_no_more_than_their_threads_allow() -> None:
    """A reader and a part for each thread of a task, and as many tasks as there are slots."""
    setup = Setup(roll="10s", executors=2, slots=2)
    topics = [TopicName.parse(f"public/default/t{n:02}") for n in range(40)]

    def scenario(world: World) -> None:
        world.begin(*topics)
        for _ in range(3):
            for topic in topics:
                world.produce(topic, 5)
            world.sleep(15)
        world.rest()
        threads = max(lane.threads for lane in setup.lanes.values())
        most = max(window.most_readers for window in world.app.windows)
        assert 1 < most <= setup.slots * threads
        world.check()

    live(scenario, setup=setup)
