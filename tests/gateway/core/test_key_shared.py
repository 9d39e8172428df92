"""Key_Shared: a key at one consumer at a time, in order, and no key holds up another."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import DispatchLimits, Joining, KeyPolicy, ReadBehind
from offloader.gateway.core.key_shared import AutoSplit, Sticky
from offloader.gateway.core.waiting import Subscriber
from offloader.gateway.values import ServedEntries
from offloader.model import Place
from tests.gateway.core.world import KEY_SHARED, LIMITS, World, entry

STICKY_HASHES = 64 * 1024


def ranged(key: int, *ranges: tuple[int, int]) -> Joining:
    return Joining(key, KEY_SHARED, f"c{key}", key_policy=KeyPolicy(ranges))


def named(key: int, *, out_of_order: bool = False) -> Joining:
    return Joining(key, KEY_SHARED, f"c{key}", key_policy=KeyPolicy(out_of_order=out_of_order))


def keyed(*stickies: int) -> list:
    return [entry(number, sticky=sticky) for number, sticky in enumerate(stickies)]


def places(*numbers: int) -> list[Place]:
    return [(number // 3, number % 3) for number in numbers]


def moving_key(first: Joining, second: Joining) -> int:
    """One that goes to the second as soon as that is there."""
    ring = AutoSplit()
    for joining in first, second:
        ring.join(Subscriber(joining))
    return next(sticky for sticky in range(1 << 30, 1 << 31) if ring.owner(sticky).key == second.key)


def test_consumers_get_the_keys_of_their_ranges() -> None:
    world = World(keyed(1, 5, 2, 9, 5))
    world.join(ranged(1, (0, 4)))
    world.join(ranged(2, (5, 5), (9, 9)))
    world.flow(1, 10)
    world.flow(2, 10)
    assert (world.got(1), world.got(2)) == (places(0, 2), places(1, 3, 4))


def test_keys_of_nobody_wait_for_somebody() -> None:
    world = World(keyed(7, 1, 7))
    world.join(ranged(1, (0, 4)))
    world.flow(1, 10)
    assert world.got(1) == places(1)
    world.join(ranged(2, (7, 7)))
    world.flow(2, 10)
    assert world.got(2) == places(0, 2)


def test_a_key_goes_to_a_newcomer_once_nothing_of_it_is_unacknowledged() -> None:
    key = moving_key(named(1), named(2))
    world = World(keyed(key, key, key))
    world.join(named(1))
    world.flow(1, 2)
    world.join(named(2))
    world.flow(2, 10)
    world.acknowledge((places(0)[0], 0))
    assert world.got(2) == []
    world.flow(1, 10)
    assert world.got(1) == places(0, 1), "it gets no more of it"
    world.acknowledge((places(1)[0], 0))
    assert world.got(2) == places(2)


def test_given_back_entries_go_to_the_newcomer_before_later_ones() -> None:
    key = moving_key(named(1), named(2))
    world = World(keyed(key, key, key))
    world.join(named(1))
    world.flow(1, 2)
    world.join(named(2))
    world.flow(2, 10)
    world.redeliver(1, places(0))
    assert world.got(2) == []
    world.leave(1)
    assert world.got(2) == places(0, 1, 2)
    assert [each.redeliveries for each in world.deliveries[2:]] == [1, 0, 0]


def test_where_any_order_is_allowed_nobody_waits() -> None:
    key = moving_key(named(1), named(2))
    world = World(keyed(key, key, key))
    world.join(named(1, out_of_order=True))
    world.flow(1, 1)
    world.join(named(2, out_of_order=True))
    world.flow(2, 10)
    assert world.got(2) == places(1, 2)


def test_a_key_that_waits_does_not_hold_up_others() -> None:
    """Also beyond what may be read ahead: bytes are dropped, and read again when their consumer takes them."""
    limits = DispatchLimits(read_ahead_entries=4, read_ahead_bytes=40, look_ahead_entries=50)
    world = World(keyed(*[1] * 30, *[9] * 5), limits)
    world.join(ranged(1, (1, 1)))
    world.join(ranged(2, (9, 9)))
    world.flow(2, 100)
    assert world.got(2) == places(30, 31, 32, 33, 34)
    assert world.mode._loaded <= 4
    world.flow(1, 3)
    assert world.got(1) == places(0, 1, 2)
    world.flow(1, 100)
    assert world.got(1) == places(*range(30))


def test_looking_ahead_is_bounded() -> None:
    world = World(keyed(*[1] * 60, 9), DispatchLimits(read_ahead_entries=4, look_ahead_entries=20))
    world.join(ranged(1, (1, 1)))
    world.join(ranged(2, (9, 9)))
    world.flow(2, 100)
    assert world.got(2) == []
    assert len(world.mode._items) <= 22
    world.acknowledge(*[(place, 0) for place in places(*range(18))])
    world.flow(1, 30)
    assert world.got(2) == places(60)


def test_redelivered_entries_of_a_key_go_before_its_new_ones() -> None:
    world = World(keyed(1, 1, 1, 2, 2))
    world.join(named(1))
    world.flow(1, 2)
    assert world.got(1) == places(0, 1)
    world.at_once = False
    world.redeliver(1, places(0))
    world.flow(1, 100)
    assert world.got(1)[2:] == places(3, 4), "only the other key: the first entry has to be read again"
    world.answer_all()
    assert world.got(1)[4:] == places(0, 2)


def test_a_consumer_gets_its_keys_by_place_as_from_a_broker() -> None:
    world = World(keyed(1, 2, 1, 3, 2, 1, 3))
    world.join(named(1))
    world.flow(1, 100)
    assert world.got(1) == places(*range(7))


@pytest.mark.parametrize("limits", [DispatchLimits(read_ahead_entries=6), DispatchLimits(read_ahead_bytes=60)])
@pytest.mark.parametrize("keys", [1, 20])
def test_reading_again_is_bounded(limits: DispatchLimits, keys: int) -> None:
    world = World(keyed(*[number % keys + 1 for number in range(20)]), limits)
    world.join(named(1))
    world.flow(1, 20)
    world.at_once = False
    world.redeliver(1)
    world.flow(1, 20)
    asked = []
    while world.reads:
        ((read, _),) = world.reads.values()
        asked.append(len(read.places))
        world.answer(read.request)
    assert max(asked) == 3
    assert sum(asked) == 20
    assert len(world.got(1)) == 40


def test_an_acknowledged_first_one_makes_way() -> None:
    world = World(keyed(1, 1, 1))
    world.join(named(1))
    world.flow(1, 1)
    world.at_once = False
    world.redeliver(1)
    world.acknowledge((places(0)[0], 0))
    world.flow(1, 100)
    assert world.got(1)[1:] == places(1, 2)


def test_a_blocked_consumer_holds_up_its_own_keys_alone() -> None:
    world = World(keyed(1, 1, 1, 9, 9), LIMITS._replace(unacknowledged_of_consumer=2))
    world.join(ranged(1, (1, 1)))
    world.join(ranged(2, (9, 9)))
    world.flow(1, 100)
    world.flow(2, 100)
    assert (world.got(1), world.got(2)) == (places(0, 1), places(3, 4))
    world.acknowledge((places(0)[0], 0))
    assert world.got(1) == places(0, 1, 2)


def test_all_go_on_once_the_subscription_does() -> None:
    world = World(keyed(1, 2, 3, 4), LIMITS._replace(unacknowledged_of_subscription=2))
    world.join(ranged(1, (1, 4)))
    world.flow(1, 10)
    assert world.got(1) == places(0, 1)
    world.acknowledge(*[(place, 0) for place in places(0, 1)])
    assert world.got(1) == places(0, 1, 2, 3)


def test_who_has_left_gets_nothing_when_the_subscription_goes_on() -> None:
    world = World(keyed(1, 2, 3), LIMITS._replace(unacknowledged_of_subscription=2))
    world.join(ranged(1, (1, 3)))
    world.join(ranged(2, (9, 9)))
    world.flow(1, 10)
    world.flow(1, 10)
    world.leave(1)
    assert world.got(1) == places(0, 1)
    world.join(ranged(3, (1, 3)))
    world.flow(3, 10)
    assert len(world.got(3)) == 2


def test_a_key_that_comes_back_while_its_former_entry_was_to_be_read_again() -> None:
    world = World(keyed(1, 2))
    world.join(named(1))
    world.flow(1, 2)
    world.at_once = False
    world.flow(1, 10)
    world.redeliver(1, places(0))
    world.redeliver(1, places(1))  # must wait: one read at a time
    world.acknowledge((places(1)[0], 0))
    world.grow(entry(2, sticky=2))
    world.answer(max(world.reads))
    world.answer_all()
    assert world.got(1) == places(0, 1, 2, 0)
    world.acknowledge(*[(place, 0) for place in places(0, 2)])
    world.flow(1, 1)
    assert world.mode._queues == {}


def test_no_key_is_kept_for_ever() -> None:
    world = World(keyed(*range(1, 200)))
    world.join(named(1))
    world.join(named(2))
    for _ in range(2):
        world.flow(1, 200)
        world.flow(2, 200)
        world.redeliver(1)
    world.acknowledge(*[(each.place, 0) for each in world.topic])
    mode = world.mode
    world.flow(1, 1)
    world.flow(2, 1)
    assert (mode._items, mode._queues, mode._in_slot, mode._without_bytes) == ({}, {}, {}, {})


@pytest.mark.parametrize("consumers", [2, 5, 10])
def test_the_ring_is_fair(consumers: int) -> None:
    ring = AutoSplit()
    for number in range(consumers):
        ring.join(Subscriber(Joining(number, KEY_SHARED, "the same name" if number % 2 else f"consumer-{number}")))
    shares = Counter(ring.owner(sticky).key for sticky in range(1, STICKY_HASHES))
    assert len(shares) == consumers
    assert max(shares.values()) < 1.6 * STICKY_HASHES / consumers
    assert min(shares.values()) > 0.5 * STICKY_HASHES / consumers


LOOKED_AT = [0, *range(1, STICKY_HASHES, 197), STICKY_HASHES - 1, *range(STICKY_HASHES, 1 << 31, 9_999_991)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=12))
def test_the_ring_depends_on_who_is_there_and_moves_no_more_than_needed(steps: list[tuple[bool, int]]) -> None:
    ring, there = AutoSplit(), {}
    for joins, number in steps:
        before = {sticky: ring.owner(sticky) for sticky in LOOKED_AT}
        if joins and number not in there:
            there[number] = Subscriber(Joining(number, KEY_SHARED, f"c{number}"))
            slots = set(ring.join(there[number]))
            owned = {sticky for sticky in LOOKED_AT if ring.owner(sticky) is there[number]}
            assert owned == {sticky for sticky in LOOKED_AT if ring.slot(sticky) in slots}
            moved_to = {there[number]}
        elif not joins and number in there:
            gone = there.pop(number)
            slots = set(ring.leave(gone))
            owned = {sticky for sticky, owner in before.items() if owner is gone}
            assert owned == {sticky for sticky in LOOKED_AT if ring.slot(sticky) in slots}
            assert all(ring.owner(sticky) is owner for sticky, owner in before.items() if owner is not gone)
            continue
        else:
            continue
        after = {sticky: ring.owner(sticky) for sticky in before}
        assert all(after[sticky] is before[sticky] or after[sticky] in moved_to for sticky in before)
    assert (ring.owner(1) is None) == (not there)
    if not there:
        assert (ring._points, ring._at, ring._names, ring._known) == ([], {}, {}, {})


def test_the_slots_of_ranges_are_those_that_lie_in_them() -> None:
    keys, consumer = Sticky(), Subscriber(ranged(1, (0, 1), (5, 9), (STICKY_HASHES - 1, STICKY_HASHES + 5)))
    slots = set(keys.join(consumer))
    assert {sticky for sticky in LOOKED_AT if keys.owner(sticky) is consumer} == {
        sticky for sticky in LOOKED_AT if keys.slot(sticky) in slots
    }
    assert set(keys.leave(consumer)) == slots
    assert set(keys.join(Subscriber(ranged(1, (0, 0))))) == set(), "0 falls to 1"


CONSUMERS, KEYS = 4_000, 20_000


@pytest.mark.large
def test_thousands_that_leave_together_take_little_each() -> None:
    """They hold 40,000 entries of 20,000 keys. Each leaves by itself; between two of them others have their turn."""
    dispatcher = Dispatcher("t", partition=-1, limits=DispatchLimits())
    for number in range(CONSUMERS):
        dispatcher.join(Joining(number, KEY_SHARED, "c"))
    for number in range(CONSUMERS):
        dispatcher.flow(number, 20)
    came = 0
    while reads := [one for one in dispatcher.decisions() if isinstance(one, ReadBehind)]:
        for read in reads:
            read_now = [entry(came + each, sticky=(came + each) % KEYS + 1) for each in range(500)]
            if came < 2 * KEYS:
                came += len(read_now)
                dispatcher.arrived(read.request, ServedEntries(read_now, read_now[-1].place))
    assert sum(dispatcher.state(number).unacknowledged for number in range(CONSUMERS)) > KEYS
    most, begin = 0.0, time.process_time()
    for number in range(CONSUMERS - 1):
        before = time.process_time()
        dispatcher.leave(number)
        most = max(most, time.process_time() - before)
    assert most < 0.25, "seconds of a processor: 0.01 where nothing else runs"
    assert time.process_time() - begin < 40, "4 where nothing else runs"
