"""What it costs to watch the topics of a namespace, and that what comes and goes is told all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connect, WatchTopicList
from offloader.archive.opened import CatalogCache
from offloader.errors import StoreUnavailableError
from offloader.gateway.topics import archive as archive_module
from offloader.gateway.topics import listings as listings_module
from offloader.gateway.topics.listings import NamespaceLists
from offloader.model import TopicName
from offloader.pulsar.commands import command
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.archive.support import Archive
from tests.gateway.gateway import gateway
from tests.gateway.raw import RawClient

LOOKED_AT_AGAIN = 60.0
MOST_NAMESPACES = 1000

T = TypeVar("T")
TOPICS = 1_500
WATCHERS = 5


class CountingStore(ForwardingStore):
    """Counts calls, by verb; folders are listed by it, too."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.calls = Counter[Verb]()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        self.calls[verb] += 1
        return work()


def topic(number: int) -> TopicName:
    return TopicName("public", "default", f"t{number}")


def claimed(store: CountingStore, count: int) -> None:
    for number in range(count):
        Archive(store, topic(number)).claim(10, 0)


def watch(number: int) -> BaseCommand:
    asked = WatchTopicList(
        namespace="public/default", watcher_id=number, request_id=number, topics_pattern="public/default/t.*"
    )
    return command(watch_topic_list=asked)


def test_many_watchers_of_many_topics_take_one_listing_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = 0.5
    monkeypatch.setattr(archive_module, "LIST_KEPT", kept)
    monkeypatch.setattr(listings_module, "LIST_KEPT", kept)
    store = CountingStore()
    claimed(store, TOPICS)
    Archive(store, TopicName("other", "place", "t")).claim(10, 0)
    with gateway(store) as url, RawClient(url) as client:
        client.send(command(connect=Connect(client_version="x", protocol_version=21)), *map(watch, range(WATCHERS)))
        for _ in range(WATCHERS):
            assert len(client.answer().watch_topic_list_success.topics) == TOPICS
        store.calls.clear()
        Archive(store, topic(TOPICS)).claim(10, 0)
        for _ in range(WATCHERS):
            assert client.until("watch_topic_update").watch_topic_update.new_topics == [str(topic(TOPICS))]
        store.delete([key for key, _ in store.list("public/default/t7/")])
        for _ in range(WATCHERS):
            assert client.until("watch_topic_update").watch_topic_update.deleted_topics == [str(topic(7))]
    assert store.calls["list"] < TOPICS / 10


def test_a_topic_is_looked_at_once_and_one_without_a_catalog_once_a_minute() -> None:
    store, clock = CountingStore(), [0.0]
    claimed(store, 20)
    store.put("public/default/t20/_facts/x", b"")
    cache = CatalogCache(store, clock=lambda: clock[0])
    assert len(cache.topics_of("public/default")) == 20
    store.calls.clear()
    assert len(cache.topics_of("public/default")) == 20
    assert store.calls["list"] == 1
    Archive(store, topic(20)).claim(10, 0)
    clock[0] += LOOKED_AT_AGAIN + 1
    store.calls.clear()
    assert len(cache.topics_of("public/default")) == 21
    assert store.calls["list"] == 2
    assert cache.topics_of("public/other") == []


def test_a_topic_that_lost_its_catalog_is_listed_until_somebody_asks_for_it() -> None:
    store = CountingStore()
    claimed(store, 2)
    cache = CatalogCache(store)
    assert cache.topics_of("public/default") == [topic(0), topic(1)]
    store.put("public/default/t1/_facts/x", b"")
    store.delete([key for key, _ in store.list("public/default/t1/") if "_facts" not in key])
    assert not cache.has(topic(1))
    assert cache.topics_of("public/default") == [topic(0)]


def test_lists_of_so_many_namespaces_are_kept() -> None:
    async def work() -> None:
        asked = Counter[str]()

        async def names(namespace: str) -> list[TopicName]:
            asked[namespace] += 1
            if namespace == "a/fails":
                raise StoreUnavailableError("it does not answer (the test)")
            tenant, name = namespace.split("/")
            return [TopicName(tenant, name, "t")]

        lists = NamespaceLists(names)
        await asyncio.gather(*(lists.now("a/b") for _ in range(9)))
        assert asked == {"a/b": 1}
        assert lists.before("a/b").topics == {TopicName("a", "b", "t")}
        with pytest.raises(StoreUnavailableError):
            await lists.now("a/fails")
        for number in range(MOST_NAMESPACES):
            await lists.now(f"a/n{number}")
        assert not lists.before("a/b").topics

    asyncio.run(work())
