"""A pin that is moved by somebody else, in every way that a broker knows: an alarm, and a recorded loss or none; never
a silent hole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from offloader.model import TopicName
from tests.examples import few, few_rows
from tests.fakes.cluster import PIN
from tests.world.application import Setup
from tests.world.stores import is_data_key
from tests.world.world import World, live

T = TopicName.parse("public/default/t")

Move = Callable[[World], None]


def skip_all(world: World) -> None:
    """Also what message TTL does, and a backlog quota with consumer_backlog_eviction."""
    world.cluster.skip_all(T)


def skip_some(world: World) -> None:
    world.cluster.skip(T, 30)


def reset_to_the_first_entry_of_the_last_ledger_with_any(world: World) -> None:
    last = max(e.ledger for e in world.cluster.entries(T))
    world.cluster.reset(T, last, 0)


def expire_the_subscription(world: World) -> None:
    world.cluster.delete_subscription(T)


def somebody_makes_the_subscription_anew(world: World) -> None:
    """After its data is gone."""
    world.cluster.delete_subscription(T)
    world.cluster.roll(T)
    world.cluster.add_subscription(T, PIN)


MOVES = [
    skip_all,
    skip_some,
    reset_to_the_first_entry_of_the_last_ledger_with_any,
    expire_the_subscription,
    somebody_makes_the_subscription_anew,
]


def nothing_is_missing_silently(world: World) -> None:
    """The invariants hold: what is in no segment is in a loss; and what is lost was really gone."""
    world.produce(T, 30)
    world.rest()
    world.check()


CASES = [(move, before, running) for move in MOVES for before in (0, 7, 20, 40) for running in (True, False)]


@pytest.mark.parametrize("written", few([20, 3, 70], 1))
@pytest.mark.parametrize(("move", "before", "running"), few_rows(CASES, 12))
def test_a_pin_that_is_moved_leaves_no_silent_hole(move: Move, before: int, written: int, running: bool) -> None:
    """`before` entries are offloaded and at rest; then some are written, the pin is moved, retention is checked, the
    topic goes on."""

    def scenario(world: World) -> None:
        world.kept = False
        world.begin(T)
        world.produce(T, before, largest=100)
        if before:
            world.rest()
        world.cluster.check_retention(T)
        if not running:
            world.stop()
        world.produce(T, written, largest=100)
        move(world)
        world.cluster.check_retention(T)
        world.brokers.unload(T)
        world.cluster.check_retention(T)
        if not running:
            world.start()
        world.sleep(30)
        nothing_is_missing_silently(world)

    live(scenario, setup=Setup(roll="10s", fail_on_data_loss=False))


def test_what_is_trimmed_long_after_its_pin_was_moved_is_a_recorded_loss_though_no_end_moves() -> None:
    """When the pin moves the ledger is still listed, and the store takes nothing. What is asked often does not tell
    that it is gone."""

    def scenario(world: World) -> None:
        world.kept = False
        world.begin(T)
        world.produce(T, 20, largest=100)
        world.rest()
        world.weather(failed=1.0, calls=frozenset({"put_part", "put"}), concerns=is_data_key)
        world.produce(T, 20, largest=100)
        world.cluster.roll(T)
        world.produce(T, 1)
        for count in (6, 15):  # within a ledger the pin moves without trimming
            world.cluster.skip(T, count)
            world.sleep(30)
        world.cluster.check_retention(T)
        world.weather()
        world.rest()
        world.check()

    live(scenario, setup=Setup(roll="10s", fail_on_data_loss=False))


def test_brokers_of_two_versions_make_no_loss_of_an_empty_topic() -> None:
    """An old one tells another property of the subscription after each load, and whoever is asked for a version may be
    a newer one."""

    def scenario(world: World) -> None:
        world.begin(T)
        for _ in range(8):
            world.brokers.unload(T)
            world.sleep(20)
        world.produce(T, 5)
        world.rest()
        world.check()

    for seed in range(5):
        live(scenario, seed, zones=(0, 0), versions=("2.10.0", "4.0.7"))
