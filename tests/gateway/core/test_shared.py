"""Shared: turns, redeliveries, bounds of what is unacknowledged, delays."""

from __future__ import annotations

from offloader.gateway.core.events import DispatchLimits, Joining, ReadAgain
from offloader.model import Place
from tests.gateway.core.world import LIMITS, SHARED, World, entries, entry


def shared(world: World, *priorities: int) -> World:
    """Consumers 1, 2, …"""
    for key, priority in enumerate(priorities, 1):
        world.join(Joining(key, SHARED, f"c{key}", priority))
    return world


def places(*numbers: int) -> list[Place]:
    return [(number // 3, number % 3) for number in numbers]


def test_consumers_take_turns() -> None:
    world = shared(World(entries(9), at_once=False), 0, 0, 0)
    for key in 1, 2, 3:
        world.flow(key, 10)
    world.answer_all()
    assert [world.got(key) for key in (1, 2, 3)] == [places(0, 3, 6), places(1, 4, 7), places(2, 5, 8)]


def test_whoever_has_no_permits_is_passed_over() -> None:
    world = shared(World(entries(9), at_once=False), 0, 0)
    world.flow(1, 2)
    world.flow(2, 10)
    world.answer_all()
    assert world.got(1) == places(0, 2)
    assert world.got(2) == places(1, 3, 4, 5, 6, 7, 8)


def test_lower_priority_levels_go_first_while_they_have_permits() -> None:
    world = shared(World(entries(9), at_once=False), 1, 0, -3)
    world.flow(1, 10)
    world.flow(2, 2)
    world.flow(3, 3)
    world.answer_all()
    assert [world.got(key) for key in (3, 2, 1)] == [places(0, 1, 2), places(3, 4), places(5, 6, 7, 8)]


def test_a_batch_takes_its_messages() -> None:
    world = shared(World(entries(4, messages=10)), 0)
    for permits, got in (1, 1), (9, 1), (1, 2), (15, 3), (4, 3), (1, 4):
        world.flow(1, permits)
        assert len(world.got(1)) == got


def test_named_entries_are_redelivered_first_and_counted() -> None:
    world = shared(World(entries(9)), 0)
    world.flow(1, 5)
    world.redeliver(1, places(1, 3, 8))  # the last one it never had
    world.flow(1, 3)
    assert world.got(1) == places(0, 1, 2, 3, 4, 1, 3, 5)
    assert [each.redeliveries for each in world.deliveries] == [0, 0, 0, 0, 0, 1, 1, 0]
    world.redeliver(1, places(1))
    world.flow(1, 1)
    assert world.deliveries[-1].redeliveries == 2


def test_without_names_all_that_it_holds_is_redelivered_and_counted() -> None:
    world = shared(World(entries(9)), 0, 0)
    world.flow(1, 2)
    world.flow(2, 2)
    world.redeliver(2)
    world.flow(1, 3)
    assert world.got(1) == places(0, 1, 2, 3, 4)
    assert [each.redeliveries for each in world.deliveries[4:]] == [1, 1, 0]


def test_what_is_given_back_already_is_not_counted_again() -> None:
    world = shared(World(entries(2)), 0)
    world.flow(1, 2)
    world.redeliver(1)
    world.redeliver(1)
    world.flow(1, 2)
    assert [each.redeliveries for each in world.deliveries] == [0, 0, 1, 1]


def test_nobody_gets_back_what_another_holds() -> None:
    world = shared(World(entries(3)), 0, 0)
    world.flow(1, 1)
    world.redeliver(2, places(0))
    world.flow(2, 5)
    assert world.got(2) == places(1, 2)


def test_who_leaves_gives_back_its_entries_without_a_count() -> None:
    world = shared(World(entries(6)), 0, 0)
    world.flow(1, 3)
    world.redeliver(1, places(2))
    world.flow(1, 1)
    world.acknowledge((places(1)[0], 0))
    world.leave(1)
    world.flow(2, 100)
    assert world.got(2) == places(0, 2, 3, 4, 5)
    assert [each.redeliveries for each in world.deliveries[4:]] == [0, 1, 0, 0, 0]
    assert world.mode._waiting == 0, "the acknowledged one was not given back"


def test_counts_are_forgotten_with_acknowledgements_and_with_the_last_consumer() -> None:
    world = shared(World(entries(2)), 0)
    world.flow(1, 2)
    world.redeliver(1)
    world.flow(1, 2)
    world.acknowledge((places(0)[0], 0))
    assert list(world.mode._items) == places(1)
    world.leave(1)
    shared(world, 0)
    world.flow(1, 2)
    assert [(each.entry.place, each.redeliveries) for each in world.deliveries[4:]] == [((0, 1), 0)]


def test_acknowledgements_count_wherever_the_entry_is() -> None:
    world = shared(World(entries(9, messages=2), DispatchLimits(read_ahead_entries=12)), 0, 0)
    world.at_once = False
    world.flow(1, 2)
    world.flow(2, 2)
    world.redeliver(2, places(1))
    world.acknowledge((places(0)[0], 0))  # another one holds it
    world.acknowledge((places(1)[0], 0))  # it waits to be redelivered
    world.acknowledge((places(2)[0], 0), (places(3)[0], 0b10))  # it is ahead
    world.acknowledge((places(8)[0], 0), (places(99)[0], 0))  # nobody has read it, or it is nowhere
    world.flow(2, 100)
    world.answer_all()
    assert world.got(2)[1:] == places(3, 4, 5, 6, 7)
    assert world.deliveries[2].entry.left == 0b10


def test_an_entry_that_is_read_again_may_be_acknowledged_meanwhile() -> None:
    world = shared(World(entries(3, messages=2)), 0)
    world.flow(1, 6)
    world.at_once = False
    world.redeliver(1)
    world.flow(1, 6)
    assert [read.places for read, _ in world.reads.values()] == [places(0, 1, 2)]
    world.acknowledge((places(0)[0], 0), (places(2)[0], 0b01))
    world.answer_all()
    assert [(each.entry.place, each.entry.left) for each in world.deliveries[3:]] == [((0, 1), None), ((0, 2), 0b01)]


def test_an_entry_that_is_gone_is_forgotten() -> None:
    world = shared(World(entries(3)), 0)
    world.flow(1, 1)
    world.at_once = False
    world.redeliver(1)
    world.flow(1, 5)
    (request,) = world.reads
    world.reads.clear()
    world.left[0, 0] = 0  # the model: nobody is to get it
    world.waiting_again.clear()
    world.dispatcher.arrived_again(request, [])
    world.carry_out()
    assert world.got(1)[1:] == places(1, 2)
    assert (0, 0) not in world.mode._items


def test_a_failed_read_of_redeliveries_is_asked_for_again() -> None:
    world = shared(World(entries(3)), 0)
    world.flow(1, 1)
    world.at_once = False
    world.redeliver(1)
    world.flow(1, 1)
    world.fail(min(world.reads))
    assert [type(read) for read, _ in world.reads.values()] == [ReadAgain]
    world.answer_all()
    assert world.got(1) == places(0, 0)


def test_a_read_for_those_that_have_left_is_dropped() -> None:
    world = shared(World(entries(2)), 0)
    world.flow(1, 1)
    world.at_once = False
    world.redeliver(1)
    world.flow(1, 1)
    (again,) = world.reads
    world.leave(1)
    shared(world, 0)
    world.flow(1, 1)
    world.answer(max(world.reads))
    assert world.got(1) == places(0, 0)
    world.answer(again)
    assert world.mode._loaded == 1, "the second entry"


def test_only_what_there_are_permits_for_is_read_again() -> None:
    world = shared(World(entries(9, messages=3)), 0)
    world.flow(1, 27)
    world.at_once = False
    world.redeliver(1)
    assert world.reads == {}
    world.flow(1, 4)
    assert [read.places for read, _ in world.reads.values()] == [places(0, 1)]


def test_reading_again_is_bounded() -> None:
    for limits in DispatchLimits(read_ahead_entries=6), DispatchLimits(read_ahead_bytes=60):
        world = shared(World(entries(9), limits), 0)
        world.flow(1, 9)
        world.at_once = False
        world.redeliver(1)
        world.flow(1, 9)
        for first in range(0, 9, 3):
            assert [read.places for read, _ in world.reads.values()] == [places(first, first + 1, first + 2)]
            world.answer_all() if first == 6 else world.answer(min(world.reads))
        assert len(world.got(1)) == 18


def test_a_consumer_with_too_many_unacknowledged_messages_waits_for_half_of_them() -> None:
    world = shared(World(entries(20)), 0)
    limited = shared(World(entries(20), LIMITS._replace(unacknowledged_of_consumer=6)), 0, 0)
    for each in world, limited:
        each.flow(1, 100)
    assert (len(world.deliveries), len(limited.deliveries)) == (20, 6)
    limited.flow(2, 1)
    assert len(limited.got(2)) == 1, "others go on"
    limited.acknowledge(*[(place, 0) for place in places(0, 1)])
    assert len(limited.got(1)) == 6
    limited.acknowledge((places(2)[0], 0))
    assert len(limited.got(1)) == 9


def test_redelivery_frees_a_consumer() -> None:
    world = shared(World(entries(9), LIMITS._replace(unacknowledged_of_consumer=4)), 0)
    world.flow(1, 100)
    world.redeliver(1)
    assert world.got(1) == places(0, 1, 2, 3, 0, 1, 2, 3)


def test_parts_of_batches_free_a_consumer() -> None:
    world = shared(World(entries(9, messages=4), LIMITS._replace(unacknowledged_of_consumer=4)), 0)
    world.flow(1, 100)
    world.acknowledge(((0, 0), 0b0111))
    assert len(world.deliveries) == 1
    world.acknowledge(((0, 0), 0b1100))
    assert len(world.deliveries) == 2


def test_the_subscription_is_bounded_too() -> None:
    world = shared(World(entries(20), LIMITS._replace(unacknowledged_of_subscription=6)), 0, 0)
    world.flow(1, 4)
    world.flow(2, 4)
    assert (len(world.got(1)), len(world.got(2))) == (4, 2)
    world.acknowledge(*[(place, 0) for place in places(0, 1)])
    assert len(world.deliveries) == 6
    world.leave(2)
    world.flow(1, 10)
    assert world.got(1) == places(0, 1, 2, 3, 4, 5, 6, 7), "the bound counts what the others held no more"


def test_delayed_entries_wait_for_their_time() -> None:
    topic = [entry(0, deliver_at=50), entry(1), entry(2, deliver_at=40), entry(3, deliver_at=10)]
    world = World(topic)
    world.tick(20)
    shared(world, 0)
    world.flow(1, 10)
    assert (world.got(1), world.dispatcher.wake_at_ms) == (places(1, 3), 40)
    world.tick(39)
    assert world.got(1) == places(1, 3)
    world.tick(40)
    assert (world.got(1), world.dispatcher.wake_at_ms) == (places(1, 3, 2), 50)
    world.acknowledge(((0, 0), 0))
    world.tick(60)
    assert (world.got(1), world.dispatcher.wake_at_ms) == (places(1, 3, 2), None)


def test_delayed_entries_are_bounded() -> None:
    world = shared(
        World([entry(n, deliver_at=9) for n in range(9)], DispatchLimits(read_ahead_entries=2, delayed_entries=3)), 0
    )
    world.flow(1, 100)
    assert len(world.mode._delayed) == 3
    world.tick(9)
    assert len(world.got(1)) == 9


def test_cumulative_acknowledgements_are_ignored() -> None:
    world = shared(World(entries(3)), 0)
    world.acknowledge_up_to((0, 2))
    world.flow(1, 10)
    assert world.got(1) == places(0, 1, 2)


def test_what_is_returned_and_acknowledged_leaves_nothing_behind() -> None:
    world = shared(World(entries(300)), 0)
    for _ in range(3):
        world.flow(1, 300)
        world.redeliver(1)
    world.acknowledge(*[(each.place, 0) for each in world.topic])
    world.flow(1, 1)
    mode = world.mode
    assert (mode._items, mode._waiting, mode._loaded, mode._unacknowledged) == ({}, 0, 0, 0)
    assert (mode._all.returned, len(mode._all.fresh)) == ([], 0)


def test_levels_of_priority_are_not_kept_for_ever() -> None:
    world = World(entries(1))
    shared(world, 0)
    for priority in range(1, 200):
        world.join(Joining("other", SHARED, "o", priority))
        world.flow("other", 1)
        world.leave("other")
        world.redeliver(1)
        world.flow(1, 1)
    assert len(world.mode._turns._levels) <= 2
