"""A topic that is served: its entries, and its subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from offloader.cursors.core.cursor import CACHE_BYTES
from offloader.cursors.core.records import CursorMarker
from offloader.cursors.durable import DurableCursor
from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import Joining
from offloader.gateway.server.ports import LATEST, ConsumerPort, Subscribing
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.acks import SubscriptionCursor, VolatileCursor, position_of
from offloader.gateway.topics.member import Member
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import BEFORE_ALL, ErrorCode, RefusedError
from offloader.metadata.layout import subscription_folder
from offloader.model import Place
from offloader.ports.object_store import ObjectStore


class SubscribedTopic:
    """`promises`: acknowledgements are answered once they are durable. `store`: where its subscriptions are."""

    def __init__(
        self,
        entries: TopicEntries,
        store: ObjectStore,
        workers: Workers,
        new_token: Callable[[], str],
        *,
        promises: bool,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self.entries = entries
        self.subscriptions: dict[str, ServedSubscription] = {}
        self._store = store
        self._workers = workers
        self._new_token = new_token
        self._promises = promises
        self._cache_bytes = cache_bytes
        self._opening = asyncio.Lock()

    async def subscribe(self, asked: Subscribing, consumer: ConsumerPort, key: object) -> Member:
        """Raises RefusedError, and what the store raises."""
        async with self._opening:
            found = self.subscriptions.get(asked.subscription)
            if found is None:
                found = await self._open(asked)
                self.subscriptions[asked.subscription] = found
        if found.durable != asked.durable:
            other = "a durable one" if found.durable else "a reader's"
            raise RefusedError(ErrorCode.NOT_ALLOWED, f"subscription {asked.subscription} is {other}")
        joining = Joining(key, asked.type, asked.consumer_name, asked.priority, asked.key_policy, asked.epoch)
        await found.join(joining, consumer)
        return Member(found, self.entries, self._workers, joining, self._promises and found.durable)

    async def refresh(self) -> None:
        """Look for what was archived since."""
        if await self._workers.know(self.entries.refresh):
            for subscription in list(self.subscriptions.values()):
                subscription.grown()

    async def flush(self) -> None:
        """Write what has changed, and let go of what nobody has used for a while. Raises the first thing that went
        wrong, once all were tried."""
        durable = [one for one in self.subscriptions.values() if one.durable]
        answers = await asyncio.gather(*(one.flush() for one in durable), return_exceptions=True)
        for one in durable:
            if one.is_idle:
                one.end()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it."""
        return not self.subscriptions and not self._opening.locked()

    def close(self) -> None:
        """All consumers are closed."""
        for subscription in list(self.subscriptions.values()):
            subscription.end()
        self.entries.close()

    async def _open(self, asked: Subscribing) -> ServedSubscription:
        begin = await self._begin(asked)
        if (missing := await self._workers.know(lambda: self.entries.missing_behind(begin))) is not None:
            raise RefusedError(ErrorCode.NOT_ALLOWED, missing)
        ledgers = await self._workers.know(self.entries.ledgers)
        marker = CursorMarker(position_of(begin, ledgers))
        cursor: SubscriptionCursor
        if asked.durable:
            folder = subscription_folder(self.entries.name, asked.subscription)
            cursor = await self._workers.flush(
                lambda: DurableCursor.open(self._store, folder, marker, self._new_token, cache_bytes=self._cache_bytes)
            )
        else:
            cursor = VolatileCursor(marker, cache_bytes=1 << 62)
        name = self.entries.name
        return ServedSubscription(
            asked.subscription,
            self.entries,
            cursor,
            Dispatcher(str(name), partition=name.partition),
            self._workers,
            durable=asked.durable,
            ended=self._ended,
        )

    async def _begin(self, asked: Subscribing) -> Place:
        """The mark-delete position of a subscription that is new."""
        entries, start = self.entries, asked.start
        if start is None or asked.durable:
            start = BEFORE_ALL if asked.earliest else LATEST
        if start >= LATEST:
            return (await self._workers.know(entries.end)).last or BEFORE_ALL
        if start <= BEFORE_ALL:
            return BEFORE_ALL
        return await self._workers.know(lambda: entries.previous(start))  # clients drop what they do not want of it

    def _ended(self, subscription: ServedSubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
