"""A subscription goes in two phases, by the broker's own evidence at both looks, and comes back as it was."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from offloader.bookkeeper.cursor_state import CursorState
from offloader.errors import (
    BrokerUnavailableError,
    FatalError,
    OffloadError,
    OutcomeUnknownError,
    VersionConflictError,
)
from offloader.lifecycle.deletion.timing import HOUR_MS
from offloader.lifecycle.topics.cursors import service
from offloader.lifecycle.topics.cursors.machine import RemovalRuling
from offloader.lifecycle.topics.cursors.records import RemovalState
from offloader.metadata.layout import cursor_records_folder
from offloader.model import AcknowledgedRange
from offloader.testing.cluster_subscriptions import HeldCursor

from .removing import LEDGERS, SUB, TIMING, TOPIC, RemovalWorld


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
    assert world.mark().state is RemovalState.MARKED
    assert world.facts() == before, "the first phase changes nothing"
    assert world.go_on().state is RemovalState.MARKED, "not before its time"
    world.pass_time()
    assert world.go_on().state is RemovalState.REMOVED
    assert world.facts() is None
    assert world.undo().state is RemovalState.UNDONE
    assert world.facts() == before


def test_a_mark_is_taken_back_for_nothing(world):
    before = world.facts()
    world.mark()
    assert world.undo().state is RemovalState.UNDONE
    world.pass_time()
    assert world.go_on().state is RemovalState.UNDONE
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
    assert record.state is RemovalState.KEPT
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
    assert (record.state, world.facts() is None) == (RemovalState.KEPT, False)
    assert "a consumer has connected" in record.reason


def test_a_node_may_say_later_of_a_use_before_the_mark_and_not_of_one_since(world):
    """A node is written when its topic is unloaded; a broker that loads it anew remembers no use."""
    cursor = world.topic.cursors[SUB]
    marked_at = world.now
    world.mark()
    cursor.stored_active_ms = marked_at - HOUR_MS
    world.brokers.flush()
    world.pass_time()
    assert world.go_on().state is RemovalState.REMOVED
    world.undo()
    world.mark()
    world.topic.cursors[SUB].stored_active_ms = world.now + 1
    world.brokers.flush()
    world.pass_time()
    assert world.go_on().state is RemovalState.KEPT


@pytest.mark.parametrize("name", ["__offloader", "__compaction", "pulsar.repl.west", "pulsar.dedup"])
def test_ours_and_pulsars_own_are_never_removed(world, name):
    world.topic.cursors[name] = HeldCursor((1, 1))
    world.brokers.flush()
    with pytest.raises(FatalError, match="own"):
        world.remover.mark(TOPIC, name, "a test")


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
    assert world.go_on().state is RemovalState.KEPT
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


ENDS = (RemovalState.REMOVED, RemovalState.KEPT)


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
    assert record.state is RemovalState.REMOVED
    assert world.facts() is None
    settle(world, world.undo, (RemovalState.UNDONE,))
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

    assert settle(world, act, ENDS).state is RemovalState.REMOVED
    assert world.facts() is None
    settle(world, world.undo, (RemovalState.UNDONE,))
    assert world.facts() == before


def test_where_the_answer_is_lost_and_somebody_subscribes_anew_theirs_stays(world):
    world.mark()
    world.pass_time()
    world.brokers.faults.add("delete", lambda: OutcomeUnknownError("lost"), effect=True)
    assert world.go_on().state is RemovalState.REMOVING
    make_anew_at_the_end(world)
    world.pass_time()
    assert world.go_on().state is RemovalState.KEPT
    assert world.facts()[0] == (3, 9)


def make_anew_at_the_end(world):
    world.topic.cursors[SUB] = HeldCursor((3, 9))
    world.brokers.flush()


def test_a_broker_that_is_away_costs_tries_and_then_an_operators_look(world):
    world.mark()
    world.brokers.faults.add("look", lambda: BrokerUnavailableError("away"), times=1000)
    record = settle(world, lambda: (world.pass_time(), world.go_on()), (RemovalState.GIVEN_UP,))
    assert record.reason == "away"
    assert world.facts() is not None
    world.brokers.faults.clear()
    assert world.undo().state is RemovalState.UNDONE


def test_an_undo_does_not_touch_a_subscription_that_somebody_made(world):
    removed(world)
    make_anew_at_the_end(world)
    with pytest.raises(FatalError, match="again, which is not the one that was removed"):
        world.undo()
    assert world.facts()[0] == (3, 9)


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
    plan = world.remover.undo_plan(world.record())
    assert "ledgers before 2 are gone, and it stood at 1:4" in plan.says[0]
    record = world.undo()
    assert record.state is RemovalState.UNDONE
    assert "cannot be delivered any more" in record.reason
    mark, ranges, batches, _ = world.facts()
    assert (mark, ranges, batches) == ((2, -1), (AcknowledgedRange((2, -1), (2, 3)),), {(2, 7): (0x3E0,)})


def test_an_undo_that_the_broker_drops_silently_is_noticed(world):
    removed(world)
    real, world.brokers.acknowledge = world.brokers.acknowledge, lambda *_: None
    with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
        world.undo()
    assert world.record().state is RemovalState.UNDOING
    world.brokers.acknowledge = real
    assert world.undo().state is RemovalState.UNDONE


def test_what_is_dropped_in_the_open_ledger_is_noticed_too(world):
    world.topic.ledgers[4] = 7
    world.topic.cursors[SUB].ranges = (AcknowledgedRange((4, 2), (4, 5)),)
    world.brokers.flush()
    removed(world)
    real, world.brokers.acknowledge = world.brokers.acknowledge, lambda *_: None
    with pytest.raises(OutcomeUnknownError, match="does not stand where it shall"):
        world.undo()
    world.brokers.acknowledge = real
    assert world.undo().state is RemovalState.UNDONE
    assert world.facts()[1] == (AcknowledgedRange((4, 2), (4, 5)),)


def test_of_undo_and_removal_one_is_first_and_the_other_is_told(world):
    world.mark()
    world.pass_time()
    seen = world.removals.read((TOPIC, SUB))
    world.undo()
    with pytest.raises(VersionConflictError):
        world.remover.go_on(seen)
    assert world.facts() is not None


def test_a_second_removal_begins_anew_and_an_old_record_is_forgotten(world):
    removed(world)
    world.undo()
    world.mark()
    world.pass_time()
    assert world.go_on().state is RemovalState.REMOVED
    stored = world.removals.read((TOPIC, SUB))
    assert [one.record for one in world.removals.records()] == [stored.record]
    world.removals.remove(stored)
    assert world.record() is None
    assert list(world.store.list("_deletion/")) == []


def test_a_record_in_anothers_place_is_told_and_stays(world):
    world.mark()
    key = f"{cursor_records_folder('main', TOPIC, 'other')}{0:020d}"
    source = f"{cursor_records_folder('main', TOPIC, SUB)}{0:020d}"
    world.store.put(key, world.store.read(source, 0, 10**6)[0])
    told = {one.name[1]: one.why for one in world.removals.records() if hasattr(one, "why")}
    assert set(told) == {"other"}


def test_without_the_second_look_it_would_be_lost_in_use(world, monkeypatch):
    """The broken variant: the tests above would see it."""
    monkeypatch.setattr(
        service,
        "rule",
        lambda record, *_: RemovalRuling(replace(record, state=RemovalState.REMOVING), remove=True),
    )
    world.mark()
    acknowledge_one(world)
    world.pass_time()
    world.go_on()
    assert world.facts() is None


def test_a_state_that_says_nothing_is_never_complete():
    assert not CursorState(None).complete
    assert LEDGERS
