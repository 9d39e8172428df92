"""A subscription goes in two phases, by the broker's own evidence at both looks, and comes back as it was."""

from __future__ import annotations

from contextlib import suppress

import pytest

from offloader.errors import (
    BrokerUnavailableError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    VersionConflictError,
)
from offloader.lifecycle.deletion import subscription_side
from offloader.lifecycle.deletion.machine import UnreferencedLedger, undoing
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState
from offloader.lifecycle.deletion.undo import drop, undo
from offloader.model import AcknowledgedRange
from offloader.state.subscription import CursorState
from tests.fakes.cluster_subscriptions import HeldCursor
from tests.times import HOUR_MS

from .removing import LEDGERS, SUB, TIMING, TOPIC, RemovalWorld

LONGEST_CALL = 60.0


@pytest.fixture
def world():
    return RemovalWorld()


def removed(world):
    world.mark()
    world.pass_time()
    world.go_on()
    return world


def test_it_is_marked_then_removed_and_brought_back_as_it_was(world):
    before = world.facts()
    assert world.mark().state is DeletionState.MARKED
    assert world.facts() == before, "the first phase changes nothing"
    assert world.go_on().state is DeletionState.MARKED, "not before its time"
    world.pass_time()
    assert world.go_on().state is DeletionState.DELETED
    assert world.facts() is None
    assert world.undo().state is DeletionState.UNDONE
    assert world.facts() == before


def test_a_mark_is_taken_back_for_nothing(world):
    before = world.facts()
    world.mark()
    assert world.undo().state is DeletionState.UNDONE
    world.pass_time()
    assert world.go_on().state is DeletionState.UNDONE
    assert world.facts() == before


def connect(world):
    world.topic.cursors[SUB].consumers = 1


def connect_and_leave(world):
    world.topic.cursors[SUB].active_ms = world.now


def acknowledge_one(world):
    world.brokers.acknowledge_as_a_client(TOPIC, SUB, (1, 5))


def acknowledge_a_part(world):
    world.topic.cursors[SUB].batches[(2, 7)] = (0x380,)
    world.brokers.flush()


def move_back(world):
    world.brokers.move(TOPIC, SUB, (-1, -1))


def make_anew(world):
    del world.topic.cursors[SUB]
    world.topic.cursors[SUB] = HeldCursor((3, 9))
    world.brokers.flush()


def make_the_topic_anew(world):
    world.pass_time(1)
    world.make()


@pytest.mark.parametrize(
    "use",
    [connect, connect_and_leave, acknowledge_one, acknowledge_a_part, move_back, make_anew, make_the_topic_anew],
)
def test_whatever_shows_that_it_is_used_or_another_one_keeps_it(world, use):
    world.mark()
    use(world)
    there = world.facts()
    world.pass_time()
    record = world.go_on()
    assert record.state is DeletionState.KEPT
    assert record.reason
    assert world.facts() == there
    assert world.brokers.faults.count("delete") == 0


def test_an_old_last_activity_in_the_node_proves_nothing(world):
    """It is in use, although its node says that nobody was there for years."""
    connect(world)
    with pytest.raises(FatalError, match="1 of its consumers are connected"):
        world.mark()


def test_a_consumer_that_connects_between_look_and_deletion_keeps_it(world):
    world.mark()
    world.pass_time()
    world.brokers.before_delete = lambda: connect(world)
    record = world.go_on()
    assert (record.state, world.facts() is None) == (DeletionState.KEPT, False)
    assert "a consumer has connected" in record.reason


def test_a_node_may_say_later_of_a_use_before_the_mark_and_not_of_one_since(world):
    """A node is written when its topic is unloaded; a broker that loads it anew remembers no use."""
    cursor = world.topic.cursors[SUB]
    marked_at = world.now
    world.mark()
    cursor.stored_active_ms = marked_at - HOUR_MS
    world.brokers.flush()
    world.pass_time()
    assert world.go_on().state is DeletionState.DELETED
    world.undo()
    world.mark()
    world.topic.cursors[SUB].stored_active_ms = world.now + 1
    world.brokers.flush()
    world.pass_time()
    assert world.go_on().state is DeletionState.KEPT


