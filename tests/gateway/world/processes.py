"""Gateways as processes: killed, stopped, paused between any two steps. Their parts are the product's own; connections,
threads and the store are the world's."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from offloader.errors import OffloadError, OutcomeUnknownError, StoreUnavailableError
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.limits import Shares
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.model import MIB, TopicName
from offloader.ports.admin import TopicSchema
from offloader.storage.forwarding import ForwardingStore, Verb
from tests.gateway.world.events import Baton, VirtualLoop

ANSWER_WITHIN = 3.0

if TYPE_CHECKING:
    from tests.gateway.world.world import World

T = TypeVar("T")
FLUSH, REFRESH, LOOK, WATCH = 2.0, 3.0, 5.0, 1.0  # seconds between two rounds
CACHE_BYTES = 200  # so that ledgers are swapped out and in


class WorldStore(ForwardingStore):
    """Calls take time, fail, lose their answers, and what was given up is written late."""

    def __init__(self, world: World, process: GatewayProcess) -> None:
        super().__init__(world.store)
        self._world, self._process = world, process

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        world, random, baton = self._world, self._world.random, Baton.here.baton
        if self._process.cut_off:
            baton.rest(random.uniform(0.5, 6))
            raise StoreUnavailableError("this gateway does not reach the store (the world)")
        if verb == "put" and self._process.pauses_at_write:
            world.paused_at_write(self._process)
        baton.rest(self._seconds())
        chance = random.random() / max(world.trouble, 1e-9)
        if chance < 0.02:
            raise StoreUnavailableError("the store is away (the world)")
        if verb == "put" and chance < 0.03:
            world.events.after(random.uniform(0, 20), lambda: work() and None)
            raise OutcomeUnknownError("no answer came, and it may come to be (the world)")
        answer = work()
        baton.rest(self._seconds())
        if chance > 1 / max(world.trouble, 1e-9) - 0.03:
            if verb in ("put", "delete"):
                raise OutcomeUnknownError("the answer was lost (the world)")
            raise StoreUnavailableError("the answer was lost (the world)")
        return answer

    def _seconds(self) -> float:
        random = self._world.random
        return random.uniform(0.5, 6) if random.random() < 0.02 * self._world.trouble else random.uniform(0.001, 0.05)


class WorldWorkers(Workers):
    """Threads that run when it is their turn."""

    def __init__(self, process: GatewayProcess) -> None:
        super().__init__()
        self._process = process

    async def _in(self, kind: str, work: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._process.loop.create_future()
        self._process.begin(work, future)
        return await future


class WorldArchive:
    """`ArchivedTopics` of the world's topics."""

    def __init__(self, world: World) -> None:
        self._world = world

    def names(self, namespace: str) -> Sequence[TopicName]:
        return [topic for topic in self._world.topics if topic.namespace == namespace]

    def has(self, topic: TopicName) -> bool:
        return topic in self._world.topics

    def partitions(self, topic: TopicName) -> int | None:
        return None

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]:
        return ()

    def open(self, topic: TopicName) -> TopicEntries:
        return self._world.topics[topic].opened()


class Anyone:
    def may_read(self, role: str, namespace: str) -> bool:
        return True

    def may_subscribe(self, role: str, namespace: str) -> bool:
        return True


