"""What a start and a plan ask of a store does not depend on how many segments there are."""

from __future__ import annotations

from typing import cast

import pytest

from benchmarks.long_store import MINUTE, LongStore, LongTopic
from offloader.archive.records import TopicRecords
from offloader.archive.spark.planning import asked_of
from offloader.archive.stored import Piece, Selection
from offloader.metadata.catalog import Catalogs
from offloader.metadata.compaction import compact
from offloader.metadata.layout import catalog_folder, manifests_folder
from offloader.metadata.manifest import FAN
from offloader.model import MIB, TopicName
from offloader.storage.base import ObjectStore
from offloader.storage.memory import MemoryStore

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
        records = TopicRecords(catalogs(store).history(TOPIC))
        items = [item for _, items in asked_of(records, selection) for item in items]
        assert sum(len(item.cuts) for item in items if isinstance(item, Piece)) in (10, 11, 12)
        asked.append(store.requests)
    assert max(asked) - min(asked) <= 6, asked  # two stretches of records in each of three levels at most
