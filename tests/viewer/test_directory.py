"""Listings are bounded, kept for a while, and say where they end early."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from offloader.errors import RetryableError
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from offloader.viewer import directory as directory_module
from offloader.viewer.directory import Directory

AT_ONCE = 8
KEPT_SECONDS = 30.0
SEARCHES = 4
SECONDS = 30.0


class ManyStore(MemoryStore):
    """So many topics, of which each takes a while to list."""

    def __init__(self, clock: Clock, topics: int, seconds: float = 0.0001) -> None:
        super().__init__()
        self.clock, self.topics, self.seconds, self.listings = clock, topics, seconds, 0

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.listings += 1
        if prefix in ("", "a/"):
            yield f"{prefix}{'b' if prefix else 'a'}/"
            return
        for number in range(self.topics):
            self.clock.now += self.seconds
            yield f"{prefix}topic-{number:07d}/"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_many_topics_are_listed_once_in_a_while() -> None:
    clock = Clock()
    store = ManyStore(clock, 20_000)
    directory = Directory(store, clock)
    for _ in range(3):
        rows, complete = directory.topics("a/b")
        assert (len(rows), complete) == (20_000, True)
    assert store.listings == 1
    clock.now += KEPT_SECONDS
    directory.topics("a/b")
    assert store.listings == 2


def test_a_listing_ends_after_its_time_or_number_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    rows, complete = Directory(ManyStore(clock, 10**6, seconds=0.02), clock).topics("a/b")
    assert not complete
    assert clock.now < SECONDS + 1
    monkeypatch.setattr(directory_module, "MOST_NAMES", 10)
    rows, complete = Directory(ManyStore(clock, 11), clock).topics("a/b")
    assert (len(rows), complete) == (10, False)


def test_a_search_finds_some_and_says_where_it_ended() -> None:
    clock = Clock()
    directory = Directory(ManyStore(clock, 1000), clock)
    assert [str(row.name) for row in directory.search("B/TOPIC-0000042").rows] == ["persistent://a/b/topic-0000042"]
    found = directory.search("topic")
    assert (len(found.rows), found.complete) == (100, False)
    assert directory.search("none") == directory_module.SearchResult((), complete=True)


def test_searches_that_take_long_do_not_hold_up_every_page() -> None:
    clock, begun, go_on = Clock(), threading.Semaphore(0), threading.Event()

    class SlowStore(ManyStore):
        def folders(self, prefix: str = "") -> Iterator[str]:
            begun.release()
            go_on.wait(60)
            return super().folders(prefix)

    directory = Directory(SlowStore(clock, 10), clock)
    searches = [threading.Thread(target=directory.search, args=("topic",)) for _ in range(SEARCHES)]
    for one in searches:
        one.start()
        assert begun.acquire(timeout=60)
    with pytest.raises(RetryableError, match="4 searches are being made; try again in 30 seconds"):
        directory.search("topic")
    assert SEARCHES < AT_ONCE
    go_on.set()
    for one in searches:
        one.join(60)
    assert len(directory.search("topic").rows) == 10


def test_few_listings_are_kept() -> None:
    clock = Clock()
    directory = Directory(ManyStore(clock, 1), clock)
    for number in range(100):
        directory.topics(f"a/{number}")
    assert len(directory._kept) == directory_module.MOST_KEPT
    assert directory._rows.keys() <= directory._kept.keys()


def test_of_large_listings_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "MOST_NAMES_KEPT", 20)
    clock = Clock()
    directory = Directory(ManyStore(clock, 8), clock)
    for number in range(10):
        directory.topics(f"a/{number}")
    assert len(directory._kept) == len(directory._rows) == 2


def test_the_topics_of_a_listing_are_put_in_order_once() -> None:
    clock = Clock()
    directory = Directory(ManyStore(clock, 8), clock)
    assert directory.topics("a/b")[0] is directory.topics("a/b")[0]
    before = directory.topics("a/b")[0]
    clock.now += directory_module.KEPT_SECONDS + 1
    assert directory.topics("a/b")[0] is not before


def test_what_is_encoded_in_keys_is_shown_as_it_is_called_and_our_own_folders_are_not() -> None:
    store = MemoryStore()
    for key in ("_journal/x/y", "%5Ftenant/n%2Fs/t%20%3F/x", "a/b/t-partition-2/x", "a/b/t-partition-10/x", "a/b/t/x"):
        store.put(key, b"")
    directory = Directory(store, Clock())
    assert directory.tenants().names == ("_tenant", "a")
    assert directory.namespaces("_tenant").names == ("_tenant/n/s",)
    (row,) = directory.topics("a/b")[0]
    assert (row.name, row.partitions) == (TopicName("a", "b", "t"), (2, 10))
