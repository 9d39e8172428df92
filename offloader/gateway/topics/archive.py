"""All topics of an archive, as a gateway serves them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from offloader.errors import FatalError, OffloadError
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.protocol.schemas import check_readable
from offloader.gateway.protocol.topic_lists import TopicDirectory, matching, partition_count
from offloader.gateway.server.ports import ConsumerPort, SubscribedConsumer, Subscribing
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.listings import LIST_KEPT, LIST_WAITED_FOR, NamespaceLists
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.gateway.values import ErrorCode, RefusedError
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema

log = logging.getLogger(__name__)

MOST_AHEAD = 4  # topics that are being opened, with which another one is opened before somebody subscribes
GIVEN_BACK = 20  # topics in a round, which has other things to do
ROUND = 10.0  # seconds, for which a round waits
NOT_DURABLE = (
    "this gateway has no durable subscriptions (gateway.durableSubscriptions is false): use a reader, or a non-durable "
    "subscription"
)
RoundKey = tuple[TopicName, ServedSubscription | None]  # None: all of the topic
Works = dict[RoundKey, Callable[[], Awaitable[None]]]


class ArchivedTopics(Protocol):
    """What the archive has. All calls block."""

    def names(self, namespace: str) -> Sequence[TopicName]: ...

    def has(self, topic: TopicName) -> bool:
        """Whether it is one of `names`, as far as one request tells; where that does not, it is not."""
        ...

    def partitions(self, topic: TopicName) -> int | None:
        """How many its topic has by Pulsar's metadata, as copied. 0: it is an ordinary topic. None: no copy."""
        ...

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]: ...

    def open(self, topic: TopicName) -> TopicEntries:
        """Raises FatalError where there is none."""
        ...


class Permissions(Protocol):
    """The namespaces in which a role may read topics, and those in which it may have durable subscriptions."""

    def may_read(self, role: str, namespace: str) -> bool: ...

    def may_subscribe(self, role: str, namespace: str) -> bool: ...


