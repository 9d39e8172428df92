"""Exclusive and Failover: one consumer, in order, from the mark-delete position on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from offloader.gateway.core.events import ActiveChanged, ConsumerKey, DispatchLimits, Joining, KeyPolicy
from offloader.gateway.core.hashing import distance, name_hash
from tests.gateway.core.world import EXCLUSIVE, FAILOVER, World, entries, entry


def exclusive(world: World, permits: int = 0) -> World:
    world.join(Joining(1, EXCLUSIVE))
    if permits:
        world.flow(1, permits)
    return world


def places(*numbers: int) -> list[tuple[int, int]]:
    return [(number // 3, number % 3) for number in numbers]


def test_permits_count_messages_and_entries_are_not_split() -> None:
    world = exclusive(World(entries(5, messages=10)), 1)
    assert world.got(1) == places(0)
    world.flow(1, 9)
    assert world.got(1) == places(0)
    world.flow(1, 1)
    assert world.got(1) == places(0, 1)
    assert world.dispatcher.state(1)[0] == -9


def test_what_is_left_of_a_batch_counts() -> None:
    world = World(entries(3, messages=4))
    world.acknowledge(((0, 0), 0b1010), ((0, 1), 0b1))
    exclusive(world, 3)
    assert [each.entry.left for each in world.deliveries] == [0b1010, 0b1]
    world.flow(1, 1)
    assert [each.entry.left for each in world.deliveries] == [0b1010, 0b1, None]


def test_a_consumer_of_one_message_at_a_time() -> None:
    world = exclusive(World(entries(4)))
    for number in range(4):
        world.flow(1, 1)
        assert world.got(1) == places(*range(number + 1))


def test_acknowledgements_reach_what_is_ahead_and_what_is_being_read() -> None:
    world = World(entries(9, messages=2), DispatchLimits(read_ahead_entries=6), at_once=False)
    exclusive(world)
    world.acknowledge(((0, 1), 0))  # in the read under way
    world.acknowledge(((0, 2), 0b01))
    world.answer_all()
    world.acknowledge(((1, 0), 0), ((1, 1), 0b10))  # ahead
    world.flow(1, 100)
    world.answer_all()
    assert world.got(1) == places(0, 2, 4, 5, 6, 7, 8)
    assert [each.entry.left for each in world.deliveries[:3]] == [None, 0b01, 0b10]


def test_a_cumulative_acknowledgement_reaches_them_too() -> None:
    world = World(entries(9, messages=3), DispatchLimits(read_ahead_entries=6), at_once=False)
    exclusive(world)
    world.acknowledge_up_to((0, 1), 0b100)
    world.answer_all()
    world.acknowledge_up_to((1, 0))
    world.acknowledge_up_to((1, -1))
    world.acknowledge_up_to((1, 1), 0b010)
    world.flow(1, 100)
    world.answer_all()
    assert world.got(1) == places(4, 5, 6, 7, 8)
    assert world.deliveries[0].entry.left == 0b010


def test_cumulative_acknowledgements_never_move_backwards() -> None:
    world = World(entries(6, messages=3), at_once=False)
    exclusive(world, 100)
    world.acknowledge_up_to((1, 1), 0b100)
    world.acknowledge_up_to((0, 0))
    world.answer_all()
    assert world.got(1) == places(4, 5)


def test_parts_that_are_acknowledged_during_a_read_add_up() -> None:
    world = World(entries(1, messages=3), at_once=False)
    exclusive(world, 100)
    world.acknowledge(((0, 0), 0b110), ((0, 0), 0b011))
    world.answer_all()
    assert world.deliveries[0].entry.left == 0b010


def test_redelivery_begins_at_the_mark_delete_position_in_a_new_epoch() -> None:
    world = World(entries(6))
    world.join(Joining(1, EXCLUSIVE, epoch=0))
    world.flow(1, 4)
    world.acknowledge_up_to((0, 0))
    world.redeliver(1, [(1, 0)], epoch=1)  # the names count for nothing
    world.flow(1, 5)
    assert world.got(1) == places(0, 1, 2, 3, 1, 2, 3, 4, 5)
    assert [each.epoch for each in world.deliveries] == [0] * 4 + [1] * 5
    assert {each.redeliveries for each in world.deliveries} == {0}


def test_an_older_epoch_does_not_come_back() -> None:
    world = World(entries(2))
    world.join(Joining(1, EXCLUSIVE, epoch=5))
    world.redeliver(1, None, 3)
    world.flow(1, 1)
    assert world.deliveries[0].epoch == 5


def test_what_comes_after_a_rewind_for_an_older_read_is_dropped() -> None:
    world = World(entries(4), at_once=False)
    exclusive(world, 10)
    world.redeliver(1)
    assert len(world.reads) == 1, "the former read is still under way"
    world.acknowledge(((0, 0), 0))
    world.answer(min(world.reads))
    assert world.deliveries == []
    world.answer_all()
    assert world.got(1) == places(1, 2, 3)


def test_growth_during_a_read_is_not_missed() -> None:
    world = World([], at_once=False)
    exclusive(world, 10)
    world.grow(*entries(2))
    world.answer_all()
    assert world.got(1) == places(0, 1)


def test_at_the_end_nothing_is_read_until_there_is_more() -> None:
    world = exclusive(World(entries(1)), 10)
    world.at_once = False
    world.flow(1, 1)
    world.acknowledge(((0, 0), 0))
    assert world.reads == {}
    world.dispatcher.more()
    world.carry_out()
    assert len(world.reads) == 1


def test_a_failed_read_is_asked_for_again() -> None:
    world = World(entries(2), at_once=False)
    exclusive(world, 10)
    world.fail(min(world.reads))
    world.answer_all()
    assert world.got(1) == places(0, 1)


def test_reading_ahead_is_bounded() -> None:
    for limits in DispatchLimits(read_ahead_entries=10), DispatchLimits(read_ahead_bytes=100):
        world = exclusive(World([entry(number, size=10) for number in range(60)], limits))
        assert len(world.mode._ahead) <= 10
        for _ in range(60):
            world.flow(1, 1)
            assert len(world.mode._ahead) <= 10
        assert len(world.deliveries) == 60


def test_nothing_is_read_where_nobody_is() -> None:
    world = exclusive(World(entries(3)))
    world.leave(1)
    world.at_once = False
    world.dispatcher.more()
    world.carry_out()
    assert world.reads == {}


def test_a_reader_of_keys_gets_these_alone() -> None:
    world = World([entry(number, sticky=number * 10) for number in range(6)])
    world.join(Joining(1, EXCLUSIVE, key_policy=KeyPolicy([(10, 10), (35, 45)])))
    world.left |= dict.fromkeys(places(0, 2, 3, 5), 0)  # the model: nobody is to get them
    world.dispatcher.flow(1, 100)
    world.takers[1].permits = 100
    world.carry_out()
    assert world.got(1) == places(1, 4)


def failover(*consumers: tuple[int, str, int], partition: int = -1, delay_ms: int = 0) -> World:
    world = World(entries(9), DispatchLimits(failover_delay_ms=delay_ms), partition=partition)
    for key, name, priority in consumers:
        world.join(Joining(key, FAILOVER, name, priority))
    return world


def active(world: World) -> list[ConsumerKey]:
    return [key for key, taker in world.takers.items() if taker.active]


def test_partitions_are_dealt_out_by_name_among_the_best_priority() -> None:
    three = (3, "a", 1), (1, "c", 0), (2, "b", 0)
    for partition, expected in (0, 2), (1, 1), (2, 2), (7, 1):
        world = failover(*three, partition=partition)
        assert active(world) == [expected]
    world.leave(1)
    assert active(world) == [2]
    world.leave(2)
    assert active(world) == [3]


def test_a_topic_without_partitions_chooses_by_a_ring_of_names() -> None:
    """Whatever the order in which they join, and nobody is active always."""
    chosen = set()
    for number in range(30):
        names = [(key, f"{number}-{key}", 0) for key in range(3)]
        worlds = failover(*names), failover(*reversed(names))
        assert active(worlds[0]) == active(worlds[1])
        chosen.update(active(worlds[0]))
    assert chosen == {0, 1, 2}


def test_each_is_told_at_joining_and_at_each_change() -> None:
    world = failover((1, "b", 0), partition=0)
    assert world.told == [ActiveChanged(1, True)]
    world.join(Joining(2, FAILOVER, "c"))
    assert world.told[1:] == [ActiveChanged(2, False)]
    world.join(Joining(3, FAILOVER, "a"))
    assert sorted(world.told[2:]) == [ActiveChanged(1, False), ActiveChanged(2, False), ActiveChanged(3, True)]
    world.leave(2)
    assert len(world.told) == 5, "nothing has changed"
    world.leave(3)
    assert world.told[5:] == [ActiveChanged(1, True)]


def test_the_new_one_begins_at_the_mark_delete_position() -> None:
    world = failover((1, "b", 0), partition=0)
    world.flow(1, 5)
    world.acknowledge_up_to((0, 1))
    world.join(Joining(2, FAILOVER, "a"))
    assert world.got(2) == []
    world.flow(2, 100)
    assert world.got(1) == places(0, 1, 2, 3, 4)
    assert world.got(2) == places(2, 3, 4, 5, 6, 7, 8)


def test_whoever_stands_by_gets_nothing_and_may_not_rewind() -> None:
    world = failover((1, "a", 0), (2, "b", 0), partition=0)
    world.flow(2, 5)
    assert world.deliveries == []
    world.flow(1, 2)
    world.redeliver(2)
    world.flow(1, 1)
    assert world.got(1) == places(0, 1, 2)
    world.leave(1)
    assert world.got(2) == places(0, 1, 2, 3, 4), "it had permits all along"


def test_a_change_takes_effect_after_a_delay() -> None:
    world = World(entries(3), DispatchLimits(failover_delay_ms=1000), partition=0)
    world.tick(5_000)
    world.join(Joining(1, FAILOVER, "b"))
    world.flow(1, 10)
    assert (world.dispatcher.wake_at_ms, world.told) == (6_000, [])
    world.tick(5_999)
    world.join(Joining(2, FAILOVER, "a"))
    world.flow(2, 10)
    assert (world.dispatcher.wake_at_ms, world.told, world.deliveries) == (6_000, [], [])
    world.tick(6_000)
    assert sorted(world.told) == [ActiveChanged(1, False), ActiveChanged(2, True)]
    assert world.got(2) == places(0, 1, 2)
    assert world.dispatcher.wake_at_ms is None


def test_the_ring_begins_at_the_topic() -> None:
    nearest = {min("abc", key=lambda name: distance(f"topic-{number}", name)) for number in range(30)}
    assert nearest == {"a", "b", "c"}


def test_the_hash_is_murmur3() -> None:
    assert name_hash("") == 0
    assert name_hash("hello") == 0x248BFA47
    assert name_hash("hello, world") == 0x149BBB7F
    assert name_hash("The quick brown fox jumps over the lazy dog") == 0x2E4FF723


@given(st.text(), st.text())
def test_the_hash_of_any_name_is_on_the_ring(topic: str, name: str) -> None:
    assert 0 <= name_hash(name) < 1 << 31
    assert 0 <= distance(topic, name) < 1 << 31


def test_a_clock_that_is_set_back_puts_no_takeover_off() -> None:
    world = World(entries(6), DispatchLimits(failover_delay_ms=1_000))
    world.tick(10_000_000)
    world.join(Joining(1, FAILOVER, "a"))
    world.join(Joining(2, FAILOVER, "b"))
    world.dispatcher.tick(10_000_500)
    world.dispatcher.tick(6_400_000)
    world.carry_out()
    assert world.dispatcher.wake_at_ms is not None
    assert world.dispatcher.wake_at_ms <= 6_401_000
    world.dispatcher.tick(6_401_000)
    world.carry_out()
    world.flow(1, 10)
    world.flow(2, 10)
    assert sorted(world.got(1) + world.got(2)) == places(*range(6))
