"""Brokers in other time zones: a date's text is another one, the topic is the same."""

from __future__ import annotations

import pytest

from offloader.model import TopicName
from tests.world.world import World, live

T = TopicName.parse("public/default/t")


def the_same(world: World) -> None:
    world.produce(T, 10)
    world.rest()
    assert world.catalog(T).claim.incarnation == 0
    world.check()


@pytest.mark.parametrize("running", [True, False])
def test_a_broker_that_is_started_again_in_another_time_zone_has_the_same_topic(running: bool) -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        world.produce(T, 30)
        world.sleep(5)
        if not running:
            world.kill()
        (broker,) = world.brokers.all
        world.brokers.stop(broker)
        world.sleep(3)
        world.brokers.start(broker, zone=345)
        if not running:
            world.start()
        world.sleep(60)
        the_same(world)

    live(scenario, zones=(0,))


def test_brokers_in_several_time_zones_have_the_same_topic() -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        for _ in range(10):
            world.produce(T, 5)
            world.brokers.unload(T)
            world.sleep(10)
        the_same(world)

    live(scenario, zones=(0, 60, -330))