@pytest.mark.parametrize("name", ["__offloader", "__compaction", "pulsar.repl.west", "pulsar.dedup"])
def test_ours_and_pulsars_own_are_never_removed(world, name):
    world.topic.cursors[name] = HeldCursor((1, 1))
    world.brokers.flush()
    with pytest.raises(FatalError, match="own"):
        world.mark(name)


def test_what_is_not_understood_is_not_removed(world):
    path = f"{world.tree.topic_path(TOPIC)}/{SUB.replace('/', '%2F').replace(' ', '+')}"
    node = world.nodes.get(path)
    world.nodes.put(path, node.value + b"\x9a\x06\x03new")
    with pytest.raises(FatalError, match="cannot be saved whole: the node has the field 99"):
        world.mark()
    world.nodes.put(path, node.value)
    world.mark()
    world.nodes.put(path, node.value + b"\x9a\x06\x03new")
    world.pass_time()
    assert world.go_on().state is DeletionState.KEPT
    assert world.facts() is not None


def settle(world, act, done):
    """Whoever runs it comes again, as often as there are tries, later each time."""
    for _ in range(TIMING.max_tries + 2):
        with suppress(OffloadError):
            act()
        record = world.record()
        if record is not None and record.state in done:
            return record
        world.pass_time(TIMING.longest_wait)
    raise AssertionError(f"it does not settle: {world.record()}")


ENDS = (DeletionState.DELETED, DeletionState.KEPT)


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("cut", range(1, 8))
def test_a_crash_at_any_write_of_ours_loses_nothing(world, cut, effect):
    before = world.facts()
    world.store.cut, world.store.effect = cut, effect

    def act():
        if world.record() is None:
            world.mark()
        world.go_on()

    record = settle(world, act, ENDS)
    assert record.state is DeletionState.DELETED
    assert world.facts() is None
    settle(world, world.undo, (DeletionState.UNDONE,))
    assert world.facts() == before


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("call", ["look", "delete", "create", "move", "acknowledge"])
@pytest.mark.parametrize("after", [0, 1])
def test_an_answer_of_a_broker_that_is_lost_loses_nothing(world, call, after, effect):
    before = world.facts()
    lost = (lambda: OutcomeUnknownError("lost")) if call != "look" else (lambda: BrokerUnavailableError("lost"))
    world.brokers.faults.add(call, lost, after=after, effect=effect)

    def act():
        if world.record() is None:
            world.mark()
        world.go_on()

    assert settle(world, act, ENDS).state is DeletionState.DELETED
    assert world.facts() is None
    settle(world, world.undo, (DeletionState.UNDONE,))
    assert world.facts() == before


def test_where_the_answer_is_lost_and_somebody_subscribes_anew_theirs_stays(world):
    world.mark()
    world.pass_time()
    world.brokers.faults.add("delete", lambda: OutcomeUnknownError("lost"), effect=True)
    assert world.go_on().state is DeletionState.DELETING
    make_anew_at_the_end(world)
    world.pass_time()
    assert world.go_on().state is DeletionState.KEPT
    assert world.facts()[0] == (3, 9)


def make_anew_at_the_end(world):
    world.topic.cursors[SUB] = HeldCursor((3, 9))
    world.brokers.flush()


def test_a_broker_that_is_away_costs_tries_and_then_an_operators_look(world):
    world.mark()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=1000)
    record = settle(world, lambda: (world.pass_time(), world.go_on()), (DeletionState.GIVEN_UP,))
    assert record.reason == "away"
    assert world.facts() is not None
    world.brokers.faults.clear()
    assert world.undo().state is DeletionState.UNDONE


