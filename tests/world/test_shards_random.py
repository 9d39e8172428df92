"""Whatever happens to shards, chosen by a seed: processes die, stand still and come back, their number changes, the
store and the brokers have their moods. Every entry is offloaded exactly once, and in the end every topic is where it is
dealt to.

`OFFLOADER_WORLDS` says how many worlds live; `OFFLOADER_WORLD=seed` lets one of them live again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.world import chaos
from tests.world.chaos import chaotic
from tests.world.shards import ShardWorld
from tests.world.test_random_worlds import FIRST, GROUPS, ONE, WORLDS
from tests.world.test_shards import TOPICS
from tests.world.world import live_in

Happening = Callable[[ShardWorld], None]
pytestmark = pytest.mark.explores

SHARE = 4  # one of so many worlds has shards


def some_process(world: ShardWorld) -> int:
    return world.rng.randrange(world.setup.shards)


def kill(world: ShardWorld) -> None:
    start = world.process_of(some_process(world))
    if start is not None and start.actor.started:
        world.kill(start)


def stop(world: ShardWorld) -> None:
    start = world.process_of(some_process(world))
    if start is not None:
        start.stop()


def stall(world: ShardWorld) -> None:
    start = world.process_of(some_process(world))
    if start is not None and not start.process.paused:
        world.pause(start, world.rng.choice([2, 20, 50, 90, 300]))


def start_twice(world: ShardWorld) -> None:
    world.start_shard(some_process(world))


def resize(world: ShardWorld) -> None:
    """Each process is started again with another number of shards, one after the other; those beyond it end."""
    before, count = world.setup.shards, world.rng.choice([1, 2, 3, 4])
    world.scheduler.log(f"{count} shards in place of {before}")
    world.setup = replace(world.setup, shards=count)
    for index in range(max(before, count) - 1, -1, -1):
        start = world.process_of(index)
        if start is not None:
            start.stop()
        world.sleep(world.rng.choice([0.1, 5, 40]))


HAPPENINGS: dict[Happening, float] = {
    kill: 2,
    stop: 0.5,
    stall: 2,
    start_twice: 0.5,
    resize: 1.5,
    chaos.nothing: 3,
    chaos.roll: 1,
    chaos.unload: 1,
    chaos.restart_broker: 1,
    chaos.hang_broker: 0.5,
    chaos.ingress_lies: 1,
    chaos.slow_topic: 0.5,
    chaos.store_weather: 2,
    chaos.hidden: 1,
}


def lives(world: ShardWorld) -> None:
    rng = world.rng
    topics = TOPICS[: rng.randint(2, 6)]
    world.create(*topics)
    world.supervise_shards()
    for _ in range(rng.randint(3, 10)):
        for topic in topics:
            if rng.random() < 0.6:
                world.produce(topic, rng.randint(1, 12), largest=rng.choice([200, 3_000, 20_000]))
        happening = rng.choices(list(HAPPENINGS), list(HAPPENINGS.values()))[0]
        world.scheduler.log(f"happens: {happening.__name__}")
        happening(world)
        world.sleep(rng.choice([0.1, 3, 10, 40]))
    world.heal()
    for topic in topics:
        if any(e.hidden is None and not e.delivered for e in world.cluster.entries(topic)):
            world.cluster.resolve(topic, commit=True)
        world.produce(topic, 1)
    world.until(lambda: world.owners() == world.dealt(world.setup.shards), seconds=3_600, step=5)
    world.rest_all(3_600)
    world.check()


def lived(seed: int) -> ShardWorld:
    settings = chaotic(seed)
    setup = replace(settings.pop("setup"), shards=1 + seed % 4, executors=1)  # type: ignore[type-var]
    again = f"OFFLOADER_WORLD={seed} .venv/bin/python -m pytest tests/world/test_shards_random.py"
    world = ShardWorld(seed, setup=setup, reproduce=again, **settings)
    live_in(world, lives)
    return world


@pytest.mark.parametrize("group", range(GROUPS // 4) if ONE is None else [0])
def test_whatever_happens_to_shards_every_entry_is_offloaded_once_and_each_topic_comes_to_its_shard(group: int) -> None:
    seeds = range(FIRST + group, FIRST + WORLDS // SHARE, GROUPS // 4) if ONE is None else [int(ONE)]
    for seed in seeds:
        lived(seed)
