"""Topics with much history in a hostile world: kills, faults, slow stores and brokers at every step; robbed ones lose
what is recorded as lost, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from offloader.model import TopicName
from tests.examples import FIRST_SEED, tries
from tests.world import chaos
from tests.world.application import Setup
from tests.world.world import World, live

T = TopicName.parse("public/default/t")
WORLDS = tries("OFFLOADER_WORLDS", 32, 160) // 16

pytestmark = pytest.mark.explores


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
    if not world.kept:
        world.meanwhile("operator", partial(chaos.operate, world))
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
        world.check_idle()

    seed = 2 * (FIRST_SEED + number)
    live(scenario, seed, **settings(seed))


@pytest.mark.parametrize("number", range(max(WORLDS // 2, 1)))
def test_history_of_which_something_is_taken_away_is_complete_but_for_what_is_recorded(number: int) -> None:
    seed = 2 * (FIRST_SEED + number) + 1
    live(is_robbed, seed, **settings(seed))


def test_a_loss_that_ends_before_uploaded_data_is_recorded_once() -> None:
    """A segment was assigned ahead before the loss, and behind the loss follows one that is uploaded."""
    live(is_robbed, 989904573, **settings(989904573))


def test_a_segment_follows_the_ledger_that_it_was_assigned_behind_and_no_other() -> None:
    """All ledgers end with an entry of the same number, and one between two uploaded segments is trimmed."""
    live(is_robbed, 475340819, **settings(475340819))


def is_robbed(world: World) -> None:
    world.kept = False
    has_history(world, chaos.HAPPENINGS | chaos.ROBBERIES | {chaos.lose_ledger: 3, chaos.move_pin: 3})
    world.check(at_rest=False)
    world.check_idle()


def test_in_a_calm_world_tasks_read_one_topics_history_at_the_same_time() -> None:
    def scenario(world: World) -> None:
        has_history(world, {chaos.nothing: 1})
        world.check()

    world = live(scenario, 4, setup=Setup(max_size=20_000, executors=2, slots=2), zones=(0, 0))
    assert any(event.count(str(T)) > 1 for event in world.scheduler.events if " plan " in event)
