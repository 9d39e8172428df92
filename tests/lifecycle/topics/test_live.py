"""Live subscriptions, from the broker's memory and from what is stored, whatever happens between two looks."""

from __future__ import annotations

import pytest

from offloader.cursors.copies import CursorSource, words_of
from offloader.errors import BrokerUnavailableError, DamagedRecordError, ProtocolError, TopicNotFoundError
from offloader.lifecycle.topics.cursors import live
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.model import AcknowledgedRange, TopicName
from offloader.state.names import encoded, managed_ledger_name
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_node
from tests.fakes.cluster_subscriptions import HeldCursor, MemorySubscriptions
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.fakes.topic_states import MemoryTopicStates

TOPIC = TopicName("public", "default", "t")


class World:
    """A topic with the subscription `job`: mark-delete 1:4, 1:7 to 1:8 and 2:0 to 2:3 acknowledged, a part of 2:7."""

    def __init__(self):
        metadata = MemoryMetadata(clock=lambda: 1.0)
        self.nodes, root = metadata.nodes, metadata.uri.managed_ledgers
        self.brokers = MemorySubscriptions(metadata.nodes, root, lambda: 1000)
        self.topic = self.brokers.make(TOPIC, {1: 10, 2: 10, 3: 10})
        self.path = f"{root}/{managed_ledger_name(TOPIC)}"
        ranges = (AcknowledgedRange((1, 6), (1, 8)), AcknowledgedRange((2, -1), (2, 3)))
        self.job = HeldCursor((1, 4), ranges, {(2, 7): (0x3E0,)}, {"owner": "joe"})
        self.topic.cursors["job"] = self.job
        self.brokers.flush()
        self.states = MemoryTopicStates(self.brokers)
        self.stored = StoredTopics(metadata, None, 0.1)

    def read(self, *, loaded=True, stored=True):
        reader = LiveCursors(self.states, (lambda: self.stored) if stored else None, SubscriptionNames)
        return reader.read(TOPIC, loaded=loaded).cursors

    def store(self, name, state):
        self.nodes.put(f"{self.path}/{encoded(name)}", encode_cursor_node(state))


@pytest.fixture
def world():
    return World()


def whole(cursor):
    return {(ledger, *run) for ledger, acks in cursor.acks().items() for run in acks.runs()}


def batches(cursor):
    return {
        (ledger, entry): words_of(left)
        for ledger, acks in cursor.acks().items()
        for entry, left in acks.batches.items()
    }


def test_a_loaded_topic_s_copy_has_all_that_memory_and_store_know(world):
    world.states.replicated.add("job")
    (job,) = world.read()
    assert (job.name, job.mark_delete, job.replicated) == ("job", (1, 4), True)
    assert whole(job) == {(1, 7, 8), (2, 0, 3)}
    assert batches(job) == {(2, 7): (0x3E0,)}
    assert job.subscription_properties == (("owner", "joe"),)
    assert job.sources == (CursorSource.BROKER, CursorSource.NODE)
    assert job.missing == ()


def test_the_broker_s_memory_is_newer_than_what_is_stored(world):
    world.job.ranges = (*world.job.ranges, AcknowledgedRange((2, 6), (2, 8)))
    (job,) = world.read()
    assert whole(job) == {(1, 7, 8), (2, 0, 3), (2, 7, 8)}
    assert batches(job) == {}


def test_a_batch_at_or_before_the_mark_delete_is_left_out(world):
    world.job.mark = (2, 7)
    (job,) = world.read()
    assert not job.pieces


@pytest.mark.parametrize(
    "name", ["__compaction", "pulsar.dedup", "pulsar.repl.west", "__offloader", "__pending_ack_state"]
)
def test_what_is_no_user_s_is_left_out(world, name):
    world.topic.cursors[name] = HeldCursor((1, 1))
    world.brokers.flush()
    assert [one.name for one in world.read()] == ["job"]
    assert [one.name for one in world.read(loaded=False)] == ["job"]


def test_readers_are_left_out(world):
    world.topic.cursors["reader-1"] = HeldCursor((1, 1))
    world.states.not_durable.add("reader-1")
    assert [one.name for one in world.read()] == ["job"]


def test_a_topic_that_is_not_loaded_is_read_from_what_is_stored_and_not_loaded(world):
    (job,) = world.read(loaded=False)
    assert not world.states.asked
    assert (job.mark_delete, whole(job), batches(job)) == ((1, 4), {(1, 7, 8), (2, 0, 3)}, {(2, 7): (0x3E0,)})
    assert job.sources == (CursorSource.NODE,)
    with pytest.raises(BrokerUnavailableError):
        world.read(loaded=False, stored=False)


def test_without_a_metadata_service_the_copy_says_what_it_lacks(world):
    (job,) = world.read(stored=False)
    assert (whole(job), batches(job), job.missing) == ({(1, 7, 8), (2, 0, 3)}, {}, (live.NO_METADATA,))


def test_without_bookies_the_copy_says_so(world):
    world.store("job", CursorState((1, 4), cursor_ledger=77))  # of which BookKeeper knows nothing
    (job,) = world.read()
    assert (whole(job), batches(job)) == ({(1, 7, 8), (2, 0, 3)}, {})
    assert "77" in job.missing[0]


def test_a_subscription_that_is_deleted_between_two_looks_is_left_out(world):
    world.topic.cursors["other"] = HeldCursor((1, 1))
    world.brokers.flush()
    world.states.between = lambda: world.topic.cursors.pop("job", None)
    assert [one.name for one in world.read()] == ["other"]


def test_a_cursor_that_stays_is_looked_at_twice(world):
    world.read()
    assert world.states.asked["cursors"] == 2


def test_a_cursor_that_moves_all_the_time_counts_as_at_its_lowest(world):
    def move():
        world.job.mark = (1, world.job.mark[1] + 1)

    world.states.between = move
    (job,) = world.read()
    assert world.states.asked["cursors"] == live.LOOKS
    assert job.mark_delete == (1, 5)  # of the last two looks: what is acknowledged meanwhile comes again
    assert live.UNSTABLE in job.missing


def test_a_reset_backwards_between_two_looks_acknowledges_nothing_that_it_took_back(world):
    def reset():
        world.states.between = lambda: None
        world.brokers.move(TOPIC, "job", (1, 1))

    world.states.between = reset
    (job,) = world.read()
    assert (job.mark_delete, whole(job), batches(job)) == ((1, 1), set(), {})


def test_batches_that_are_stored_from_before_a_reset_are_not_taken(world):
    world.job.mark, world.job.ranges, world.job.batches = (1, 1), (), {}  # stored is 1:4 with a batch
    (job,) = world.read()
    assert (job.mark_delete, batches(job), job.missing) == ((1, 1), {}, (live.OUTDATED,))


def test_a_subscription_that_nobody_has_stored_yet_is_copied(world):
    world.topic.cursors["new"] = HeldCursor((3, 1))
    new = world.read()[1]
    assert (new.name, new.mark_delete, new.missing) == ("new", (3, 1), (live.NOT_STORED,))


def test_a_stored_subscription_that_says_nothing_fails_the_look(world):
    world.store("odd", CursorState(None))
    with pytest.raises(DamagedRecordError, match="odd"):
        world.read(loaded=False)


def test_an_entry_that_no_ledger_can_have_is_refused(world):
    world.job.ranges = (AcknowledgedRange((3, 0), (3, 1 << 60)),)
    with pytest.raises(ProtocolError):
        world.read()


def test_a_topic_that_is_gone_is_said_to_be(world):
    del world.brokers.topics[TOPIC]
    with pytest.raises(TopicNotFoundError):
        world.read()
