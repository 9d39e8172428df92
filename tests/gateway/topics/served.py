"""A topic that is served, with consumers that note what they are given, and a store that can be told what to do."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from offloader.errors import DamagedObjectError, OffloadError, StoreUnavailableError
from offloader.gateway.core.events import Deliver, EntryAck
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.limits import Shares
from offloader.gateway.server.ports import SubscribedConsumer, Subscribing
from offloader.gateway.topic_entries import DeletedSegment, TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.gateway.values import ServedEnd, ServedEntries, ServedEntry, SubscriptionType
from offloader.metadata.deletions import DeletedRange
from offloader.model import MIB, Place, Position, TopicName
from offloader.ports.admin import TopicSchema
from offloader.storage.forwarding import ForwardingStore, Verb
from offloader.storage.memory import MemoryStore
from tests.gateway.world.processes import Anyone
from tests.gateway.world.topic import OpenTopic, WorldTopic

T = TypeVar("T")
NAME = TopicName("public", "default", "t")
PATIENCE = 60.0  # seconds, for hanging


class ToldStore(ForwardingStore):
    """`fails`: writes do. `gate`: they wait for it. `seconds`: a write takes so many; `writes`: how many there were."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.fails = False
        self.seconds, self.writes = 0.0, 0
        self.gate = threading.Event()
        self.gate.set()

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        if verb == "put":
            self.writes += 1
            time.sleep(self.seconds)
            self.gate.wait(PATIENCE)
            if self.fails:
                raise StoreUnavailableError("the store is away (the test)")
        return work()


