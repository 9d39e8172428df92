"""Catalogs are read once by a process; what is new, or was made anew, is seen all the same."""

from __future__ import annotations

import threading

import pytest

from offloader.archive.opened import CatalogCache
from offloader.metadata.layout import catalog_folder, topic_folder
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, stream


class Reads(MemoryStore):
    """Remembers which objects were read whole or in part."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def read(self, key, start=0, end=None):
        self.keys.append(key)
        return super().read(key, start, end)


def current(known: CatalogCache, topic: TopicName) -> TopicCatalog:
    """All records, read."""
    return known.records(topic).whole.catalog


def written(store: MemoryStore, topic: TopicName = TOPIC, segments: int = 3) -> Archive:
    archive = Archive(store, topic)
    archive.claim()
    for ledger in range(segments):
        archive.add(stream(ledger, 0, 9), closed={ledger: 9})
    return archive


def test_each_record_is_read_once() -> None:
    store = Reads()
    archive = written(store)
    known = CatalogCache(store)
    assert current(known, TOPIC) == archive.catalog
    store.keys.clear()
    assert current(known, TOPIC).segments == current(known, TOPIC).segments
    assert not store.keys
    archive.add(stream(3, 0, 4))
    store.keys.clear()
    assert len(current(known, TOPIC).segments) == 4
    assert len(store.keys) == 1


@pytest.mark.parametrize("segments", [0, 1, 2, 5])
def test_a_catalog_that_was_made_anew_is_read_anew(segments: int) -> None:
    store = MemoryStore()
    written(store)
    known = CatalogCache(store)
    current(known, TOPIC)
    store.delete([key for key, _ in store.list(topic_folder(TOPIC))])
    archive = written(store, segments=segments)
    assert current(known, TOPIC) == archive.catalog
    assert current(known, TOPIC) == archive.catalog


def test_a_catalog_that_is_gone_is_empty() -> None:
    store = MemoryStore()
    written(store)
    known = CatalogCache(store)
    current(known, TOPIC)
    store.delete([key for key, _ in store.list(catalog_folder(TOPIC))])
    assert current(known, TOPIC).next_slot == 0


def test_only_so_many_records_are_kept_those_used_last() -> None:
    store = Reads()
    topics = [TopicName("public", "default", f"t{number}") for number in range(3)]
    for topic in topics:
        written(store, topic)
    known = CatalogCache(store, most_kept=8)
    for topic in (*topics, topics[1], topics[2]):
        store.keys.clear()
        current(known, topic)
    assert not store.keys
    current(known, topics[0])
    assert store.keys


def test_looking_back_holds_no_threads_while_it_waits() -> None:
    """Left so and collected as garbage by a thread that just starts, it would wait for ever for threads of its own."""
    store = MemoryStore()
    written(store, segments=5)
    looking = CatalogCache(store).records(TOPIC).before(Position(0, 1, 5))
    next(looking)
    for thread in threading.enumerate():
        if thread.name.startswith("catalog-reader"):
            thread.join(60)
            assert not thread.is_alive()
