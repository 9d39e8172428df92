"""Nothing that the running application keeps grows with what it has offloaded."""

from __future__ import annotations

import pickle

from offloader.model import TopicName
from tests.world.application import Setup
from tests.world.world import World, live

T = TopicName.parse("public/default/t")


def kept(world: World) -> int:
    """Bytes of all that the driver knows of the topic's past, and of the journal's newest record of it."""
    app = world.app
    assert app.registry is not None
    assert app.context is not None
    return len(pickle.dumps((app.registry.topics[T].catalog, app.context.state(T))))


def test_what_the_driver_keeps_of_a_topic_and_what_it_reads_at_a_start_does_not_grow_with_its_segments() -> None:
    def scenario(world: World) -> None:
        world.begin(T)
        sizes, segments = [], []
        for _ in range(3):
            for _ in range(15):
                world.produce(T, 5, largest=1_000)
                world.sleep(6)
            world.rest()
            sizes.append(kept(world))
            segments.append(len(world.catalog(T).segments))
        assert segments[2] >= 2.5 * segments[0], "there is a history"
        assert max(sizes) <= 1.3 * min(sizes), f"{sizes} bytes after {segments} segments"
        world.check()

    live(scenario, setup=Setup(roll="5s", max_size=3_000))
