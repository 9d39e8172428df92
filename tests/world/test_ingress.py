"""What stands before the brokers' admin ports lies, hangs, or leads elsewhere: nothing is deleted, lost or moved
because of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from offloader.model import TopicName
from tests.examples import few
from tests.fakes.cluster import MemoryCluster
from tests.world.brokers import Broker, Brokers
from tests.world.ingress import LIES, Answer, default_backend
from tests.world.world import World, live

T, U = TopicName.parse("public/default/t"), TopicName.parse("public/default/u")


class Trouble(NamedTuple):
    """How it begins, and what happens so many times, each so many seconds after the other, while it lasts."""

    begins: Callable[[World], None]
    times: int
    every: float
    meanwhile: Callable[[World], None]


def answers(world: World, lie: Answer, share: float = 1.0) -> None:
    world.ingress.lies_to = lambda path: world.rng.random() < share
    world.ingress.lie = lie


def does_not_find_the_topic(world: World) -> None:
    world.ingress.lies_to = lambda path: T.rest_path in path
    world.ingress.lie = default_backend


def hangs(world: World) -> None:
    world.ingress.hangs = True
    writes_and_unloads(world)


def leads_to_another_cluster_which_is_empty(world: World) -> None:
    other = MemoryCluster(seed=99, name="another")
    other.namespace("public/default")
    world.ingress.elsewhere = Brokers(world.scheduler, other, [Broker(7)])


def writes(world: World) -> None:
    world.produce(T, 1)


def writes_and_unloads(world: World) -> None:
    world.brokers.unload(T)
    world.produce(T, 5)


not_found = partial(answers, lie=default_backend)
TROUBLES = {
    "404 for 25 s": Trouble(not_found, 10, 2.5, writes),
    "404 for 10 minutes": Trouble(not_found, 10, 60, writes),
    "404 for the topic alone, which its namespace lists": Trouble(does_not_find_the_topic, 10, 12, writes),
    "hangs": Trouble(hangs, 1, 300, lambda world: None),
    "leads to another cluster which is empty": Trouble(leads_to_another_cluster_which_is_empty, 10, 12, writes),
} | {
    f"{name}, to {share:.0%} of all": Trouble(partial(answers, lie=lie, share=share), 4, 30, writes_and_unloads)
    for name, lie in LIES.items()
    for share in (1.0, 0.5)
}


@pytest.mark.parametrize("trouble", few(TROUBLES.values(), 8), ids=TROUBLES)
def test_whatever_an_ingress_does_the_application_goes_on_and_nothing_is_deleted_or_lost(trouble: Trouble) -> None:
    def scenario(world: World) -> None:
        world.begin(T, U)
        world.produce(T, 30)
        world.produce(U, 3)
        world.sleep(5)
        trouble.begins(world)
        for _ in range(trouble.times):
            world.sleep(trouble.every)
            trouble.meanwhile(world)
        world.heal()
        world.produce(T, 5)
        world.produce(U, 5)
        world.rest()
        assert world.app.process.name == "app-1", "it was never started again"
        for topic in (T, U):
            assert world.catalog(topic).claim.incarnation == 0
        world.check()

    live(scenario)