class GatewayProcess:
    """One run of a gateway. `at`: its address, which the next run has, too."""

    runs = itertools.count()

    def __init__(self, world: World, at: str) -> None:
        self.world, self.at = world, at
        self.dead = self.paused = self.pauses_at_write = self.cut_off = False
        self.links: list[Any] = []
        self._waiting: list[Callable[[], None]] = []  # what would have happened during the pause
        self._batons: set[Baton] = set()
        self._due: set[float] = set()
        self.loop = VirtualLoop(world.events, self._wake)
        self.name = f"{at}#{next(self.runs)}"
        self.workers = WorldWorkers(self)
        store = WorldStore(world, self)
        tokens = (f"{self.name}/{number}" for number in itertools.count())
        self.begun = False

        async def begin() -> None:
            self.owners = TopicOwners(
                ClaimLog(store, lambda: next(tokens)),
                self.name,
                lambda: Address(at),
                self._is_living,
                self.workers,
                lambda: int(world.events.now * 1000),
            )
            here, archive = Address(at), WorldArchive(world)
            self.topics = ArchiveTopics(archive, self._served, self.workers, Anyone(), lambda: here, self.owners)
            self.begun = True
            for seconds, work in (
                (FLUSH, self.topics.flush),
                (REFRESH, self.topics.refresh),
                (LOOK, self.owners.look),
                (WATCH, self.owners.watch),
            ):
                self.task(self._each(seconds, work))

        def served(entries: TopicEntries, traffic: Traffic) -> SubscribedTopic:
            return SubscribedTopic(
                entries,
                store,
                self.workers,
                lambda: next(tokens),
                promises=True,
                traffic=traffic,
                read_ahead=Shares(MIB),
                cache_bytes=CACHE_BYTES,
            )

        self._served = served
        self.task(begin())

    # What the world does to it

    def kill(self) -> None:
        """Nothing of it happens any more; its clients' connections break."""
        self.dead, self._waiting = True, []
        self.world.happened["given back"] += self.owners.counts["released"] if self.begun else 0
        for baton in sorted(self._batons, key=id):
            baton.killed = True
            baton.go()
        self._batons.clear()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        for _ in range(20):
            self.loop.turn()
        self.loop.close()
        self.workers.close()
        for link in list(self.links):
            link.broken()

    def pause(self) -> None:
        self.paused = True

    def wake(self) -> None:
        """In whatever order: threads, the loop, what clients have sent meanwhile."""
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for happening in waiting:
            self.world.events.after(0, self.gated(happening))

    def stop(self, stopped: Callable[[], None]) -> None:
        """As SIGTERM does it."""

        def end() -> None:
            if not self.dead:
                self.kill()
                stopped()

        async def stopping() -> None:
            await self.topics.flush()
            await self.owners.release()
            self.world.events.after(0, end)

        self.task(stopping())

    # What it does

    def task(self, work: Coroutine[Any, Any, None]) -> None:
        def begin() -> None:
            task = self.loop.create_task(work)
            task.add_done_callback(self._done)

        if self.dead:
            work.close()
        else:
            self.loop.call_soon(begin)

    def gated(self, happening: Callable[[], None]) -> Callable[[], None]:
        """It happens if the process lives, and once it is not paused."""

        def when_it_can() -> None:
            if self.paused and not self.dead:
                self._waiting.append(happening)
            elif not self.dead:
                happening()

        return when_it_can

    def begin(self, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        baton = Baton(work)
        self._batons.add(baton)

        def on() -> None:
            baton.go()
            if not baton.over:
                self.world.events.after(baton.seconds, self.gated(on))
                return
            self._batons.discard(baton)
            self.loop.call_soon(lambda: self._settle(future, baton))

        self.world.events.after(0.0005, self.gated(on))

    def _settle(self, future: asyncio.Future[Any], baton: Baton) -> None:
        if future.cancelled():
            return
        if baton.error is None:
            future.set_result(baton.answer)
        else:
            future.set_exception(baton.error)

    def _wake(self, when: float) -> None:
        if when in self._due:
            return
        self._due.add(when)

        def turn() -> None:
            self._due.discard(when)
            self.loop.turn()

        self.world.events.at(when, self.gated(turn))

    def _done(self, task: asyncio.Task[None]) -> None:
        if not self.dead and not task.cancelled() and (error := task.exception()) is not None:
            self.world.defects.append(error)

    async def _each(self, seconds: float, work: Callable[[], Awaitable[Sequence[OffloadError]]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    async def _is_living(self, address: Address) -> bool:
        await asyncio.sleep(self.world.random.uniform(0.001, 0.01))
        other = self.world.gateways.get(address.url)
        if other is None or other.dead or frozenset((self.at, other.at)) in self.world.blind:
            return False
        if other.begun and other.owners.is_away:
            return False
        if other.paused:
            await asyncio.sleep(ANSWER_WITHIN)
        return not other.dead and not other.paused