class Consumer:
    """`ConsumerPort`."""

    def __init__(self) -> None:
        self.given: list[ServedEntry] = []
        self.told: list[bool] = []  # whether it is the active one
        self.is_closed = self.has_all = False
        self.subscribed: SubscribedConsumer | None = None
        self._happened = asyncio.Event()

    def deliver(self, what: Deliver) -> None:
        self.given.extend(what.entries)
        self._happened.set()

    def active_changed(self, *, is_active: bool) -> None:
        self.told.append(is_active)
        self._happened.set()

    def end_reached(self) -> None:
        self.has_all = True
        self._happened.set()

    def pass_permits_on(self) -> None:
        """It has enough."""

    def closed(self) -> None:
        self.is_closed = True
        self._happened.set()

    async def is_alive(self) -> bool:
        return True

    @property
    def places(self) -> list[Place]:
        return [entry.place for entry in self.given]

    async def until(self, condition: Callable[[Consumer], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._happened.clear()
                await self._happened.wait()

    async def has(self, count: int) -> list[Place]:
        """So many entries."""
        await self.until(lambda one: len(one.given) >= count)
        return self.places


class ToldTopic(OpenTopic):
    """Threads that ask for its ledgers wait while it is held. `failures`: how often the end was asked for in vain."""

    def __init__(self, world: WorldTopic) -> None:
        self.deleted: list[DeletedRange] = []
        self.refuses: OffloadError | None = None
        self.damaged = self.terminated = self.deletions_fail = self.end_fails = False
        self.failures = 0
        self.missing: str | None = None
        self.gate, self._waits = threading.Event(), threading.Event()
        self.gate.set()
        super().__init__(world)

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        if not self.gate.is_set() and threading.current_thread() is not threading.main_thread():
            self._waits.set()
            self.gate.wait(PATIENCE)
        return super().ledgers()

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ServedEntries:
        if self.damaged:
            raise DamagedObjectError("it is damaged (the test)")
        return super().read(after, most_entries, most_bytes, sticky=sticky)

    def end(self) -> ServedEnd:
        if self.end_fails:
            self.failures += 1
            raise StoreUnavailableError("the store is away (the test)")
        return super().end()._replace(terminated=self.terminated)

    def deletions(self) -> Sequence[DeletedRange]:
        return tuple(self.deleted)

    def deleted_behind(self, position: Position) -> Sequence[DeletedSegment]:
        if self.deletions_fail:
            raise StoreUnavailableError("the store is away (the test)")
        return ()

    def missing_behind(self, after: Place) -> str | None:
        return self.missing

    def refresh(self) -> bool:
        if self.refuses is not None:
            raise self.refuses
        return super().refresh()

    @contextmanager
    def held(self) -> Iterator[None]:
        self._waits.clear()
        self.gate.clear()
        try:
            yield
        finally:
            self.gate.set()

    async def until_held(self) -> None:
        """A thread waits."""
        assert await asyncio.to_thread(self._waits.wait, PATIENCE)


class Served:
    """A topic of 20 places, as one process serves it."""

    def __init__(self, store: ToldStore | None = None, threads: int = 1) -> None:
        self.store = store or ToldStore()
        self.world = WorldTopic(NAME, Random(1))
        self.world.grow(20)
        self.entries = ToldTopic(self.world)
        self.workers = Workers(threads)  # of one what is asked for first is done first
        self.shares = Shares(MIB)
        self.archived = OneTopic()
        self._keys = itertools.count()
        tokens = (f"{id(self)}/{number}" for number in itertools.count())
        self.topic = SubscribedTopic(
            self.entries,
            self.store,
            self.workers,
            lambda: next(tokens),
            promises=True,
            traffic=Traffic(),
            read_ahead=self.shares,
        )

    async def subscribe(
        self,
        name: str = "s",
        kind: SubscriptionType = SubscriptionType.SHARED,
        *,
        durable: bool = True,
        earliest: bool = True,
        permits: int = 1000,
    ) -> Consumer:
        consumer, wanted = Consumer(), asked(name, kind, durable=durable, earliest=earliest)
        consumer.subscribed = await self.topic.subscribe(wanted, consumer, next(self._keys), lambda: True)
        if permits:
            consumer.subscribed.flow(permits)
        return consumer

    def forget_trouble(self) -> None:
        """As if its time were over."""
        for subscription in self.topic.subscriptions.values():
            subscription._trouble_until = 0.0

    def is_long_ago(self) -> None:
        """As if nobody had used any subscription for long."""
        for subscription in self.topic.subscriptions.values():
            subscription._used_at = 0.0

    async def flush(self) -> None:
        """As a round does it."""
        await asyncio.gather(*(write() for write in self.topic.flushes().values()))
        self.topic.let_go()

    def break_cursor(self, name: str) -> None:
        """Nothing of it can be written, for a reason that nobody foresaw."""

        def flush() -> None:
            raise KeyError("nobody foresaw it (the test)")

        setattr(self.topic.subscriptions[name]._acks.cursor, "flush", flush)  # noqa: B010

    async def is_at_end(self, name: str = "s") -> None:
        """Nothing is read any more, and nobody looks for the end."""
        subscription = self.topic.subscriptions[name]

        def rests() -> bool:
            looks = subscription._applying is not None and not subscription._applying.done()
            is_at_end = bool(subscription._consumers) and subscription._dispatcher.is_at_end
            return is_at_end and not looks and not any(self.workers.under_way.values())

        await until(rests)

    def close(self) -> None:
        self.topic.close()
        self.workers.close()


def whole(places: list[Place]) -> list[EntryAck]:
    return [EntryAck(place) for place in places]


def asked(
    name: str, kind: SubscriptionType = SubscriptionType.SHARED, *, durable: bool = True, earliest: bool = True
) -> Subscribing:
    return Subscribing(NAME, name, kind, durable=durable, earliest=earliest, start=None if durable else (-1, -1))


def archive_of(served: Served, refuses: OffloadError | None = None) -> ArchiveTopics:
    """An archive of that topic, which is served. `refuses`: what opening anything raises."""
    claims = ClaimLog(served.store, lambda: "token")
    owners = TopicOwners(claims, "this", lambda: Address("here"), nobody_lives, served.workers, lambda: 0)
    here, make = Address("here"), lambda _entries, _traffic: served.topic
    archive = ArchiveTopics(served.archived, make, served.workers, Anyone(), lambda: here, owners)
    archive.served[NAME], served.archived.refuses = served.topic, refuses
    return archive


async def nobody_lives(_: Address) -> bool:
    return False


class OneTopic:
    """`ArchivedTopics`."""

    def __init__(self) -> None:
        self.topics = [NAME]
        self.refuses: OffloadError | None = None

    def names(self, namespace: str) -> Sequence[TopicName]:
        return [topic for topic in self.topics if topic.namespace == namespace]

    def has(self, topic: TopicName) -> bool:
        return topic in self.topics

    def partitions(self, topic: TopicName) -> int | None:
        return None

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]:
        return ()

    def open(self, topic: TopicName) -> TopicEntries:
        raise self.refuses or NotImplementedError


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.001)
