"""A topic's schemas and partitions in the bucket: their bytes, what is asked for them, and how many copies stay."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.cursors.facts import FactsCopier, TopicFacts, read_facts
from offloader.errors import DamagedRecordError, TopicNotFoundError
from offloader.metadata.layout import facts_folder, parse_slot
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from offloader.storage.memory import MemoryStore
from tests.fakes.cluster_subscriptions import MemorySubscriptions
from tests.fakes.memory_nodes import MemoryNodes
from tests.fakes.topic_facts import facts_key, write_facts
from tests.fakes.topic_states import MemoryTopicStates

KEPT = 3

TOPIC = TopicName("public", "default", "t-partition-0")
SCHEMA = TopicSchema(0, "AVRO", b"{}", 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.integers(0, (1 << 63) - 1)
ALL_FACTS = st.builds(
    TopicFacts,
    topic=st.just(TOPIC),
    at=NUMBERS,
    partitions=st.none() | NUMBERS,
    terminated=st.booleans(),
    schemas=st.lists(
        st.builds(
            TopicSchema, NUMBERS, TEXT, st.binary(max_size=20), NUMBERS, st.lists(st.tuples(TEXT, TEXT)).map(tuple)
        ),
        max_size=3,
        unique_by=lambda schema: schema.version,
    ).map(lambda schemas: tuple(sorted(schemas, key=lambda schema: schema.version))),
)


class World:
    def __init__(self):
        self.store = MemoryStore()
        self.states = MemoryTopicStates(MemorySubscriptions(MemoryNodes(), "/managed-ledgers", lambda: 1))
        self.copier = FactsCopier(self.store, self.states, map(str, count()).__next__)
        self.states.known_schemas[TOPIC.partitioned_name] = [SCHEMA]
        self.states.partitioned[TOPIC.partitioned_name] = 4
        self.known = None

    def take(self, at, *, terminated=False):
        self.states.asked.clear()
        self.known = self.copier.take(TOPIC, at, self.known, terminated=terminated)
        return dict(self.states.asked)

    def times(self):
        return [parse_slot(key.removeprefix(facts_folder(TOPIC))) for key, _ in self.store.list(facts_folder(TOPIC))]


@pytest.fixture
def world():
    return World()


@given(ALL_FACTS)
def test_facts_are_read_as_they_were_written(facts):
    store = MemoryStore()
    write_facts(store, facts)
    assert read_facts(store, TOPIC) == facts


@given(ALL_FACTS, st.data())
def test_facts_with_one_byte_changed_are_damage(facts, data):
    store = MemoryStore()
    key = write_facts(store, facts)
    encoded = bytearray(store.read(key)[0])
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1
    store.put(key, bytes(encoded))
    with pytest.raises(DamagedRecordError):
        read_facts(store, TOPIC)


def test_versions_are_fetched_only_where_there_is_a_new_one(world):
    assert world.take(1) == {"schema_version": 1, "partitions": 1, "schemas": 1}
    assert world.take(2) == {"schema_version": 1, "partitions": 1}
    assert world.times() == [1]
    world.states.known_schemas[TOPIC.partitioned_name].append(TopicSchema(1, "AVRO", b"[]", 2))
    assert world.take(3) == {"schema_version": 1, "partitions": 1, "schemas": 1}
    assert [one.version for one in read_facts(world.store, TOPIC).schemas] == [0, 1]


def test_after_a_start_the_newest_is_known_again(world):
    world.take(1)
    world.known = None
    assert "schemas" not in world.take(2)
    assert world.times() == [1]


def test_schemas_that_pulsar_has_forgotten_stay_for_the_messages_that_are_archived(world):
    world.take(1)
    before = read_facts(world.store, TOPIC)
    world.states.known_schemas.clear()
    world.take(2)
    assert read_facts(world.store, TOPIC) == before
    world.states.known_schemas[TOPIC.partitioned_name] = [TopicSchema(3, "AVRO", b"[]", 2)]
    world.take(3)
    assert [one.version for one in read_facts(world.store, TOPIC).schemas] == [0, 3]


def test_that_a_topic_was_terminated_is_recorded(world):
    world.take(1)
    world.take(2, terminated=True)
    assert read_facts(world.store, TOPIC).terminated


def test_the_last_copies_stay(world):
    for at in range(1, 9):
        world.take(at, terminated=at % 2 == 0)
    assert world.times() == [6, 7, 8]
    assert len(world.times()) == KEPT


def test_a_clock_that_goes_back_hides_nothing(world):
    world.take(100)
    world.take(50, terminated=True)
    assert (world.times(), read_facts(world.store, TOPIC).terminated) == ([100, 101], True)


def test_a_damaged_copy_is_followed_by_a_sound_one(world):
    world.store.put(facts_key(TOPIC, 500), b"nothing of ours")
    with pytest.raises(DamagedRecordError):
        read_facts(world.store, TOPIC)
    world.take(100)
    assert world.times() == [500, 501]
    assert read_facts(world.store, TOPIC).schemas == (SCHEMA,)


def test_where_nothing_was_copied_there_is_nothing(world):
    assert read_facts(world.store, TOPIC) is None


def test_what_the_broker_refuses_writes_nothing(world):
    world.states.faults.add("partitions", lambda: TopicNotFoundError("gone"))
    with pytest.raises(TopicNotFoundError):
        world.take(1)
    assert world.times() == []
