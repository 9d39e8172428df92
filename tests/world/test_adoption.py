"""Topics are taken in while a broker hangs: its own topics wait, and hold no others."""

from __future__ import annotations

from offloader.metadata.layout import topic_folder
from offloader.model import TopicName
from tests.world.ingress import respond
from tests.world.world import World, live

HUNG = [TopicName.parse(f"public/default/hung{n:02}") for n in range(40)]
NEW = [TopicName.parse(f"public/default/new{n}") for n in range(2)]
SOON = 25  # seconds: they are discovered every 10 s


def owned(world: World, topics: list[TopicName], number: int) -> None:
    world.create(*topics)
    for topic in topics:
        world.brokers.owners[topic] = world.brokers.all[number]


def test_topics_of_a_broker_that_hangs_keep_no_other_from_being_adopted() -> None:
    def scenario(world: World) -> None:
        world.brokers.all[0].hangs = True
        world.ingress.lie = lambda request: respond(world.brokers, world.brokers.all[1], request)  # it knows who hangs
        owned(world, HUNG, 0)
        start = world.start()
        world.until(lambda: start.registry is not None and set(HUNG) <= set(start.registry.refused), seconds=600)
        for topic in NEW:
            owned(world, [topic], 1)
            began = world.scheduler.now
            world.until(lambda topic=topic: topic in start.registry.topics, seconds=600)  # type: ignore[misc]
            took = (world.scheduler.now - began) / 1e9
            assert took <= SOON, f"{topic} was taken in after {took:.0f} s"
        world.brokers.start(world.brokers.all[0])
        world.until(lambda: set(HUNG) <= set(start.registry.topics), seconds=600)
        world.check(at_rest=False)

    live(scenario)


def test_a_claim_that_was_begun_and_not_committed_counts_from_where_it_began() -> None:
    """Its pin kept the topic all the time: that its empty ledger was replaced meanwhile is no loss."""

    def scenario(world: World) -> None:
        world.start()
        world.until(lambda: world.app.ready)
        world.weather(failed=1.0, calls=frozenset({"put"}), concerns=lambda key: "/_catalog/" in key)
        world.create(NEW[0])
        world.until(lambda: any(world.bucket.plain.list(topic_folder(NEW[0]))))
        world.cluster.roll(NEW[0])
        world.cluster.check_retention(NEW[0])
        world.weather()
        world.produce(NEW[0], 5)
        world.rest()
        world.check()

    live(scenario)
