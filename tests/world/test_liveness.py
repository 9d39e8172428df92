"""`/healthz`: whoever only waits for the store is alive, however long it is away; whoever hangs is not, and that shows
soon."""

from __future__ import annotations

import threading

import pytest

from offloader.metadata.journal import CALLS_OF_A_WAIT
from offloader.model import TopicName
from tests.world.application import Setup
from tests.world.stores import RETRY_DEADLINE
from tests.world.world import World, live

TOPICS = [TopicName.parse(f"public/default/t{n}") for n in range(3)]
LIVENESS = 60  # seconds, the default of metrics.livenessTimeout


def alive(world: World) -> bool:
    context = world.app.context
    assert context is not None
    return context.metrics.health.alive().good


def dead_after(world: World, most: float) -> float:
    """Seconds until `/healthz` fails."""
    began = world.scheduler.now
    world.until(lambda: not alive(world), seconds=most)
    return (world.scheduler.now - began) / 1e9


def hang() -> None:
    threading.Event().wait()


@pytest.mark.large
def test_a_store_that_is_away_for_ten_minutes_restarts_nobody_and_costs_nothing() -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        for topic in TOPICS:
            world.keep_producing(topic, every=1, seconds=900)
        world.sleep(60)
        world.weather(down=True)
        for second in range(600):
            world.sleep(1)
            assert alive(world), f"/healthz fails after {second} s of an outage"
        world.heal()
        world.sleep(300)
        assert alive(world)
        world.rest()
        world.check()
        assert len(world.starts) == 1
        assert world.app.code is None

    live(scenario, setup=Setup(roll="20s"))


def test_a_store_that_takes_writes_and_answers_none_of_them_restarts_nobody_and_costs_nothing() -> None:
    """They happen, though nobody knows it. The application says for what it waits, and goes on."""

    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        for topic in TOPICS:
            world.keep_producing(topic, every=1, seconds=600)
        world.sleep(60)
        world.weather(lost=1.0, latency_ms=(60_000.0, 60_000.0), calls=frozenset({"put"}))
        for second in range(300):
            world.sleep(1)
            assert alive(world), f"/healthz fails after {second} s of an outage"
        ready = world.app.context.metrics.health.ready()
        assert "not known yet" in ready.text
        world.heal()
        world.sleep(300)
        world.rest()
        world.check()
        assert len(world.starts) == 1
        assert world.app.code is None

    live(scenario, setup=Setup(roll="20s"))


def test_a_driver_that_hangs_is_noticed() -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        assert world.app.driver is not None
        world.app.driver.registry.update = hang
        assert dead_after(world, LIVENESS + 10) >= LIVENESS - 5

    live(scenario)


def test_a_driver_that_hangs_in_the_middle_of_an_outage_is_noticed() -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        world.weather(down=True)
        world.sleep(200)
        assert world.app.driver is not None
        world.app.driver.registry.update = hang
        world.heal()
        dead_after(world, CALLS_OF_A_WAIT * RETRY_DEADLINE + 30 + LIVENESS)

    live(scenario)


def test_a_call_of_the_store_that_never_ends_is_noticed() -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        assert world.app.context is not None
        world.app.context.journal.check_not_overtaken()
        world.bucket.plain.stat = lambda key: hang()
        dead_after(world, CALLS_OF_A_WAIT * RETRY_DEADLINE + LIVENESS + 10)
        assert not alive(world)

    live(scenario)


def test_an_idle_application_may_look_for_work_as_seldom_as_it_is_told_to() -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        for _ in range(900):
            world.sleep(1)
            assert alive(world)

    live(scenario, setup=Setup(poll_ms=300_000))