class ArchiveTopics:
    """`ServedTopics` of an archive. `make`: a served topic of its entries, which counts what its namespace gets.
    `here`: where clients reach this gateway. `owners`: of durable subscriptions; None: there are none, and nothing is
    written."""

    def __init__(
        self,
        archived: ArchivedTopics,
        make: Callable[[TopicEntries, Traffic], SubscribedTopic],
        workers: Workers,
        permissions: Permissions,
        here: Callable[[], Address],
        owners: TopicOwners | None,
    ) -> None:
        self.served: dict[TopicName, SubscribedTopic] = {}
        self.traffic: defaultdict[str, Traffic] = defaultdict(Traffic)  # by namespace
        self._archived = archived
        self._make = make
        self._workers = workers
        self._permissions = permissions
        self._here = here
        self._owners = owners
        if owners is not None:
            owners.lost, owners.away = self._lost, self._send_away
        self._opening: dict[TopicName, asyncio.Task[SubscribedTopic]] = {}
        self._lists = NamespaceLists(lambda namespace: workers.know(lambda: archived.names(namespace)))
        self._numbers = itertools.count()
        self._rounds: dict[tuple[str, TopicName, ServedSubscription | None], asyncio.Future[None]] = {}  # under way
        self._failed: defaultdict[str, dict[TopicName, OffloadError]] = defaultdict(dict)

    async def partitions(self, topic: TopicName, role: str) -> int:
        self._check(topic.namespace, role)
        if str(topic) not in self._before(topic).partitions and await self._is_archived(topic):
            self._open_ahead(topic)
            return 0
        known = await self._lists.now(
            topic.namespace, lambda before: topic in before.topics or str(topic) in before.partitions
        )
        if topic in known.topics:
            return 0
        parts = known.partitions.get(str(topic))
        if not parts:
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, f"{topic} is not archived")
        count = partition_count(parts, await self._workers.know(lambda: self._archived.partitions(parts[-1])))
        if not count:
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, f"{topic} is not archived")
        return count

    async def address(self, topic: TopicName, role: str) -> Address:
        """Also of what is no topic: clients look patterns up, too."""
        self._check(topic.namespace, role)
        if topic in self._before(topic).topics:
            self._open_ahead(topic)
        return self._here() if self._owners is None else await self._owners.address(topic)

    @property
    def answers_gateways(self) -> bool:
        return self._owners is not None and not self._owners.is_away

    async def topics(self, namespace: str, role: str) -> Sequence[str]:
        self._check(namespace, role)
        return (await self._lists.now(namespace)).names.get(namespace, [])

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
        if asked.durable and self._owners is None:
            raise RefusedError(ErrorCode.NOT_ALLOWED, NOT_DURABLE)
        if asked.durable and not self._permissions.may_subscribe(role, asked.topic.namespace):
            who = f"the role {role}" if role else "a client without a role"
            raise RefusedError(
                ErrorCode.AUTHORIZATION,
                f"{who} may not have durable subscriptions in {asked.topic.namespace} (gateway.durableRoles); a reader "
                "needs none",
            )
        await self._check_schema(asked)
        asked = replace(asked, role=role)
        is_ours = await self._own(self._owners, asked.topic) if asked.durable and self._owners else _needs_no_owner
        topic = await self._topic(asked.topic)  # again: that one may have been let go of meanwhile
        return await topic.subscribe(asked, consumer, next(self._numbers), is_ours)

    async def _check_schema(self, asked: Subscribing) -> None:
        """Of a topic of which no schema is archived nothing is known."""
        reader = asked.schema
        if reader is None:
            return

        def check() -> None:
            if found := self._archived.schemas(asked.topic):
                check_readable(asked.topic, max(found, key=lambda one: (one.timestamp, one.version)), reader)

        await self._workers.know(check)

    async def _own(self, owners: TopicOwners, topic: TopicName) -> Callable[[], bool]:
        """What is not archived is not claimed: a look-up has told, or its opening does."""
        if topic not in self._opening and topic not in self._before(topic).topics:
            await self._topic(topic)
        is_ours, _ = await asyncio.gather(owners.own(topic), self._topic(topic))
        return is_ours

    async def refresh(self) -> list[OffloadError]:
        """Look at all topics that are served for what was archived since; returns what went wrong."""
        return await self._each("refresh", lambda topic: self._workers.in_rounds("know", lambda: self._refresh(topic)))

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
        return failed if all_of_it or self._owners is None else failed + await self._give_back(self._owners)

    async def _give_back(self, owners: TopicOwners) -> list[OffloadError]:
        """What is not served, some of it. Somebody may come while it waits for its turn."""

        async def give(name: TopicName) -> None:
            if not self._is_used(name):
                await owners.give_back(name)

        idle = [name for name in owners.owned if not self._is_used(name) and not owners.was_asked_for(name)]
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
            log.info("gateway: %s is not served: %s", name, error)
            raise RefusedError(ErrorCode.TOPIC_NOT_FOUND, f"{name} is not archived") from error
        found = self.served[name] = self._make(entries, self.traffic[name.namespace])
        found.expect()
        return found

    async def _is_archived(self, name: TopicName) -> bool:
        """By one request, where the list takes several; where it is not answered, the list says."""
        return name in self.served or await self._has(name)

    async def _has(self, name: TopicName) -> bool:
        try:
            return await asyncio.wait_for(self._workers.know(lambda: self._archived.has(name)), LIST_WAITED_FOR)
        except (TimeoutError, OffloadError) as error:
            log.info("gateway: the list is asked whether %s is archived: %s", name, error)
            return False

    async def _is_listed(self, name: TopicName) -> bool:
        """What an error does not tell: whether the archive has the topic. Clients give up for good where it has not."""
        if await self._has(name):
            return True
        return name in (await self._lists.now(name.namespace, lambda before: name in before.topics)).topics

    def _before(self, topic: TopicName) -> TopicDirectory:
        return self._lists.before(topic.namespace)

    def _check(self, namespace: str, role: str) -> None:
        if not self._permissions.may_read(role, namespace):
            raise RefusedError(ErrorCode.AUTHORIZATION, f"{role or 'nobody'} may not read {namespace}")


def _needs_no_owner() -> bool:
    return True