def test_an_undo_does_not_touch_a_subscription_that_somebody_made(world):
    removed(world)
    make_anew_at_the_end(world)
    with pytest.raises(FatalError, match="again, which is not the one that was deleted"):
        world.undo()
    assert world.facts()[0] == (3, 9)


def test_an_undo_waits_while_the_deletion_may_still_be_on_its_way(world):
    before = world.facts()
    world.mark()
    world.pass_time()
    world.brokers.faults.add("delete", lambda: OutcomeUnknownError("lost"))
    assert world.go_on().in_doubt
    with pytest.raises(FatalError, match="its deletion may be on its way; undo it after"):
        world.undo()
    world.pass_time(TIMING.longest_wait)
    assert world.undo().state is DeletionState.UNDONE
    assert world.facts() == before


def test_after_a_try_of_unknown_outcome_a_later_refusal_proves_nothing(world):
    """The first request may be done late: what is gone then is gone by us, and comes back."""
    before = world.facts()
    world.mark()
    world.pass_time()
    world.brokers.faults.add("delete", lambda: OutcomeUnknownError("lost"))
    world.go_on()
    world.brokers.faults.add("delete", lambda: BrokerUnavailableError("away"))
    world.pass_time(TIMING.longest_wait)
    assert world.go_on().in_doubt
    del world.topic.cursors[SUB]
    world.brokers.flush()
    assert world.undo().state is DeletionState.UNDONE
    assert world.facts() == before


def test_what_is_undone_is_not_undone_again(world):
    removed(world)
    world.undo()
    with pytest.raises(FatalError, match="there is nothing to undo"):
        world.undo()


def test_an_undo_into_another_topic_of_the_name_is_refused(world):
    removed(world)
    make_the_topic_anew(world)
    del world.topic.cursors[SUB]
    world.brokers.flush()
    with pytest.raises(FatalError, match="deleted and made again"):
        world.undo()
    del world.brokers.topics[TOPIC]
    world.nodes.delete(f"{world.tree.topic_path(TOPIC)}/live")
    world.nodes.delete(world.tree.topic_path(TOPIC))
    with pytest.raises(FatalError, match="is gone"):
        world.undo()


def test_an_undo_says_what_was_trimmed_meanwhile(world):
    removed(world)
    del world.topic.ledgers[1]
    world.brokers.flush()
    plan = world.side
    assert "ledgers before 2 are gone, and it stood at 1:4" in plan.says(world.record())[0]
    record = world.undo()
    assert record.state is DeletionState.UNDONE
    assert "cannot be delivered any more" in record.reason
    mark, ranges, batches, _ = world.facts()
    assert (mark, ranges, batches) == ((2, -1), (AcknowledgedRange((2, -1), (2, 3)),), {(2, 7): (0x3E0,)})


def test_an_undo_that_the_broker_drops_silently_is_noticed(world):
    removed(world)
    real, world.brokers.acknowledge = world.brokers.acknowledge, lambda *_: None
    with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
        world.undo()
    assert world.record().state is DeletionState.UNDOING
    world.brokers.acknowledge = real
    assert world.undo().state is DeletionState.UNDONE


def test_what_is_dropped_in_the_open_ledger_is_noticed_too(world):
    world.topic.ledgers[4] = 7
    world.topic.cursors[SUB].ranges = (AcknowledgedRange((4, 2), (4, 5)),)
    world.brokers.flush()
    removed(world)
    real, world.brokers.acknowledge = world.brokers.acknowledge, lambda *_: None
    with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
        world.undo()
    world.brokers.acknowledge = real
    assert world.undo().state is DeletionState.UNDONE
    assert world.facts()[1] == (AcknowledgedRange((4, 2), (4, 5)),)


