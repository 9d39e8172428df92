"""Whatever happens in whatever order: each entry is delivered until it is acknowledged, to whom the rules say."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from offloader.gateway.core.events import ConsumerKey, DispatchLimits, Joining, KeyPolicy
from offloader.gateway.values import RefusedError
from offloader.model import Place
from tests.gateway.core.world import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, World, entry

KEYS = 4
MOST_CONSUMERS = 4
PLACES = st.tuples(st.integers(0, 9), st.integers(0, 2))
LEFT = st.one_of(st.just(0), st.integers(0, 15))
RANGES = [((0, 1),), ((2, 2), (4, 65535)), ((3, 3),), ((1, 3),)]
POLICIES = [
    KeyPolicy(),
    KeyPolicy(out_of_order=True),
    KeyPolicy(ranges=RANGES[0]),
    KeyPolicy(ranges=RANGES[1]),
    KeyPolicy(ranges=RANGES[2]),
    KeyPolicy(ranges=RANGES[3]),
]


def numbers(keys: Iterable[ConsumerKey]) -> list[int]:
    return sorted(key for key in keys if isinstance(key, int))


class Subscription(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World([])
        self.names = 0

    @initialize(data=st.data(), delayed=st.booleans(), partition=st.integers(-1, 3))
    def begin(self, data: st.DataObject, delayed: bool, partition: int) -> None:
        shapes = st.tuples(
            st.integers(1, 4), st.integers(1, KEYS), st.sampled_from([0, 0, 0, 5, 9]), st.sampled_from([1, 10, 200])
        )
        topic = [
            entry(number, messages=messages, sticky=sticky, deliver_at=at if delayed else 0, size=size)
            for number, (messages, sticky, at, size) in enumerate(data.draw(st.lists(shapes, max_size=24)))
        ]
        limits = DispatchLimits(
            read_ahead_entries=data.draw(st.sampled_from([1, 2, 5, 100])),
            read_ahead_bytes=data.draw(st.sampled_from([1, 100, 10_000])),
            look_ahead_entries=data.draw(st.sampled_from([3, 8, 100])),
            unacknowledged_of_consumer=data.draw(st.sampled_from([0, 3, 50])),
            unacknowledged_of_subscription=data.draw(st.sampled_from([0, 5, 50])),
            failover_delay_ms=data.draw(st.sampled_from([0, 3])),
        )
        note(f"{limits}")
        self.world = World(topic, limits, partition=partition, at_once=data.draw(st.booleans()))
        self.kind = data.draw(st.sampled_from([EXCLUSIVE, SHARED, SHARED, FAILOVER, KEY_SHARED, KEY_SHARED]))

    def consumer(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(numbers(self.world.takers)))

    def places_of(self, data: st.DataObject) -> list[Place]:
        known = [each.entry.place for each in self.world.deliveries]
        some = st.sampled_from(known) if known else PLACES
        return data.draw(st.lists(st.one_of(some, PLACES), min_size=1, max_size=8))

    @precondition(lambda self: len(self.world.takers) < MOST_CONSUMERS)
    @rule(
        data=st.data(),
        name=st.sampled_from("ab"),
        priority=st.sampled_from([0, 0, 1]),
        policy=st.sampled_from(POLICIES),
        permits=st.integers(0, 9),
        epoch=st.sampled_from([None, 0]),
    )
    def join(self, data, name, priority, policy, permits, epoch) -> None:
        self.names += 1
        joining = Joining(
            self.names, self.kind, name, priority, policy if self.kind == KEY_SHARED else KeyPolicy(), epoch
        )
        try:
            self.world.join(joining)
        except RefusedError:
            assert self.kind in (EXCLUSIVE, KEY_SHARED)
            assert self.world.takers
        else:
            self.world.flow(self.names, permits)

    @precondition(lambda self: self.world.takers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.world.leave(self.consumer(data))

    @precondition(lambda self: not self.world.takers)
    @rule(kind=st.sampled_from([EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]))
    def another_type(self, kind) -> None:
        self.kind = kind

    @precondition(lambda self: self.world.takers)
    @rule(data=st.data(), permits=st.sampled_from([1, 2, 7]))
    def flow(self, data: st.DataObject, permits: int) -> None:
        self.world.flow(self.consumer(data), permits)

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.world.acknowledge(*[(place, data.draw(LEFT) & self.world.all_of(place)) for place in self.places_of(data)])

    @rule(place=PLACES, left=LEFT)
    def acknowledge_up_to(self, place: Place, left: int) -> None:
        if self.world.takers or not left:
            self.world.acknowledge_up_to(place, left & self.world.all_of(place))

    @precondition(lambda self: self.world.takers)
    @rule(data=st.data(), named=st.booleans(), epoch=st.sampled_from([None, 1, 2]))
    def redeliver(self, data: st.DataObject, named: bool, epoch: int | None) -> None:
        self.world.redeliver(self.consumer(data), self.places_of(data) if named else None, epoch)

    @precondition(lambda self: self.world.reads)
    @rule(data=st.data(), fails=st.sampled_from([False, False, False, True]))
    def a_read_ends(self, data: st.DataObject, fails: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.world.reads)))
        if fails:
            self.world.fail(request)
        else:
            self.world.answer(request)

    @precondition(lambda self: len(self.world.topic) < 30)
    @rule(messages=st.integers(1, 4), sticky=st.integers(1, KEYS))
    def grow(self, messages: int, sticky: int) -> None:
        self.world.grow(entry(len(self.world.topic), messages=messages, sticky=sticky))

    @rule(ms=st.integers(1, 4))
    def time_passes(self, ms: int) -> None:
        self.world.tick(self.world.now + ms)

    @rule(to=st.integers(0, 24))
    def seek(self, to: int) -> None:
        before = numbers(self.world.takers)
        self.world.closed.clear()
        self.world.seek(to)
        assert numbers(self.world.closed) == before

    @invariant()
    def nothing_is_kept_of_what_is_acknowledged(self) -> None:
        mode = self.world.mode
        items = getattr(mode, "_items", {})
        assert all(self.world.left[place] for place in items)
        if mode is not None and hasattr(mode, "_items"):
            assert mode._unacknowledged == self.world.unacknowledged
            assert mode._loaded == sum(item.entry is not None for item in items.values())
            assert mode._loaded_bytes == sum(item.size for item in items.values() if item.entry is not None)
            assert mode._waiting == sum(item.waits for item in items.values())
            most = self.world.limits.read_ahead_entries + max(self.world.limits.read_ahead_entries // 2, 1)
            assert mode._loaded <= most

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        """Where no read is under way, whoever can take an entry has it: no event of somebody else is needed."""
        world = self.world
        if world.reads or not world.takers or world.dispatcher.wake_at_ms is not None:
            return
        able = [key for key, taker in world.takers.items() if taker.permits > 0 and not taker.blocked]
        left = [each for each in world.topic if world.left[each.place] and each.place not in world.holders]
        if world.kind in (EXCLUSIVE, FAILOVER):
            left = [each for each in left if each.place > world.last]
            assert not left or not any(world.takers[key].active for key in able)
        elif world.kind == SHARED:
            assert not left or not able or world.subscription_blocked
        elif not world.subscription_blocked and len(left) < world.limits.look_ahead_entries:
            owners = world.mode._keys
            for each in left:
                owner = owners.owner(each.sticky)
                assert owner is None or owner.key not in able or self.is_held_by_another(owner.key, each.sticky)

    def is_held_by_another(self, key: int, sticky: int) -> bool:
        if self.world.takers[key].joining.key_policy.out_of_order:
            return False
        held = self.world.holders.items()
        return any(holder != key and self.world.by_place[place].sticky == sticky for place, holder in held)

    def teardown(self) -> None:
        if not self.world.takers:
            self.world.join(Joining("last", EXCLUSIVE))
        self.world.settle()
        reached = self.world.never_got()
        if self.world.kind == KEY_SHARED and any(t.joining.key_policy.ranges for t in self.world.takers.values()):
            owned = [r for taker in self.world.takers.values() for r in taker.joining.key_policy.ranges]
            reached = [
                place
                for place in reached
                if any(first <= self.world.by_place[place].sticky <= last for first, last in owned)
            ]
            if len(self.world.never_got()) >= self.world.limits.look_ahead_entries:
                return  # keys of nobody wait for somebody
        assert reached == []


TestSubscription = Subscription.TestCase
