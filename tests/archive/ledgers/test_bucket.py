"""A stock broker's bucket, of which nothing else is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offloader.archive.findings import FindingKind
from offloader.archive.ledgers.bucket import scan
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import FatalError
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import Position, TopicName
from offloader.ports.object_store import Stat
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, uuid_of
from tests.format.stock import encode_ledger_index

from .support import OTHER_UUID, UUID, flip, messages, metadata, objects, put_ledger, user_metadata

OTHER = TopicName.parse("persistent://public/default/payments")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class Counting(MemoryStore):
    """Counts calls that a cloud asks money for."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[str] = []
        self.reads: list[str] = []

    def stat(self, key: str) -> Stat | None:
        self.heads.append(key)
        return super().stat(key)

    def read(self, key: str, offset: int = 0, length: int | None = None) -> tuple[bytes, Stat]:
        self.reads.append(key)
        return super().read(key, offset, length)


class Plain(MemoryStore):
    """A store that keeps no metadata."""

    def stat(self, key: str) -> Stat | None:
        found = super().stat(key)
        return None if found is None else Stat(found.size, found.etag)


def kinds(store, *topics):
    result = scan(store, lambda topic: not topics or topic in topics)
    return [f.kind for found in result.topics.values() for f in found.findings] + [f.kind for f in result.findings]


def ledgers(store, topic=TOPIC):
    found = scan(store, topic.__eq__).topics.get(topic)
    return (
        [] if found is None else [(held.start.ledger, held.uuid) for held in found.ledgers if held.unreadable is None]
    )


def unreadable(store, topic=TOPIC):
    """What of a topic's ledgers readers can only tell of: the object that is to blame, and whether that is damage."""
    found = scan(store, topic.__eq__).of(topic).ledgers
    return [
        (held.start.ledger, held.unreadable.key, held.unreadable.damaged)
        for held in found
        if held.unreadable is not None
    ]


def test_the_ledgers_of_each_topic_in_order(store) -> None:
    put_ledger(store, 12, messages(12, 3), uuid_of(1))
    put_ledger(store, 3, messages(3, 5), uuid_of(2))
    put_ledger(store, 7, messages(7, 4), uuid_of(3), OTHER)
    result = scan(store, store_url="s3://ledgers")
    assert result.findings == ()
    assert list(result.topics) == [TOPIC, OTHER]
    size = sum(map(len, messages(3, 5)))
    assert result.topics[TOPIC].ledgers[0] == OffloadedLedger(
        Position(0, 3, 0), Position(0, 3, 4), uuid_of(2), size, "s3://ledgers"
    )
    assert ledgers(store) == [(3, uuid_of(2)), (12, uuid_of(1))]
    assert ledgers(store, OTHER) == [(7, uuid_of(3))]


def test_nothing_proves_that_no_ledger_is_missing(store) -> None:
    put_ledger(store, 3, messages(3, 1))
    assert scan(store).topics[TOPIC].listed is None


def test_one_head_for_each_index_object_and_one_read_for_each_that_is_wanted() -> None:
    store = Counting()
    for ledger in range(5):
        put_ledger(store, ledger, messages(ledger, 3), topic=TOPIC if ledger < 2 else OTHER)
    scan(store, TOPIC.__eq__)
    assert sorted(store.heads) == [index_key(UUID, ledger) for ledger in range(5)]
    assert sorted(store.reads) == [index_key(UUID, ledger) for ledger in range(2)]


def test_an_index_object_that_was_asked_is_not_asked_again() -> None:
    store, heads = Counting(), dict[str, Stat]()
    put_ledger(store, 1, messages(1, 3))
    scan(store, TOPIC.__eq__, heads=heads)
    put_ledger(store, 2, messages(2, 3))
    store.heads.clear()
    assert len(scan(store, TOPIC.__eq__, heads=heads).topics[TOPIC].ledgers) == 2
    assert store.heads == [index_key(UUID, 2)]
    store.delete([index_key(UUID, 1), data_key(UUID, 1)])
    assert [held.start.ledger for held in scan(store, TOPIC.__eq__, heads=heads).topics[TOPIC].ledgers] == [2]


def test_a_store_without_metadata_is_read_by_what_bookkeeper_noted() -> None:
    store = Plain()
    put_ledger(store, 3, messages(3, 5))
    assert (ledgers(store), kinds(store)) == ([(3, UUID)], [])


