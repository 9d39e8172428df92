"""A durable subscription's way to the brokers: killed before or after any step, and repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import OutcomeUnknownError, OvertakenError
from offloader.gateway.live import Archived, LiveTopic
from offloader.gateway.topics.moving import BEGUN, DONE, NUMBER, HandOverState, Outcome, SubscriptionMove
from offloader.gateway.values import RefusedError
from offloader.metadata.state import CatalogHead
from offloader.model import AcknowledgedRange, LedgerList, LedgerSpan, Position, TopicName
from offloader.ports.admin import TopicInfo
from offloader.pulsar.cursor_standing import Acknowledged, is_same
from offloader.storage.memory import MemoryStore
from offloader.testing.cluster_subscriptions import MemorySubscriptions
from offloader.testing.memory_nodes import MemoryNodes
from tests.archive.support import TOPIC, Archive
from tests.format.support import Stored

FOLDER = "s/"
ARCHIVED = Archived(((0, 10, 99), (0, 11, 49)), (11, 49))
ACKNOWLEDGED = Acknowledged((10, 4), (AcknowledgedRange((10, 6), (10, 8)), AcknowledgedRange((11, 19), (11, 29))))
BATCHES = {(11, 40): (0b0110,)}
STEPS = ("look", "create", "acknowledge", "put")


class KilledError(Exception):
    """The process ends here."""


class Killing:
    """Around something whose calls have effects: at one of them, counted over all, the process ends."""

    def __init__(self, around: Any, clock: Killer) -> None:
        self._around, self._clock = around, clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._around, name)
        return self._clock.at(found) if name in STEPS else found


class Killer:
    def __init__(self, number: int, *, after: bool) -> None:
        self._left, self._after = number, after
        self.has_killed = False

    def at(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return call(*args, **named)
            self.has_killed = True
            if self._after:
                call(*args, **named)
            raise KilledError

        return killing


class World:
    """An archive, brokers that have all of it, and a subscription of the gateway with holes."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.tokens = count()
        archive = Archive(MemoryStore())
        archive.claim(10, 0)
        archive.add([Stored(10, entry, b"x") for entry in range(100)])
        archive.closed(10, 99)
        archive.add([Stored(11, entry, b"x") for entry in range(50)])
        self.head = archive.catalog.head
        self.subscriptions: Any = MemorySubscriptions(MemoryNodes(), "/managed-ledgers", lambda: 1)
        self.at_brokers = self.subscriptions.make(TOPIC, {10: 100, 11: 60})
        self.created, self.spans = 1, (LedgerSpan(10, 99), LedgerSpan(11, None))
        cursor = self.opened()
        for key, first, last in (((0, 10), 0, 4), ((0, 10), 7, 8), ((0, 11), 20, 29)):
            cursor.acknowledge(key, first, last)
        cursor.acknowledge_part(Position(0, 11, 40), 4, 0b0110)
        cursor.acknowledge_up_to(Position(0, 10, 4))
        cursor.flush()

    def opened(self, store: Any = None) -> DurableCursor:
        first = FirstState(Position(0, 10, -1))
        return DurableCursor.open(store or self.store, FOLDER, lambda: first, lambda: f"t{next(self.tokens)}")

    def move(self, subscriptions: Any = None) -> SubscriptionMove:
        return SubscriptionMove(
            "s", LiveTopic(TOPIC, Said(self, subscriptions or self.subscriptions), self._head), ARCHIVED
        )

    def _head(self) -> CatalogHead:
        return self.head

    @property
    def is_there(self) -> bool:
        """Exactly what the gateway had is acknowledged at the brokers."""
        found = self.at_brokers.cursors.get("s")
        if found is None or found.batches != BATCHES:
            return False
        return is_same(Acknowledged(found.mark, found.ranges), ACKNOWLEDGED, [(10, 100), (11, None)])