def test_of_undo_and_removal_one_is_first_and_the_other_is_told(world):
    world.mark()
    world.pass_time()
    seen = world.stored()
    world.undo()
    world.service.go_on(seen)
    assert world.record().state is DeletionState.UNDONE
    assert world.facts() is not None


def test_a_second_deletion_begins_anew_and_an_old_record_is_forgotten(world):
    removed(world)
    world.undo()
    world.mark()
    world.pass_time()
    assert world.go_on().state is DeletionState.DELETED
    assert [one.record for one in world.queue.records()] == [world.record()]
    world.queue.remove(world.stored())
    assert world.record() is None
    assert list(world.store.list("_deletion/")) == []


def test_without_the_looks_it_would_be_lost_in_use(world, monkeypatch):
    """The broken variant: the tests above would see it."""
    monkeypatch.setattr(subscription_side, "second_look", unused)
    world.mark()
    acknowledge_one(world)
    world.pass_time()
    world.go_on()
    assert world.facts() is None


def unused(record, _seen, now):
    return UnreferencedLedger(record.node, record.evidence, now, now, saved=record.subscription)


def test_a_state_that_says_nothing_is_never_complete():
    assert not CursorState(None).complete
    assert LEDGERS


def test_a_deletion_that_was_paused_until_an_undo_was_possible_is_not_made(world):
    """Whoever undoes waits until a try must have ended: a process that wakes later than that makes none."""
    world.mark()
    world.pass_time()
    look, before = world.side.brokers.look, world.facts()

    def slow(topic, name):
        found = look(topic, name)
        if world.record().state is DeletionState.DELETING:
            world.brokers.look = look
            world.now = world.record().next_at + int(1000 * LONGEST_CALL)
            assert world.undo().state is DeletionState.UNDONE
        return found

    world.brokers.look = slow
    with suppress(OffloadError):
        world.go_on()
    assert (world.record().state, world.facts()) == (DeletionState.UNDONE, before)


def test_of_two_undos_the_later_one_moves_nothing_that_is_used_by_now(world):
    removed(world)
    look, name = world.brokers.look, world.record().name

    def overtaken(topic, subscription):
        found = look(topic, subscription)
        world.brokers.look = look
        assert found is None
        world.undo()
        world.brokers.move(TOPIC, SUB, (3, 5))
        return found

    world.brokers.look = overtaken
    with pytest.raises(VersionConflictError):
        undo(world.queue, name, lambda _: world.side, lambda: world.now)
    assert (world.record().state, world.facts()[0]) == (DeletionState.UNDONE, (3, 5))


def given_up_in_doubt(world):
    """No try has arrived, and nobody knows that."""
    world.mark()
    world.pass_time()
    delete, look = world.brokers.delete, world.brokers.look
    world.brokers.delete = raising(OutcomeUnknownError("lost"))
    world.go_on()
    world.brokers.delete, world.brokers.look = delete, raising(BrokerUnavailableError("away"))
    while world.record().state is not DeletionState.GIVEN_UP:
        world.pass_time(25 * HOUR_MS)
        world.go_on()
    world.brokers.look = look
    world.pass_time(25 * HOUR_MS)
    assert world.record().in_doubt


def test_what_was_given_up_and_is_used_again_can_be_dropped(world):
    given_up_in_doubt(world)
    world.brokers.acknowledge_as_a_client(TOPIC, SUB, (1, 5))
    used = world.facts()
    with pytest.raises(FatalError, match="there is a subscription"):
        world.undo()
    assert dropping(world).answer is DeletionAnswer.DROPPED
    assert world.facts() == used


def test_an_undo_that_cannot_be_finished_can_be_dropped(world):
    removed(world)
    world.queue.change(world.record().name, undoing)
    assert dropping(world).answer is DeletionAnswer.DROPPED
    assert world.facts() is None


def dropping(world):
    return world.queue.change(world.record().name, lambda record: drop(record, lambda _: world.side, world.now)).record


def raising(error):
    def call(*_):
        raise error

    return call