def test_a_ledger_of_which_nobody_says_whose_it_is(store) -> None:
    data, index = objects(3, messages(3, 2), topic=None)
    store.put(data_key(UUID, 3), data)
    store.put(index_key(UUID, 3), index)
    assert (ledgers(store), kinds(store)) == ([], [FindingKind.WRONG_METADATA])


def test_incomplete_pairs_and_bad_names_are_told_and_stop_nobody(store) -> None:
    put_ledger(store, 3, messages(3, 5))
    for ledger, lost in ((4, data_key), (5, index_key)):
        put_ledger(store, ledger, messages(ledger, 5))
        store.delete([lost(UUID, ledger)])
    store.put("readme.txt", b"")
    store.put("archive/public/default/orders/" + UUID, b"our own segments may be in the same bucket")
    result = scan(store)
    assert [(f.kind, f.key) for f in result.findings] == [(FindingKind.STRAY_OBJECT, "readme.txt")]
    assert [(f.kind, f.key) for f in result.topics[TOPIC].findings] == [
        (FindingKind.MISSING_OBJECT, data_key(UUID, 4)),
        (FindingKind.MISSING_INDEX, index_key(UUID, 5)),
    ]
    # The index says what the data object that is gone had: readers find out by themselves.
    assert ledgers(store) == [(3, UUID), (4, UUID)]


def test_an_object_without_its_partner_is_no_topics_where_nothing_says_whose_it_is() -> None:
    store = Plain()
    put_ledger(store, 3, messages(3, 5))
    store.delete([index_key(UUID, 3)])
    result = scan(store)
    assert [(f.kind, f.key) for f in result.findings] == [(FindingKind.MISSING_INDEX, index_key(UUID, 3))]
    assert (result.topics, [held.start.ledger for held in result.doubtful]) == ({}, [3])


def test_a_data_object_without_an_index_is_damage_unless_it_may_be_on_its_way(store) -> None:
    for ledger in (3, 4, 5):
        put_ledger(store, ledger, messages(ledger, 5))
    store.delete([index_key(UUID, 5)])
    assert unreadable(store) == [(5, index_key(UUID, 5), False)]
    store.delete([index_key(UUID, 3)])
    assert unreadable(store) == [(3, index_key(UUID, 3), True), (5, index_key(UUID, 5), False)]


def test_what_a_failed_attempt_has_left_does_not_matter_where_another_has_succeeded(store) -> None:
    put_ledger(store, 3, messages(3, 5), UUID)
    put_ledger(store, 3, messages(3, 5), OTHER_UUID)
    put_ledger(store, 4, messages(4, 5))
    store.delete([index_key(UUID, 3)])
    assert (ledgers(store), unreadable(store)) == ([(3, OTHER_UUID), (4, UUID)], [])
    assert kinds(store) == [FindingKind.MISSING_INDEX]


def test_of_two_damaged_copies_the_one_that_shows_more_is_taken(store) -> None:
    for uuid in (UUID, OTHER_UUID):
        put_ledger(store, 3, messages(3, 30), uuid)
    flip(store, index_key(UUID, 3), 0)
    flip(store, data_key(OTHER_UUID, 3), 300)
    assert (ledgers(store), unreadable(store)) == ([(3, OTHER_UUID)], [])


def test_of_a_damaged_pair_is_known_what_its_index_says(store) -> None:
    put_ledger(store, 3, messages(3, 5))
    put_ledger(store, 4, messages(4, 5))
    put_ledger(store, 5, messages(5, 5))
    flip(store, index_key(UUID, 3), 0)
    store.put(data_key(UUID, 4), store.read(data_key(UUID, 4))[0][:-1])
    assert ledgers(store) == [(4, UUID), (5, UUID)]
    assert unreadable(store) == [(3, index_key(UUID, 3), True)]
    assert kinds(store) == [FindingKind.DAMAGED_INDEX, FindingKind.WRONG_SIZE]


def test_the_objects_of_another_topic_under_the_names_of_this_one(store) -> None:
    put_ledger(store, 3, messages(3, 5))
    data, index = objects(3, messages(3, 5), OTHER)
    store.put(index_key(UUID, 3), index, meta=user_metadata(TOPIC, "index"))
    store.put(data_key(UUID, 3), data, meta=user_metadata(TOPIC, "data"))
    assert (ledgers(store), kinds(store)) == ([], [FindingKind.DAMAGED_INDEX])
    assert unreadable(store) == [(3, index_key(UUID, 3), True)]


