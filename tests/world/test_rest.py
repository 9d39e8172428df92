"""When a world is at rest: what the bucket says counts, and not only what a process knows."""

from __future__ import annotations

from offloader.model import GapKind, TopicName
from tests.world.world import World, live

T = TopicName.parse("public/default/t")


def test_a_segment_that_the_journal_has_open_is_open_also_before_the_process_hears_that_it_is_journaled() -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        world.produce(T, 5)
        world.rest()
        world.cluster.add_hidden(T, GapKind.ABORTED)
        world.until(lambda: any(state.open for state in world.journal().values()), seconds=120, step=0.001)
        assert not world.at_rest()
        world.rest()
        world.check()

    live(scenario)
