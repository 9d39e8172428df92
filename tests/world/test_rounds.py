"""The driver's thread never waits: whatever hangs, its rounds are short, it notices that it was overtaken, and it ends
when it is told to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offloader.model import GapKind, TopicName
from tests.examples import few
from tests.world.application import Setup
from tests.world.stores import is_data_key
from tests.world.world import World, live

TOPICS = [TopicName.parse(f"public/default/t{n:02}") for n in range(20)]
LONGEST_MS = 2_000  # a record of the journal and its look whether it was overtaken, on a store that is well


def of_segments(key: str) -> bool:
    return not key.startswith("_")


def slow_seals(world: World) -> None:
    """63 seals of 3 s, at the same time: an upload is completed, or the index entries of an object are read."""
    world.weather(latency_ms=(3_000, 3_000), concerns=is_data_key, calls=frozenset({"commit", "read"}))


def store_of_segments_is_away(world: World) -> None:
    """Every call ends at the client's retry deadline, but those of the journal."""
    world.weather(down=True, concerns=of_segments)


def ingress_hangs(world: World) -> None:
    world.ingress.hangs = True


def a_broker_hangs(world: World) -> None:
    world.brokers.all[0].hangs = True


TROUBLES = [slow_seals, store_of_segments_is_away, ingress_hangs, a_broker_hangs]


@pytest.mark.parametrize("trouble", few(TROUBLES, 1))
def test_whatever_hangs_rounds_are_short_and_the_application_stops_when_it_is_told_to(
    trouble: Callable[[World], None],
) -> None:
    def scenario(world: World) -> None:
        world.begin(*TOPICS)
        for topic in TOPICS:
            world.produce(topic, 10, largest=1_000)
            world.cluster.add_hidden(topic, GapKind.ABORTED)
        trouble(world)
        world.sleep(60)
        for topic in TOPICS:
            world.produce(topic, 10, largest=1_000)
            world.cluster.add_hidden(topic, GapKind.MARKER)
        world.sleep(120)
        longest = max(world.app.seen.rounds)
        began = world.scheduler.now
        world.stop()
        took = (world.scheduler.now - began) / 1e9
        world.heal()
        world.start()
        world.rest()
        world.check()
        assert longest <= LONGEST_MS, f"a round took {longest:.0f} ms"
        assert took <= 20, f"it took {took:.0f} s to stop"

    live(scenario, setup=Setup(roll="20s"))


@pytest.mark.parametrize("trouble", [slow_seals, store_of_segments_is_away])
def test_whatever_hangs_a_process_soon_notices_that_another_one_has_taken_over(
    trouble: Callable[[World], None],
) -> None:
    def scenario(world: World) -> None:
        first = world.begin(*TOPICS)
        for topic in TOPICS:
            world.produce(topic, 20, largest=1_000)
        trouble(world)
        world.sleep(40)
        began = world.scheduler.now
        world.start()
        world.until(lambda: first.code is not None, seconds=60)
        assert first.code == 3
        assert (world.scheduler.now - began) / 1e9 <= 30
        world.heal()
        world.rest()
        world.check()

    live(scenario, setup=Setup(roll="20s"))
