"""All topics of an archive, as a gateway serves them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from offloader.errors import FatalError, OffloadError
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.protocol.topic_lists import matching
from offloader.gateway.server.ports import ConsumerPort, SubscribedConsumer, Subscribing
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.directory import TopicDirectory, directory_of
from offloader.gateway.topics.leading import HAND_OVERS
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.model import TopicName
from offloader.ports.topic_states import TopicSchema

log = logging.getLogger(__name__)

LIST_KEPT = 5.0  # seconds
LIST_WAITED_FOR = 1.0  # seconds, where an old one says enough
MOST_AHEAD = 4  # topics that are being opened, with which another one is opened before somebody subscribes
GIVEN_BACK = 20  # topics in a round, which has other things to do
ROUND = 10.0  # seconds, for which a round waits
RoundKey = tuple[TopicName, ServedSubscription | None]  # None: all of the topic
Works = dict[RoundKey, Callable[[], Awaitable[None]]]


class ArchivedTopics(Protocol):
    """What the archive has. All calls block."""

    def names(self) -> Sequence[TopicName]: ...

    def has(self, topic: TopicName) -> bool:
        """Whether it is one of `names`, as far as one request tells; where that does not, it is not."""
        ...

    def partitions(self, topic: TopicName) -> int | None:
        """As its copy says; None: nothing does."""
        ...

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]: ...

    def open(self, topic: TopicName) -> TopicEntries:
        """Raises FatalError where there is none."""
        ...


class Permissions(Protocol):
    """Which namespaces a role may read."""

    def may_read(self, role: str, namespace: str) -> bool: ...


class ArchiveTopics:
    """`ServedTopics` of an archive. `make`: a served topic of its entries, which counts what its namespace gets."""

    def __init__(
        self,
        archived: ArchivedTopics,
        make: Callable[[TopicEntries, Traffic], SubscribedTopic],
        workers: Workers,
        permissions: Permissions,
        owners: TopicOwners,
    ) -> None:
        self.served: dict[TopicName, SubscribedTopic] = {}
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)  # by namespace
        self.hand_overs = Counter(dict.fromkeys(HAND_OVERS, 0))  # of the leaders of its topics
        self._archived = archived
        self._make = make
        self._workers = workers
        self._permissions = permissions
        self._owners = owners
        self._owners.lost, self._owners.away = self._lost, self._send_away
        self._opening: dict[TopicName, asyncio.Task[SubscribedTopic]] = {}
        self._directory = directory_of(())
        self._listed_at = -LIST_KEPT
        self._listing: asyncio.Task[TopicDirectory] | None = None
        self._numbers = itertools.count()
        self._rounds: dict[tuple[str, TopicName, ServedSubscription | None], asyncio.Future[None]] = {}  # under way
        self._failed: defaultdict[str, dict[TopicName, OffloadError]] = defaultdict(dict)

    async def partitions(self, topic: TopicName, role: str) -> int:
        self._check(topic.namespace, role)
        if str(topic) not in self._directory.partitions and await self._is_archived(topic):
            self._open_ahead(topic)
            return 0
        known = await self._known(lambda before: topic in before.topics or str(topic) in before.partitions)
        if topic in known.topics:
            return 0
        parts = known.partitions.get(str(topic))
        if not parts:
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, f"{topic} is not archived")
        said = await self._workers.know(lambda: self._archived.partitions(parts[-1]))
        return max(said or 0, max(part.partition for part in parts) + 1)

    async def address(self, topic: TopicName, role: str) -> Address:
        """Also of what is no topic: clients look patterns up, too."""
        self._check(topic.namespace, role)
        if topic in self._directory.topics:
            self._open_ahead(topic)
        return await self._owners.address(topic)

    @property
    def answers_gateways(self) -> bool:
        return not self._owners.is_away

    async def topics(self, namespace: str, role: str) -> Sequence[str]:
        self._check(namespace, role)
        return (await self._known()).names.get(namespace, [])

    async def changes(self, namespace: str, role: str) -> AsyncIterator[Sequence[str]]:
        while True:
            await asyncio.sleep(LIST_KEPT)
            try:
                names = await self.topics(namespace, role)
            except OffloadError as error:  # the store does not answer: at the next look
                log.info("gateway: changes of %s are not known: %s", namespace, error)
                continue
            yield names

    async def matching(self, names: Sequence[str], pattern: str) -> list[str]:
        return await self._workers.match(lambda: matching(names, pattern, time.thread_time))

    async def schema(self, topic: TopicName, version: int | None, role: str) -> TopicSchema:
        self._check(topic.namespace, role)
        found = await self._workers.know(lambda: self._archived.schemas(topic))
        wanted = [one for one in found if version is None or one.version == version]
        if not wanted:
            what = "no schema" if version is None else f"no version {version} of its schema"
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, f"{topic}: {what} is archived")
        return wanted[-1]

    async def subscribe(self, asked: Subscribing, consumer: ConsumerPort, role: str) -> SubscribedConsumer:
        self._check(asked.topic.namespace, role)
        is_ours = await self._own(asked.topic) if asked.durable else _needs_no_owner
        topic = await self._topic(asked.topic)  # again: that one may have been let go of meanwhile
        return await topic.subscribe(asked, consumer, next(self._numbers), is_ours)

    async def _own(self, topic: TopicName) -> Callable[[], bool]:
        """What is not archived is not claimed: a look-up has told, or its opening does."""
        if topic not in self._opening and topic not in self._directory.topics:
            await self._topic(topic)
        is_ours, _ = await asyncio.gather(self._owners.own(topic), self._topic(topic))
        return is_ours

    async def refresh(self) -> list[OffloadError]:
        """Look at all topics that are served for what was archived since; returns what went wrong."""
        return await self._each("refresh", lambda topic: self._workers.in_rounds("know", lambda: self._refresh(topic)))

    async def lead_away(self) -> list[OffloadError]:
        """Consumers that have all that is archived go to the brokers; returns what went wrong."""
        return await self._each("lead", lambda topic: topic.lead_away())

    async def flush(self, *, all_of_it: bool = False) -> list[OffloadError]:
        """Write what was acknowledged; returns what went wrong. `all_of_it`: what is being written already is waited
        for, and what came since is written, too."""
        while all_of_it and (writing := [task for (what, *_), task in self._rounds.items() if what == "flush"]):
            await asyncio.wait(writing)
        works: Works = {}
        for name, topic in self.served.items():
            works |= {(name, one): work for one, work in topic.flushes().items()}
        failed = await self._round("flush", works, within=None if all_of_it else ROUND)
        for name, topic in list(self.served.items()):
            topic.let_go()
            if topic.is_idle:
                del self.served[name]
                topic.close()
        return failed if all_of_it else failed + await self._give_back()

    async def _give_back(self) -> list[OffloadError]:
        """What is not served, some of it. Somebody may come while it waits for its turn."""

        async def give(name: TopicName) -> None:
            if not self._is_used(name):
                await self._owners.give_back(name)

        idle = [name for name in self._owners.owned if not self._is_used(name) and not self._owners.was_asked_for(name)]
        return await self._round(
            "give back",
            {(name, None): partial(self._workers.in_rounds, "know", partial(give, name)) for name in idle[:GIVEN_BACK]},
        )

    def _is_used(self, name: TopicName) -> bool:
        return name in self.served or name in self._opening

    async def _refresh(self, topic: SubscribedTopic) -> None:
        """Consumers of one that was deleted look up again, and hear that it is not there."""
        name = topic.entries.name
        try:
            await topic.refresh()
        except FatalError as error:
            if await self._is_listed(name):
                raise
            log.info("gateway: %s is not served any more: %s", name, error)
            if self.served.get(name) is topic:
                del self.served[name]
            topic.close()

    def _lost(self, name: TopicName) -> None:
        """Another gateway has it."""
        if name in self.served:
            self.served[name].lose()

    @property
    def moves(self) -> int:
        """How many subscriptions are on their way to the brokers."""
        return sum(topic.moves for topic in self.served.values())

    def _send_away(self) -> None:
        """The store is away, and others may reach it."""
        for topic in list(self.served.values()):
            topic.send_away()

    def clock_was_set(self) -> None:
        """What waits for its time waits by the clock as it is now."""
        for topic in list(self.served.values()):
            topic.clock_was_set()

    def close(self) -> None:
        """All consumers are closed."""
        for topic in self.served.values():
            topic.close()

    async def _each(self, what: str, work: Callable[[SubscribedTopic], Awaitable[None]]) -> list[OffloadError]:
        return await self._round(what, {(name, None): partial(work, topic) for name, topic in self.served.items()})

    async def _round(self, what: str, works: Works, within: float | None = ROUND) -> list[OffloadError]:
        """All at the same time: none waits for another, nor a round for one that hangs: that has no second one beside
        it. The first that went wrong of each topic since the last round; what nobody foresaw is in the log."""
        begun = [self._begin(what, key, work()) for key, work in works.items() if (what, *key) not in self._rounds]
        try:
            if begun:
                await asyncio.wait(begun, timeout=within)
        except asyncio.CancelledError:
            for task in begun:
                task.cancel()
            raise
        await asyncio.sleep(0)  # so that all have told
        return list(self._failed.pop(what, {}).values())

    def _begin(self, what: str, key: RoundKey, work: Awaitable[None]) -> asyncio.Future[None]:
        task = self._rounds[what, *key] = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._is_done(what, key, task))
        return task

    def _is_done(self, what: str, key: RoundKey, task: asyncio.Future[None]) -> None:
        del self._rounds[what, *key]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OffloadError):
            self._failed[what].setdefault(key[0], error)
        elif error is not None:
            log.error("gateway: %s", key[0], exc_info=error, extra={"see": "gateway-defect"})

    async def _topic(self, name: TopicName) -> SubscribedTopic:
        found = self.served.get(name)
        return await asyncio.shield(self._opened(name)) if found is None else found

    def _opened(self, name: TopicName) -> asyncio.Task[SubscribedTopic]:
        """Once, however many ask for it at the same time."""
        opening = self._opening.get(name)
        if opening is None:
            opening = self._opening[name] = asyncio.create_task(self._open(name))
            opening.add_done_callback(lambda _: self._opening.pop(name, None))
        return opening

    def _open_ahead(self, name: TopicName) -> None:
        """Of what is archived: a client that asks for it subscribes soon. Whoever does then hears what went wrong."""
        if name not in self.served and name not in self._opening and len(self._opening) < MOST_AHEAD:
            self._opened(name).add_done_callback(lambda opening: opening.cancelled() or opening.exception())

    async def _open(self, name: TopicName) -> SubscribedTopic:
        try:
            entries = await self._workers.know(lambda: self._archived.open(name))
        except FatalError as error:
            if await self._is_listed(name):
                raise
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, str(error)) from error
        found = self.served[name] = self._make(entries, self.traffic[name.namespace])
        found.expect()
        return found

    async def _is_archived(self, name: TopicName) -> bool:
        """By one request, where the list takes several; where it is not answered, the list says."""
        if name in self.served:
            return True
        try:
            return await asyncio.wait_for(self._workers.know(lambda: self._archived.has(name)), LIST_WAITED_FOR)
        except (TimeoutError, OffloadError) as error:
            log.info("gateway: the list is asked whether %s is archived: %s", name, error)
            return False

    async def _is_listed(self, name: TopicName) -> bool:
        """What an error does not tell: whether the archive has the topic. Clients give up for good where it has not."""
        return name in (await self._known(lambda before: name in before.topics)).topics

    async def _known(self, says: Callable[[TopicDirectory], bool] = lambda _: False) -> TopicDirectory:
        """Listed once, however many ask at the same time. `says`: whether the list from before has what is asked for;
        then nobody waits long for a new one."""
        if asyncio.get_running_loop().time() - self._listed_at < LIST_KEPT:
            return self._directory
        if self._listing is None:
            self._listing = asyncio.create_task(self._list())
            self._listing.add_done_callback(self._listed)
        listing = self._listing
        if not says(self._directory):
            return await asyncio.shield(listing)
        try:
            return await asyncio.wait_for(asyncio.shield(listing), LIST_WAITED_FOR)
        except (TimeoutError, OffloadError) as error:
            log.info("gateway: the list of topics is an old one: %s", error)
            return self._directory

    async def _list(self) -> TopicDirectory:
        return await self._workers.know(lambda: directory_of(self._archived.names()))

    def _listed(self, listing: asyncio.Task[TopicDirectory]) -> None:
        self._listing = None
        if not listing.cancelled() and listing.exception() is None:
            self._listed_at = asyncio.get_running_loop().time()
            if listing.result().topics != self._directory.topics:
                self._directory = listing.result()

    def _check(self, namespace: str, role: str) -> None:
        if not self._permissions.may_read(role, namespace):
            raise RefusedError(ErrorCode.AUTHORIZATION, f"{role or 'nobody'} may not read {namespace}")


def _needs_no_owner() -> bool:
    return True