class Said:
    """`Brokers`."""

    def __init__(self, world: World, subscriptions: Any) -> None:
        self.subscriptions, self._world = subscriptions, world

    def info(self, topic: TopicName) -> TopicInfo:
        ledgers = LedgerList(self._world.spans)
        return TopicInfo(self._world.created, ledgers, {}, None, terminated=False, offloaded=frozenset())

    def owner(self, topic: TopicName) -> Any:
        raise NotImplementedError

    def last(self, topic: TopicName) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to end."""


def handed_over(world: World, number: int = 7) -> DurableCursor:
    cursor = world.opened()
    world.move().begin(cursor, number)
    assert world.move().go_on(cursor, 1_000) == (Outcome.THERE, "")
    return cursor


def test_its_whole_state_is_there_and_its_log_says_since_when() -> None:
    world = World()
    handed_over(world)
    assert world.is_there
    assert world.at_brokers.cursors["s"].properties == {NUMBER: "7"}
    state = HandOverState.of(world.opened().properties)
    assert state == HandOverState(7, 1_000)
    assert "at 1970-01-01T00:00:01+00:00" in state.sentence("s")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_gateway_that_is_killed_at_any_step_leaves_one_truth_and_the_next_one_goes_on(after) -> None:
    kills = 0
    for number in count(1):
        world, killer = World(), Killer(number, after=after)
        try:
            cursor = world.opened(Killing(world.store, killer))
            move = world.move(Killing(world.subscriptions, killer))
            move.begin(cursor, 7)
            move.go_on(cursor, 1_000)
        except KilledError:
            kills += 1
        again = world.opened()  # by whoever comes next
        if HandOverState.of(again.properties) is None:  # it is served here: brokers have none of that name
            assert "s" not in world.at_brokers.cursors
            continue
        assert world.move().go_on(again, 2_000) == (Outcome.THERE, "")
        assert world.is_there
        if not killer.has_killed:
            break
    assert kills > 6


def test_a_gateway_that_wakes_late_takes_nothing_back() -> None:
    world = World()
    late = world.opened()
    world.move().begin(late, 7)
    subscriptions = world.subscriptions
    woken = world.move()
    world.move().go_on(world.opened(), 1_000)
    subscriptions.acknowledge_as_a_client(TOPIC, "s", (10, 50))
    with pytest.raises(OvertakenError):
        woken._back(late, "")
    bring_again = SubscriptionMove("s", woken.live, ARCHIVED)
    bring_again.go_on(world.opened(), 2_000)
    assert AcknowledgedRange((10, 49), (10, 50)) in world.at_brokers.cursors["s"].ranges


def test_what_a_broker_drops_without_a_word_is_noticed_and_it_is_not_locked(monkeypatch) -> None:
    world = World()
    cursor = world.opened()
    world.move().begin(cursor, 7)
    with monkeypatch.context() as patched:
        patched.setattr(world.subscriptions, "acknowledge", lambda *_: None)
        with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
            world.move().go_on(cursor, 1_000)
    assert dict(world.opened().properties).keys() == {BEGUN}
    assert world.move().go_on(world.opened(), 2_000) == (Outcome.THERE, "")
    assert world.is_there


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: setattr(world, "created", 2), "made anew"),
        (lambda world: setattr(world, "spans", (LedgerSpan(11, None),)), "do not have ledger 10"),
        (lambda world: world.subscriptions.create(TOPIC, "s", {}), "a subscription s of their own"),
        (lambda world: world.subscriptions.topics.clear(), "does not exist"),
    ],
    ids=["made anew", "trimmed", "another one", "deleted"],
)
def test_as_long_as_brokers_have_not_got_it_it_goes_back(change, why) -> None:
    world = World()
    cursor = world.opened()
    world.move().begin(cursor, 7)
    change(world)
    outcome, said = world.move().go_on(cursor, 1_000)
    assert outcome is Outcome.HERE
    assert why in said
    again = world.opened()
    assert HandOverState.of(again.properties) is None
    assert again.mark_delete == Position(0, 10, 4)  # with all that it had
    assert again.is_acknowledged(Position(0, 11, 29))


@pytest.mark.parametrize(
    "change", [lambda world: setattr(world, "created", 2), lambda w: w.subscriptions.topics.clear()]
)
def test_one_that_went_and_whose_topic_is_gone_is_refused(change) -> None:
    world = World()
    cursor = handed_over(world)
    change(world)
    with pytest.raises(RefusedError, match="was handed over to the brokers at 1970"):
        world.move().go_on(cursor, 2_000)
    assert DONE in dict(world.opened().properties)


def test_one_that_was_deleted_there_begins_anew() -> None:
    world = World()
    cursor = handed_over(world)
    world.subscriptions.delete(TOPIC, "s")
    outcome, said = world.move().go_on(cursor, 2_000)
    assert (outcome, "begins anew" in said) == (Outcome.HERE, True)
    assert world.opened().mark_delete == Position(0, 10, -1)
