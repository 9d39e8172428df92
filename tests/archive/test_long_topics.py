"""What a start and a plan ask of a store does not depend on how many segments there are."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import cast

import pytest

from benchmarks.long_store import MINUTE, LongStore, LongTopic
from offloader.archive.object_range import ObjectRange, size_of
from offloader.archive.records import LazyTopicRecords
from offloader.archive.selection import Selection
from offloader.archive.spark.planning import TopicPlan, TopicSplit, topic_plans, topic_splits
from offloader.archive.spark.stream import items_between
from offloader.errors import DamagedRecordError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.compaction import compact
from offloader.metadata.history import RecordCache
from offloader.metadata.layout import catalog_folder, manifests_folder
from offloader.metadata.manifest import FAN
from offloader.model import MIB, Position, Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore

LOOK_BACK = 64 * 1024**2
STEP = 64
LOOK_BACK_STEP = 4 * 1024**2

TOPIC = TopicName("public", "default", "long")
LENGTHS = (100, 996, 10_020)  # as many records behind the newest manifest in each


def long(segments: int, parts: int = 2) -> LongStore:
    return LongStore(LongTopic(TOPIC, segments, parts, MIB))


def catalogs(store: LongStore) -> Catalogs:
    return Catalogs(cast("ObjectStore", store), "app")


@pytest.mark.parametrize("segments", [70, 2 * FAN + 9])
def test_the_store_of_long_topics_has_what_the_product_writes(segments: int) -> None:
    made, written = long(segments), MemoryStore()
    for slot in range(segments + 1):
        key = f"{catalog_folder(TOPIC)}{slot:020d}"
        written.put(key, made.read(key)[0])
    head = Catalogs(written, "app").head(TOPIC)
    assert head == catalogs(made).head(TOPIC) == Catalogs(written, "app").load(TOPIC).head
    compact(written, head)
    keys = [key for key, _ in written.list(manifests_folder(TOPIC))]
    assert len(keys) == 2 * (segments // FAN) + 1
    assert [made.read(key)[0] for key in keys] == [written.read(key)[0] for key in keys]


def test_a_start_asks_for_the_same() -> None:
    asked = []
    for segments in LENGTHS:
        store = long(segments)
        assert catalogs(store).head(TOPIC).segments == segments
        asked.append(store.requests)
    assert asked == [4, 4, 4]


def test_a_writer_asks_for_the_same() -> None:
    for segments in LENGTHS:
        store = long(segments)
        head = catalogs(store).head(TOPIC)
        store.requests = 0
        assert catalogs(store).refresh_head(head) == head
        assert store.requests == 1


@pytest.mark.parametrize("first", [1, 40, 63])
def test_a_plan_of_an_hour_asks_for_the_same_but_for_a_logarithm(first: int) -> None:
    asked = []
    selection = Selection(published_from=first * MINUTE, published_to=(first + 5) * MINUTE - 1)
    for segments in LENGTHS:
        store = long(segments)
        records = LazyTopicRecords(catalogs(store).history(TOPIC))
        items = [item for planned in topic_plans(records, selection) for item in planned.items]
        assert sum(len(item.split_points) for item in items if isinstance(item, ObjectRange)) in (10, 11, 12)
        asked.append(store.requests)
    assert max(asked) - min(asked) <= 6, asked  # two stretches of records in each of three levels at most


def at(entry: int) -> Position:
    return Position(0, 1, entry)


def assert_looks_back(portion: TopicSplit, first: int) -> None:
    """As far as chunks are looked for, right up to its own first entry."""
    assert size_of(portion.before) >= LOOK_BACK
    last, begun = portion.before[-1], portion.items[0]
    assert isinstance(last, ObjectRange)
    assert isinstance(begun, ObjectRange)
    assert (last.end, begun.start) == (at(first - 1), at(first))


@pytest.mark.parametrize("first", [160 * 50, 160 * 50 + 87, 160 * 99])
def test_what_begins_amid_a_topic_is_looked_back_from(first: int) -> None:
    records = LazyTopicRecords(catalogs(long(100)).history(TOPIC))
    (planned,) = topic_plans(records, Selection(at(first)))
    assert_looks_back(topic_splits(planned, 1_000 * MIB)[0], first)


@pytest.mark.parametrize("first", [50, 90])
def test_times_amid_a_topic_are_looked_back_from(first: int) -> None:
    records = LazyTopicRecords(catalogs(long(100)).history(TOPIC))
    selection = Selection(published_from=first * MINUTE + 1, published_to=first * MINUTE + 2)
    (planned,) = topic_plans(records, selection)
    assert_looks_back(topic_splits(planned, 1_000 * MIB)[0], 160 * first)


@pytest.mark.parametrize("first", [160 * 50, 160 * 50 + 87])
def test_a_stream_s_batch_is_looked_back_from(first: int) -> None:
    records = LazyTopicRecords(catalogs(long(100)).history(TOPIC))
    view = records.behind(at(first - 1), back=LOOK_BACK + LOOK_BACK_STEP)
    planned = TopicPlan.of(view, items_between(view, at(first - 1), Selection()), look_back=True)
    assert_looks_back(topic_splits(planned, 1_000 * MIB)[0], first)


class Marked(LongTopic):
    """Its records can be told from those that other tests hold."""

    SEALED_BY = 4_711_000_000_000

    def segment(self, number: int) -> Segment:
        return replace(super().segment(number), offloaded_at=self.SEALED_BY + number)


def held_of_marked() -> int:
    gc.collect()
    there = (each for each in gc.get_objects() if isinstance(each, Segment))
    return sum(each.offloaded_at >= Marked.SEALED_BY for each in there)


def test_a_whole_topic_s_records_are_never_held_at_once() -> None:
    store = LongStore(Marked(TOPIC, 4_000, 2, MIB))
    records = LazyTopicRecords(catalogs(store).history(TOPIC, None, RecordCache(10)))
    held = []
    for number, item in enumerate(records.plan()):
        assert isinstance(item, ObjectRange)
        if number % 1_000 == 999:
            held.append(held_of_marked())
    assert len(held) == 4
    assert min(held) > 0
    assert max(held) <= 2 * STEP + 30, held
    everything = records.whole
    assert held_of_marked() >= 4_000, "what is held would be seen"
    del everything


class WithAHole(LongTopic):
    """One segment lacks its first entry."""

    hole = 0

    def segment(self, number: int) -> Segment:
        made = super().segment(number)
        if number != self.hole:
            return made
        held = replace(made.ledgers[0], first=made.ledgers[0].first + 1)
        return replace(made, start=made.start._replace(entry=held.first), ledgers=(held,))


def test_a_hole_in_what_is_looked_back_at_is_told(caplog: pytest.LogCaptureFixture) -> None:
    topic = WithAHole(TOPIC, 100, 2, MIB)
    topic.hole = 48
    records = LazyTopicRecords(catalogs(LongStore(topic)).history(TOPIC))
    (planned,) = topic_plans(records, Selection(at(160 * 50)))
    assert topic_splits(planned, 1_000 * MIB)[0].before == ()
    assert f"chunks before 1:8000 are not looked for: {TOPIC}: hole: 1:7680..7680 is in no segment" in caplog.text


@pytest.mark.parametrize("step", [1, 2, 7])
def test_a_hole_is_seen_wherever_it_is_among_the_records_that_are_held_at_once(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offloader.archive.records.STEP", step)
    for hole in range(1, 12):
        topic = WithAHole(TOPIC, 12, 2, MIB)
        topic.hole = hole
        records = LazyTopicRecords(catalogs(LongStore(topic)).history(TOPIC))
        with pytest.raises(DamagedRecordError, match=f"1:{160 * hole}..{160 * hole} is in no segment"):
            list(records.plan())
