"""Who may subscribe, what refusals say, and who is told what."""

from __future__ import annotations

import pytest

from offloader.gateway.core.events import Joining, KeyPolicy
from offloader.gateway.values import ErrorCode, RefusedError, SubscriptionType
from tests.gateway.core.world import EXCLUSIVE, FAILOVER, KEY_SHARED, LIMITS, SHARED, World, entries

END_AGAIN_MS = 15_000


def refused(world: World, joining: Joining) -> tuple[ErrorCode, str]:
    before = list(world.dispatcher.consumers)
    with pytest.raises(RefusedError) as error:
        world.join(joining)
    assert list(world.dispatcher.consumers) == before
    return error.value.code, str(error.value)


def sticky(key: int, *ranges: tuple[int, int], out_of_order: bool = False) -> Joining:
    return Joining(key, KEY_SHARED, f"c{key}", key_policy=KeyPolicy(ranges, out_of_order))


def test_a_second_exclusive_consumer_is_refused() -> None:
    world = World([])
    world.join(Joining(1, EXCLUSIVE))
    assert refused(world, Joining(2, EXCLUSIVE)) == (
        ErrorCode.CONSUMER_BUSY,
        "Exclusive consumer is already connected",
    )


@pytest.mark.parametrize("there", SubscriptionType)
@pytest.mark.parametrize("other", SubscriptionType)
def test_another_type_is_refused_until_all_have_left(there: SubscriptionType, other: SubscriptionType) -> None:
    if there == other:
        return
    world = World([])
    world.join(Joining(1, there))
    code, text = refused(world, Joining(2, other))
    assert code == ErrorCode.CONSUMER_BUSY
    assert text.startswith("Subscription is of different type")
    world.leave(1)
    world.join(Joining(2, other))
    assert list(world.dispatcher.consumers) == [2]


def test_the_same_consumer_again_is_a_retry() -> None:
    world = World(entries(3))
    world.join(Joining(1, EXCLUSIVE))
    world.flow(1, 2)
    world.join(Joining(1, EXCLUSIVE))
    assert len(world.got(1)) == 2
    assert world.dispatcher.state(1) == (0, 0, False)


def test_ranges_must_be_there_in_order_and_free() -> None:
    world = World([])
    assert refused(world, sticky(1)) == (
        ErrorCode.CONSUMER_ASSIGN,
        "Ranges for KeyShared policy must not be empty.",
    )
    assert refused(world, sticky(1, (5, 4))) == (ErrorCode.CONSUMER_ASSIGN, "Fixed hash range start > end")
    world.join(sticky(1, (10, 20), (40, 50)))
    for ranges in [(0, 10)], [(20, 30)], [(12, 13)], [(0, 65535)], [(0, 5), (45, 60)], [(50, 50)]:
        assert refused(world, sticky(2, *ranges)) == (ErrorCode.CONSUMER_ASSIGN, "Range conflict with consumer c1")
    assert refused(world, sticky(2, (0, 5), (5, 6)))[0] == ErrorCode.CONSUMER_ASSIGN
    world.join(sticky(2, (0, 9), (21, 39), (51, 65535)))
    world.leave(1)
    world.join(sticky(3, (10, 10)))


def test_policies_of_key_shared_do_not_mix() -> None:
    world = World([])
    world.join(sticky(1, (0, 9)))
    code, text = refused(world, Joining(2, KEY_SHARED))
    assert code == ErrorCode.CONSUMER_BUSY
    assert text == (
        "Subscription is of different type. Active subscription key_shared mode of 'STICKY' is different than the"
        " connecting consumer's key_shared mode 'AUTO_SPLIT'."
    )
    _, text = refused(world, sticky(2, (10, 19), out_of_order=True))
    assert text.endswith("does not allow out of order delivery while the connecting consumer allows it.")
    world.leave(1)
    world.join(sticky(2, (10, 19), out_of_order=True))
    _, text = refused(world, sticky(1, (0, 9)))
    assert text.endswith("allows out of order delivery while the connecting consumer does not allow it.")


