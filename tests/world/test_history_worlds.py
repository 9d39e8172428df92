"""Topics with much history in a hostile world: kills, faults, slow stores and brokers at every step; robbed ones lose
what is recorded as lost, and nothing else."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest

from offloader.model import TopicName
from tests.world import chaos
from tests.world.application import Setup
from tests.world.world import World, live

T = TopicName.parse("public/default/t")
WORLDS = int(os.environ.get("OFFLOADER_WORLDS", "160")) // 16
FIRST = 0 if os.environ.get("CI") == "true" else random.SystemRandom().randrange(10**9)


def has_history(world: World, happenings: dict[Callable[[World], None], float]) -> None:
    """Nothing runs while much is written, to one topic; then everything happens while it is read."""
    rng = world.rng
    world.begin(T, chaos.WITNESS)
    world.stop()
    for topic, count in ((T, rng.randint(150, 400)), (chaos.WITNESS, 5)):
        world.produce(topic, count, largest=rng.choice([500, 3_000, 9_000]))
    world.start()
    world.supervise()
    for _ in range(rng.randint(4, 12)):
        world.sleep(rng.choice([0.1, 1, 4, 12]))
        happening = rng.choices(list(happenings), list(happenings.values()))[0]
        world.scheduler.log(f"happens: {happening.__name__}")
        happening(world)
    world.heal()
    for topic in [t for t in world.topics if world.cluster.exists(t)]:
        if any(e.hidden is None and not e.delivered for e in world.cluster.entries(topic)):
            world.cluster.resolve(topic, commit=rng.random() < 0.5)
        world.produce(topic, 1)
    world.rest(3_600)


def settings(seed: int) -> dict[str, object]:
    rng = random.Random(seed)
    setup = Setup(
        max_size=rng.choice([8_000, 20_000, 60_000]),
        part=rng.choice([4_096, 8_192]),
        roll=rng.choice(["20s", "60s"]),
        executors=rng.choice([1, 2, 3]),
        slots=rng.choice([1, 2]),
        fail_on_data_loss=seed % 2 == 0,
    )
    return {"setup": setup, "entries_per_ledger": rng.choice([3, 20, 100]), "zones": (0, 0)}


@pytest.mark.parametrize("number", range(WORLDS))
def test_history_is_offloaded_once_and_in_order_whatever_happens(number: int) -> None:
    def scenario(world: World) -> None:
        has_history(world, chaos.HAPPENINGS | {chaos.kill: 4, chaos.lose_executor: 4})
        world.check()

    seed = 2 * (FIRST + number)
    live(scenario, seed, **settings(seed))


@pytest.mark.parametrize("number", range(max(WORLDS // 2, 1)))
def test_history_of_which_something_is_taken_away_is_complete_but_for_what_is_recorded(number: int) -> None:
    def scenario(world: World) -> None:
        world.kept = False
        has_history(world, chaos.HAPPENINGS | chaos.ROBBERIES | {chaos.lose_ledger: 3, chaos.move_pin: 3})
        world.check(at_rest=False)

    seed = 2 * (FIRST + number) + 1
    live(scenario, seed, **settings(seed))


def test_in_a_calm_world_tasks_read_one_topics_history_at_the_same_time() -> None:
    def scenario(world: World) -> None:
        has_history(world, {chaos.nothing: 1})
        world.check()

    world = live(scenario, 4, setup=Setup(max_size=20_000, executors=2, slots=2), zones=(0, 0))
    assert any(event.count(str(T)) > 1 for event in world.scheduler.events if " plan " in event)
