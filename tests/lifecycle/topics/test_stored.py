"""Subscriptions as nodes and bookies have them: whatever is away, gone or switched meanwhile, nothing is guessed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import Fragment, LedgerState, StoredEntry
from offloader.errors import DamagedRecordError, TopicNotFoundError
from offloader.lifecycle.topics.cursors.held import HeldLedger
from offloader.model import TopicName
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_entry, encode_cursor_node
from tests.fakes.ledger_metadata import Compression

from .world import TOPIC, StoredWorld

NODE = CursorState((1, 0), cursor_ledger=90, last_active_ms=5)


@pytest.fixture
def world():
    world = StoredWorld()
    world.topic((1, 10, 1000), (2, 0, 0))
    world.create(2, 3, 3, 2)
    return world


def read(world, name="s"):
    return world.stored().read(TOPIC).cursors[name]


def test_the_last_entry_of_an_open_cursor_ledger_counts_and_nothing_is_fenced(world):
    world.cursor("s", NODE)
    world.cursor_ledger(90, CursorState((1, 2)), CursorState((1, 5)))
    found = read(world)
    assert (found.state.mark_delete, found.complete, found.state.last_active_ms) == ((1, 5), True, 5)
    assert found.entry == encode_cursor_entry(CursorState((1, 5)))
    assert found.node == encode_cursor_node(NODE)
    assert not any(bookie.memory.ledgers[90].fenced for bookie in world.bookies.values())


def test_the_newest_entry_that_any_bookie_has_counts(world):
    world.cursor("s", NODE)
    world.cursor_ledger(90, CursorState((1, 2)))
    metadata = world.metadata.read(90).metadata
    stored = encode(StoredEntry(90, 1, 0, 0, encode_cursor_entry(CursorState((1, 7)))), digest_for(metadata))
    world.bookies["b2:3181"].memory.add(90, 1, stored, master_key(b""))
    assert read(world).state.mark_delete == (1, 7)


def test_of_three_bookies_one_may_be_away_and_not_two(world):
    world.cursor("s", NODE)
    world.cursor_ledger(90, CursorState((1, 2)))
    world.bookies["b1:3181"].up = False
    assert read(world).complete
    world.bookies["b2:3181"].up = False
    found = read(world)
    assert not found.complete
    assert "its ledger 90 cannot be read" in found.problem
    assert found.state.mark_delete == (1, 0), "the node's, and it says so"


def test_a_bookie_that_hangs_is_not_waited_for_again_with_each_cursor(world):
    for number in range(50):
        world.cursor(f"s{number}", NODE)
    world.cursor_ledger(90, CursorState((1, 2)))
    stored = world.stored()
    asked = []
    real = stored.bookies.read_lac

    def read_lac(bookie, ledger):
        asked.append(bookie)
        return Future() if bookie == "b1:3181" else real(bookie, ledger)

    stored.bookies.read_lac = read_lac
    found = stored.read(TOPIC).cursors
    assert all(one.complete for one in found.values())
    assert asked.count("b1:3181") == 1
    stored.silent["b1:3181"] = 0.0
    stored.read(TOPIC)
    assert asked.count("b1:3181") == 2


def test_a_closed_cursor_ledger_is_read_at_its_end(world):
    world.cursor("s", NODE)
    world.cursor_ledger(90, CursorState((1, 2)), CursorState((1, 5)))
    metadata = world.metadata.read(90).metadata
    world.metadata.cluster.put_ledger(90, replace(metadata, state=LedgerState.CLOSED, last_entry=0, length=9))
    found = read(world)
    assert found.state.mark_delete == (1, 2), "what is behind its end was never confirmed"
    world.metadata.cluster.put_ledger(90, replace(metadata, state=LedgerState.CLOSED, last_entry=-1, length=0))
    found = read(world)
    assert (found.state.mark_delete, found.entry) == ((1, 0), None)


def test_an_ensemble_that_has_no_entry_yet_leads_to_the_one_before(world):
    world.cursor("s", NODE)
    world.cursor_ledger(90, CursorState((1, 2)), CursorState((1, 5)))
    metadata = world.metadata.read(90).metadata
    world.metadata.cluster.put_ledger(
        90, replace(metadata, fragments=(*metadata.fragments, Fragment(2, ("b9:3181",) * 1)))
    )
    world.bookies["b9:3181"] = type(world.bookies["b1:3181"])()
    assert read(world).state.mark_delete == (1, 5)


def test_a_cursor_that_switches_its_ledger_while_we_look_is_read_again(world):
    world.cursor("s", NODE)
    world.cursor_ledger(91, CursorState((1, 8)))
    stored = world.stored()
    real = stored.tree.read

    def switching(ledger):
        if ledger == 90:
            world.cursor("s", replace(NODE, cursor_ledger=91))
        return real(ledger)

    stored.tree.read = switching
    assert stored.read(TOPIC).cursors["s"].state.mark_delete == (1, 8)


def test_a_cursor_ledger_that_is_gone_is_told(world):
    world.cursor("s", NODE)
    found = read(world)
    assert found.problem == "its ledger 90 is gone from BookKeeper"
    assert not found.complete


def test_a_damaged_node_or_entry_is_told_and_its_bytes_stay(world):
    world.metadata.cluster.put_cursor(TOPIC, "s", b"\x08")
    found = read(world)
    assert (found.state, found.node, found.complete) == (None, b"\x08", False)
    world.cursor("t", NODE)
    world.cursor_ledger(90, b"\x08")
    found = read(world, "t")
    assert (found.entry, found.complete) == (b"\x08", False)


@pytest.mark.parametrize("packed", [Compression.LZ4, Compression.ZSTD])
def test_compressed_nodes_and_names_that_are_encoded(world, packed):
    state = CursorState((1, 3))
    world.metadata.cluster.put_cursor(TOPIC, "team/a b+ü*~", encode_cursor_node(state), packed)
    assert read(world, "team/a b+ü*~").state == state
    assert world.stored().cursor(TOPIC, "team/a b+ü*~").complete
    assert world.stored().cursor(TOPIC, "none") is None


def test_ledgers_are_counted_by_the_list_else_by_bookkeeper(world):
    assert world.stored().read(TOPIC).ledgers == (HeldLedger(1, 10, 1000), HeldLedger(2, None, None))
    metadata = world.metadata.read(2).metadata
    world.metadata.cluster.put_ledger(2, replace(metadata, state=LedgerState.CLOSED, last_entry=4, length=77))
    assert world.stored().read(TOPIC).ledgers[1] == HeldLedger(2, 5, 77)
    world.metadata.cluster.delete_ledger(2)
    assert world.stored().read(TOPIC).ledgers[1] == HeldLedger(2, None, None)


def test_topics_are_found_by_their_nodes(world):
    for name in ("a/x/one", "a/x/two two", "b/y/three"):
        world.topic((1, 1, 1), topic=TopicName.parse(f"persistent://{name}"))
    stored = world.stored().tree_of_topics
    assert stored.namespaces() == ["a/x", "b/y", "public/default"]
    assert [topic.name for topic in stored.topics("a/x")] == ["one", "two two"]
    assert stored.topics("a/none") == []


def test_a_topic_that_is_not_there_or_damaged(world):
    with pytest.raises(TopicNotFoundError):
        world.stored().read(TopicName.parse("public/default/none"))
    with pytest.raises(TopicNotFoundError):
        world.stored().read(TopicName.parse("public/default/.."))
    world.metadata.nodes.put(world.metadata.topic_path(TOPIC), b"\x0a")
    with pytest.raises(DamagedRecordError):
        world.stored().read(TOPIC)