def test_only_the_last_consumer_may_unsubscribe() -> None:
    for kind in SHARED, FAILOVER, KEY_SHARED:
        world = World([])
        world.join(Joining(1, kind, "a"))
        world.dispatcher.check_unsubscribe(1)
        world.join(Joining(2, kind, "b"))
        with pytest.raises(RefusedError, match="Unconnected or shared consumer attempting to unsubscribe") as error:
            world.dispatcher.check_unsubscribe(1)
        assert error.value.code == ErrorCode.METADATA
        world.leave(2)
        world.dispatcher.check_unsubscribe(1)
        with pytest.raises(RefusedError, match="Subscriber not found"):
            world.dispatcher.check_unsubscribe(2)


def test_a_seek_closes_all_and_begins_anew() -> None:
    for kind in SHARED, FAILOVER, KEY_SHARED:
        world = World(entries(9))
        for key in 1, 2:
            world.join(Joining(key, kind, f"c{key}"))
            world.flow(key, 3)
        world.acknowledge(*[(place, 0) for place in [(0, 0), (0, 1), (2, 0)]])
        world.seek(1)
        assert world.closed == [1, 2]
        assert list(world.dispatcher.consumers) == []
        world.deliveries.clear()
        world.join(Joining(3, EXCLUSIVE))
        world.flow(3, 100)
        assert world.got(3) == [each.place for each in entries(9)[1:]]


def test_events_of_nobody_are_ignored_but_for_acknowledgements() -> None:
    world = World(entries(3))
    world.dispatcher.flow(7, 10)
    world.dispatcher.leave(7)
    world.dispatcher.redeliver(7)
    world.dispatcher.arrived(99, None)
    world.dispatcher.arrived_again(99, [])
    world.dispatcher.failed(99)
    world.dispatcher.tick(5)
    world.dispatcher.more()
    assert world.dispatcher.decisions() == []
    assert world.dispatcher.wake_at_ms is None
    world.acknowledge(((0, 0), 0))
    world.join(Joining(1, EXCLUSIVE))
    world.flow(1, 10)
    assert world.got(1) == [(0, 1), (0, 2)]


@pytest.mark.parametrize("kind", SubscriptionType)
def test_the_end_is_told_once_to_each_that_asks_for_messages(kind: SubscriptionType) -> None:
    world = World(entries(1), LIMITS)
    world.join(Joining(1, kind, "a"))
    world.flow(1, 5)
    world.acknowledge(((0, 0), 0))
    assert world.ended == []
    for _ in range(2):
        world.dispatcher.all_acknowledged()
    world.carry_out()
    assert world.ended == [1]
    world.seek(0)
    world.join(Joining(3, kind))
    world.flow(3, 5)
    assert 3 not in world.ended


@pytest.mark.parametrize("kind", SubscriptionType)
def test_whoever_is_there_again_hears_of_the_end_as_late_as_from_brokers(kind: SubscriptionType) -> None:
    """Clients that do not know it leave when they hear it: they would come back at once, for ever."""
    world = World([], LIMITS)
    world.join(Joining(1, kind, "a"))
    world.flow(1, 5)
    world.dispatcher.all_acknowledged()
    world.carry_out()
    world.leave(1)
    world.join(Joining(2, kind, "a"))
    world.tick(END_AGAIN_MS)
    assert world.ended == [1]  # it has not asked for messages
    world.flow(2, 5)
    assert world.ended == [1, 2]
    world.leave(2)
    world.join(Joining(3, kind, "a"))
    world.flow(3, 5)
    assert world.ended == [1, 2]
    assert world.dispatcher.wake_at_ms == 2 * END_AGAIN_MS
    world.tick(2 * END_AGAIN_MS)
    assert world.ended == [1, 2, 3]
    assert world.dispatcher.wake_at_ms is None
