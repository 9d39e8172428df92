"""A topic that trickles, by Pulsar's own dispatch limit: the others advance as if it were not there, and what is read
of it is read once."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from offloader.model import TopicName
from tests.examples import few
from tests.world.application import Setup
from tests.world.world import World, live

SLOW = TopicName.parse("public/default/slow")
OTHERS = [TopicName.parse(f"public/default/t{n}") for n in range(3)]
ROLL = 10
LASTS = 80  # seconds: several rolls, and each entry that is too late shows itself
LATE = 25  # seconds: a slice that shows that its topic is slow (hardLimit), one more batch (timeBudget), and a seal

LEARNING = 30  # seconds of reading, however large the topic is: three slices of 10 s, until it is known how slow it is


def oldest(world: World, topics: Iterable[TopicName]) -> float:
    """Seconds: how long the entry that has waited longest for its commit has waited."""
    return max(world.waiting(topic) for topic in topics)


@pytest.mark.parametrize(("executors", "slots"), [(1, 2), (2, 2)])
@pytest.mark.parametrize("rate", few([3_000, 300, 20_000], 1))
def test_the_others_advance_as_if_the_slow_topic_were_not_there(rate: int, executors: int, slots: int) -> None:
    def scenario(world: World) -> None:
        world.begin(SLOW, *OTHERS)
        world.brokers.bytes_per_second[SLOW] = rate
        world.produce(SLOW, 100, largest=3_000)
        for topic in OTHERS:
            world.keep_producing(topic, every=0.5, seconds=LASTS)
        longest = 0.0
        for _ in range(LASTS):
            world.sleep(1)
            longest = max(longest, oldest(world, OTHERS))
        world.heal()
        world.rest()
        world.check()
        assert longest <= ROLL + LATE, f"somebody waited {longest:.0f} s"

    live(scenario, setup=Setup(roll=f"{ROLL}s", executors=executors, slots=slots))


def test_where_spark_has_one_slot_in_all_nobody_waits_longer_than_for_one_more_roll() -> None:
    roll = 60

    def scenario(world: World) -> None:
        world.begin(SLOW, *OTHERS)
        world.brokers.bytes_per_second[SLOW] = 200
        world.produce(SLOW, 300, largest=300)
        written = sum(len(e.data) for e in world.cluster.entries(SLOW))
        for topic in OTHERS:
            world.keep_producing(topic, every=2, seconds=300)
        longest = 0.0
        for _ in range(300):
            world.sleep(1)
            longest = max(longest, oldest(world, OTHERS))
        world.until(lambda: world.offloaded(SLOW), seconds=300)
        dispatched = world.brokers.dispatched[SLOW]
        world.heal()
        world.rest()
        world.check()
        assert longest <= 2 * roll, f"somebody waited {longest:.0f} s"
        assert dispatched <= 1.3 * written, f"{dispatched / written:.2f} times"

    live(scenario, setup=Setup(roll=f"{roll}s", executors=1, slots=1))


def test_where_spark_has_one_slot_in_all_nobody_waits_for_a_topic_of_which_nothing_comes_any_more() -> None:
    """However often its slices were in vain: what is silent for so long is looked up, and then tried again later and
    later."""
    roll = 60

    def scenario(world: World) -> None:
        world.begin(SLOW, OTHERS[0])
        world.brokers.bytes_per_second[SLOW] = 0.001
        world.produce(SLOW, 50, largest=3_000)
        world.keep_producing(OTHERS[0], every=5, seconds=1_500)
        longest = 0.0
        for _ in range(300):
            world.sleep(5)
            longest = max(longest, oldest(world, OTHERS[:1]))
        world.heal()
        world.rest()
        world.check()
        assert longest <= 2 * roll, f"somebody waited {longest:.0f} s"

    live(scenario, setup=Setup(roll=f"{roll}s", executors=1, slots=1))


def test_what_is_read_of_a_slow_topic_is_read_once() -> None:
    def scenario(world: World) -> None:
        world.begin(SLOW, *OTHERS)
        world.brokers.bytes_per_second[SLOW] = 500
        world.produce(SLOW, 60, largest=3_000)
        written = sum(len(e.data) for e in world.cluster.entries(SLOW))
        world.until(lambda: world.offloaded(SLOW), seconds=1_800, step=10)
        again = world.brokers.dispatched[SLOW] - written
        assert again <= LEARNING * 500, f"{again} of {written} bytes were read again"
        world.rest()
        world.check()

    live(scenario, setup=Setup(roll="10m", max_size=10**9, byte_budget=10**9))