def test_of_two_complete_copies_one_is_taken_and_the_other_told(store) -> None:
    put_ledger(store, 3, messages(3, 30), OTHER_UUID)
    put_ledger(store, 3, messages(3, 30), UUID, block_size=2000)
    (finding,) = scan(store).topics[TOPIC].findings
    assert ledgers(store) == [(3, UUID)]
    assert (finding.kind, finding.key) == (FindingKind.SECOND_COPY, data_key(OTHER_UUID, 3))
    assert f"the same entries as {data_key(UUID, 3)}" in finding.message
    assert scan(store).topics[TOPIC].contradictions == ()


def test_two_copies_that_contradict_each_other_are_told(store) -> None:
    put_ledger(store, 3, messages(3, 30), UUID)
    put_ledger(store, 3, messages(4, 30), OTHER_UUID)
    (finding,) = scan(store).topics[TOPIC].findings
    assert (finding.kind, "OTHER entries" in finding.message) == (FindingKind.SECOND_COPY, True)
    found = scan(store).topics[TOPIC].contradictions
    assert [(one.ledger, one.taken, one.other) for one in found] == [(3, UUID, OTHER_UUID)]


@pytest.mark.parametrize("damaged", [UUID, OTHER_UUID])
def test_of_two_copies_the_one_that_verifies_is_taken(store, damaged) -> None:
    """What Pulsar's offloader loses when an entry is larger than its blocks: the object ends early, and its index
    agrees."""
    sound = UUID if damaged == OTHER_UUID else OTHER_UUID
    put_ledger(store, 3, messages(3, 30), sound)
    data, index = objects(3, messages(3, 20))
    said = metadata(messages(3, 30), TOPIC).SerializeToString()
    truncated = encode_ledger_index(replace(decode_ledger_index(index, 3), metadata=said))
    store.put(data_key(damaged, 3), data, meta=user_metadata(TOPIC, "data"))
    store.put(index_key(damaged, 3), truncated, meta=user_metadata(TOPIC, "index"))
    assert ledgers(store) == [(3, sound)]
    assert kinds(store) == [FindingKind.WRONG_ENTRIES]


def test_a_flipped_bit_of_an_entry_decides_between_two_copies(store) -> None:
    for uuid in (UUID, OTHER_UUID):
        put_ledger(store, 3, messages(3, 30), uuid)
    flip(store, data_key(UUID, 3), 300)
    assert (ledgers(store), kinds(store)) == ([(3, OTHER_UUID)], [FindingKind.DAMAGED_ENTRY])


def test_ledgers_of_two_clusters_are_not_taken_for_one_topic(store) -> None:
    put_ledger(store, 3, messages(3, 5), UUID, cluster="east")
    put_ledger(store, 4, messages(4, 5), OTHER_UUID, cluster="west")
    with pytest.raises(FatalError, match="from the clusters east, west"):
        scan(store, TOPIC.__eq__)
    assert [held.uuid for held in scan(store, TOPIC.__eq__, cluster="west").topics[TOPIC].ledgers] == [OTHER_UUID]
    with pytest.raises(FatalError, match="ledgers from the clusters east, west, and none from wset"):
        scan(store, TOPIC.__eq__, cluster="wset")
    assert scan(store, OTHER.__eq__).topics == {}


@given(
    st.dictionaries(
        st.integers(0, 2**62), st.lists(st.binary(min_size=1, max_size=100), min_size=1, max_size=5), max_size=6
    ),
    st.data(),
)
def test_whatever_is_whole_is_found(held, data) -> None:
    """Some objects are deleted: the other ledgers are found, and each that is not is told of."""
    store = MemoryStore()
    for ledger, entries in held.items():
        put_ledger(store, ledger, entries)
    keys = sorted(key for key, _ in store.list())
    lost = data.draw(st.sets(st.sampled_from(keys)) if keys else st.just(set()))
    store.delete(lost)
    both = {ledger: {data_key(UUID, ledger), index_key(UUID, ledger)} for ledger in held}
    assert ledgers(store) == sorted((ledger, UUID) for ledger in held if index_key(UUID, ledger) not in lost)
    assert [ledger for ledger, _, _ in unreadable(store)] == sorted(
        n for n in held if both[n] & lost == {index_key(UUID, n)}
    )
    assert len(kinds(store)) == sum(len(both[ledger] & lost) == 1 for ledger in held)
