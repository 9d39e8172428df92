"""Several shards in one world: their processes die, stand still and wake; nothing is missing, nothing is there twice,
and no topic is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offloader.model import TopicName
from tests.examples import few
from tests.world.application import Setup
from tests.world.shards import ShardWorld, StandIn
from tests.world.world import live_in

TOPICS = [TopicName.parse(f"public/default/t{number}") for number in range(8)]
AFTER = 30.0  # seconds; a silent shard is tried after that


def live(scenario: Callable[[ShardWorld], None], seed: int = 1, **settings: object) -> None:
    world = ShardWorld(seed, setup=Setup(shards=3, roll="20s", executors=1), **settings)
    live_in(world, scenario)


def begin(world: ShardWorld, count: int = 3) -> None:
    world.create(*TOPICS)
    for index in range(count):
        world.start_shard(index, count)
    world.until(lambda: world.owners() == world.dealt(count))


def produce(world: ShardWorld, count: int = 10) -> None:
    for topic in TOPICS:
        world.produce(topic, count)


@pytest.mark.parametrize("seed", range(3))
def test_each_topic_is_with_the_shard_that_it_is_dealt_to(seed: int) -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world)
        world.rest_all()
        assert world.owners() == world.dealt(3)
        world.check()

    live(scenario, seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_shard_whose_process_dies_is_run_by_another_and_its_uploads_go_on(seed: int) -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world, 40)
        world.sleep(world.rng.uniform(0, 25))
        dead = world.process_of(1)
        assert dead is not None
        open_before = {s.topic: s.open.uuid for s in world.journals()["app~1"] if s.open is not None and s.open.parts}
        world.kill(dead)
        world.until(lambda: any(s.setup.shard == 1 for s in world.living()), seconds=3 * AFTER)
        produce(world)
        world.rest_all()
        assert world.owners() == world.dealt(3)
        for topic, uuid in open_before.items():
            assert uuid in {segment.uuid for segment in world.catalog(topic).segments}
        world.check()

    live(scenario, seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_process_that_comes_back_has_its_shard_again(seed: int) -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world)
        dead = world.process_of(1)
        assert dead is not None
        world.kill(dead)
        world.until(lambda: any(s.setup.shard == 1 for s in world.living()), seconds=3 * AFTER)
        world.sleep(world.rng.uniform(0, 30))
        back = world.start_shard(1)
        produce(world)
        world.rest_all()
        assert [s for s in world.living() if s.setup.shard == 1] == [back]
        world.check()

    live(scenario, seed)


@pytest.mark.parametrize("seconds", few([20, 200, 70], 2))
@pytest.mark.parametrize("after", few([0.1, 21.0, 0.0, 2.0], 2))
def test_a_process_that_stands_still_and_wakes_loses_nothing_and_ends(after: float, seconds: float) -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world, 40)
        world.sleep(after)
        still = world.process_of(1)
        assert still is not None
        world.pause(still, seconds)
        world.sleep(5)
        produce(world)
        world.sleep(seconds + 30)
        if seconds > 2 * AFTER:
            assert still.code == 3
        world.supervise_shards()
        produce(world)
        world.rest_all()
        world.check()

    live(scenario)


FURTHER_CHANGES = [pytest.param(*change, marks=pytest.mark.large) for change in ((3, 2), (1, 3))]


@pytest.mark.parametrize(("before", "count"), [(2, 3), (3, 1), *FURTHER_CHANGES])
@pytest.mark.parametrize("seed", range(2))
def test_the_number_of_shards_changes_while_they_run(before: int, count: int, seed: int) -> None:
    """Kubernetes restarts one after the other, the last one first."""

    def scenario(world: ShardWorld) -> None:
        begin(world, before)
        produce(world)
        for index in range(max(before, count) - 1, -1, -1):
            old = world.process_of(index)
            if old is not None:
                world.stop(old)
            if index < count:
                world.start_shard(index, count)
            world.sleep(world.rng.uniform(5, 60))
            produce(world, 3)
        world.until(lambda: world.owners() == world.dealt(count), seconds=1_200)
        produce(world)
        world.rest_all()
        world.until(lambda: not any(s.setup.shard >= count for s in world.living()), seconds=1_200)
        assert all(not states for name, states in world.journals().items() if name not in world.dealt(count).values())
        world.check()

    live(scenario, seed)


def test_two_processes_that_take_over_at_once_harm_nobody() -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world, 40)
        first, second = world.process_of(0), world.process_of(2)
        dead = world.process_of(1)
        assert first is not None
        assert second is not None
        assert dead is not None
        world.kill(dead)
        first.others.append(StandIn(first, 1))
        second.others.append(StandIn(second, 1))
        produce(world)
        world.rest_all()
        world.check()

    live(scenario)


def test_nobody_is_there_but_one_and_all_goes_on() -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world)
        for index in (1, 2):
            dead = world.process_of(index)
            assert dead is not None
            world.kill(dead)
        produce(world)
        world.rest_all()
        assert {s.setup.shard for s in world.living()} == {0, 1, 2}
        world.check()

    live(scenario)


def test_after_an_outage_of_the_store_every_shard_is_where_it_was() -> None:
    def scenario(world: ShardWorld) -> None:
        begin(world)
        produce(world)
        before = world.living()
        for seconds in (60, 130, 400):
            world.weather(down=True)
            world.sleep(seconds)
            world.weather()
            world.sleep(200)
            assert world.living() == before
        world.rest_all()
        world.check()

    live_in(ShardWorld(1, setup=Setup(shards=3, roll="20s", executors=1, take_over_after="2m")), scenario)
