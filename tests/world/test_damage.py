"""Objects that are damaged, and stores that ask to be left alone: of one topic, that topic is in trouble; the
application goes on."""

from __future__ import annotations

import pytest

from offloader.metadata import layout
from offloader.model import TopicName
from tests.world.world import World, live

T, U = TopicName.parse("public/default/t"), TopicName.parse("public/default/u")


def test_a_damaged_request_disturbs_nobody() -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        requests = layout.requests_folder("app")
        for number, data in enumerate([b"[" * 100_000, b"", b"null", b"\xff\xfe", b'{"kind": 3}']):
            world.bucket.plain.put(f"{requests}{number:08}-0000-0000-0000-000000000000", data)
        world.produce(T, 30)
        world.rest()
        assert world.app.process.name == "app-1"
        world.check()

    live(scenario)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_a_catalog_that_is_served_damaged_for_a_while_holds_up_its_topic_alone(share: float) -> None:
    def scenario(world: World) -> None:
        world.begin(T, U)
        world.produce(T, 30)
        world.produce(U, 30)
        world.sleep(5)
        world.weather(damaged=share, concerns=lambda key: key.startswith("public/default/t/_catalog"))
        world.supervise()
        world.kill()
        world.until(lambda: world.offloaded(U), seconds=120)
        world.sleep(60)
        world.heal()
        world.produce(T, 10)
        world.rest()
        world.check()

    live(scenario)


@pytest.mark.parametrize("weather", [{"throttled": 0.9}, {"failed": 0.5}, {"lost": 0.3}, {"down": True}])
def test_a_store_that_asks_to_be_left_alone_or_is_away_costs_time_and_nothing_else(weather: dict[str, object]) -> None:
    def scenario(world: World) -> None:
        world.begin(T, U)
        world.supervise()
        for _ in range(4):
            world.produce(T, 20)
            world.produce(U, 20)
            world.weather(**weather)
            world.sleep(90)
            world.heal()
            world.sleep(5)
        world.rest()
        world.check()

    live(scenario)
