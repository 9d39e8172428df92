"""Clocks that are wrong, and that somebody sets right."""

from __future__ import annotations

import pytest

from offloader.metadata.layout import catalog_folder, record_key
from offloader.model import TopicName
from tests.world.scheduler import SECOND
from tests.world.world import World, live

T = TopicName.parse("public/default/t")
HOUR = 3_600


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_jumps_delays_nothing_and_hurries_nothing(hours: int) -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        world.produce(T, 5)
        world.sleep(5)
        world.app.process.clock_offset += hours * HOUR * SECOND
        world.sleep(2)
        assert not world.catalog(T).segments, "it is not due"
        world.rest(seconds=60)
        world.check()

    live(scenario)


def ahead_of_all(world: World) -> None:
    """A process whose clock is ahead has a segment open."""
    world.begin(T)
    world.stop()
    ahead = world.start()
    ahead.process.clock_offset = HOUR * SECOND
    world.until(lambda: world.app.registry is not None and T in world.app.registry.topics)
    world.produce(T, 20)
    world.until(lambda: world.app.context is not None and world.app.context.state(T).open is not None)


def test_a_segment_whose_record_a_process_with_a_clock_ahead_has_written_is_committed_as_it_is() -> None:
    """The record stands beside the segment, and the process is gone before the catalog has it."""

    def scenario(world: World) -> None:
        ahead_of_all(world)
        context = world.app.context
        assert context is not None
        segment = context.state(T).open.uuid
        world.weather(down=True, concerns=lambda key: key.startswith(catalog_folder(T, 0)), calls=frozenset({"put"}))
        world.until(lambda: world.bucket.plain.stat(record_key(T, segment)) is not None)
        world.kill()
        world.heal()
        world.start()
        world.rest(seconds=90)
        world.check()

    live(scenario)


def test_what_a_process_with_a_clock_ahead_has_journaled_delays_nothing_after_it() -> None:
    def scenario(world: World) -> None:
        ahead_of_all(world)
        world.kill()
        world.start()
        world.rest(seconds=90)
        world.check()

    live(scenario)
