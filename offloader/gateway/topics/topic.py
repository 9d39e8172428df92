"""A topic that is served: its entries, and its subscriptions."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

from offloader.cursors.core.cursor import CACHE_BYTES
from offloader.cursors.core.records import CursorMarker, FirstState
from offloader.cursors.durable import DurableCursor
from offloader.errors import FatalError, OffloadError
from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import DEFAULT_LIMITS, DispatchLimits, Joining
from offloader.gateway.server.ports import LATEST, ConsumerPort, SubscribedConsumer, Subscribing
from offloader.gateway.shares import Shares
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.acks import SubscriptionAcks, SubscriptionCursor, VolatileCursor, position_of
from offloader.gateway.topics.beginning import copied
from offloader.gateway.topics.leading import Leader, not_here, outcome_of
from offloader.gateway.topics.member import Member
from offloader.gateway.topics.moving import Outcome
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.gateway.values import BEFORE_ALL, ErrorCode, LookUpAgainError, RefusedError, ServedEnd
from offloader.metadata.layout import subscription_folder
from offloader.model import Place, Position
from offloader.ports.object_store import ObjectStore

KEPT_FOR = 60.0  # seconds
KEPT_AT_FIRST = 10.0  # seconds for which it waits for its first subscription


log = logging.getLogger(__name__)


class SubscribedTopic:
    """`promises`: acknowledgements are answered once they are durable. `store`: where its subscriptions are. `traffic`:
    counts what all of them get. `leader`: leads consumers to brokers; None: nobody does. `follows`: new segments are
    looked for as long as it is served, not only when a subscription is opened."""

    def __init__(
        self,
        entries: TopicEntries,
        store: ObjectStore,
        workers: Workers,
        new_token: Callable[[], str],
        *,
        promises: bool,
        traffic: Traffic,
        read_ahead: Shares,
        cache_bytes: int = CACHE_BYTES,
        leader: Leader | None = None,
        follows: bool = True,
    ) -> None:
        self.entries = entries
        self.subscriptions: dict[str, ServedSubscription] = {}
        self._store = store
        self._workers = workers
        self._new_token = new_token
        self._promises = promises
        self._traffic = traffic
        self._read_ahead = read_ahead
        self._parts: dict[str, int] = {}  # of what may be read ahead, by subscription
        self._cache_bytes = cache_bytes
        self._leader = leader
        self._follows = follows
        self._opening = WeakValueDictionary[str, asyncio.Lock]()  # by subscription
        self._left_at = -math.inf  # when its last subscription ended
        self._coming = 0  # who are about to get a subscription
        self._is_closed = False
        self._deletions = entries.deletions()

    async def subscribe(
        self, asked: Subscribing, consumer: ConsumerPort, key: object, is_ours: Callable[[], bool]
    ) -> SubscribedConsumer:
        """Raises RefusedError, and what the store raises. `is_ours`: whether no other gateway has taken the topic."""
        self._coming += 1
        try:
            found = await self._found(asked, is_ours)
        finally:
            self._coming -= 1
        if found is None:
            assert self._leader is not None
            return await self._leader.led(asked.subscription, consumer)
        if found.durable != asked.durable:
            other = "a durable one" if found.durable else "a reader's"
            raise RefusedError(ErrorCode.NOT_ALLOWED, f"subscription {asked.subscription} is {other}")
        joining = Joining(key, asked.type, asked.consumer_name, asked.priority, asked.key_policy, asked.epoch)
        await found.join(joining, consumer, is_placed=not asked.is_latest)
        promises = self._promises and found.durable
        return Member(found, self.entries, self._workers, joining, promises, partial(self._end_for, found))

    async def _end_for(self, one: ServedSubscription) -> ServedEnd:
        return await self._leader.end_for(one) if self._leader else await self._workers.know(self.entries.end)

    async def lead_away(self) -> None:
        """Consumers that have all that is archived go to the brokers, where that is wanted."""
        if self._leader is not None:
            await self._leader.look_round(list(self.subscriptions.values()))

    async def refresh(self) -> None:
        """Look for what was archived since."""
        if self._follows:
            await self._refresh()
        waiting = [one for one in self.subscriptions.values() if one.waits_for_end]
        if waiting and (await self._workers.know(self.entries.end)).terminated:
            for one in waiting:
                one.look_for_end_soon()

    async def _refresh(self) -> None:
        """Raises the first thing that went wrong, once all have heard of what is new."""
        grown = await self._workers.know(self.entries.refresh)
        deletions = self.entries.deletions()
        failed: list[OffloadError] = []
        for subscription in list(self.subscriptions.values()):
            try:
                if deletions != self._deletions and subscription.durable:
                    await subscription.skip_deleted()
            except OffloadError as error:
                failed.append(error)
            if grown:
                subscription.grown()
        if failed:  # which is tried again with the next look
            raise failed[0]
        self._deletions = deletions

    def flushes(self) -> dict[ServedSubscription, Callable[[], Awaitable[None]]]:
        """What writes what has changed: of each subscription by itself, for one that hangs holds up no other."""
        durable = [one for one in self.subscriptions.values() if one.durable]
        return {one: partial(self._workers.in_rounds, "flush", partial(self._flush, one)) for one in durable}

    async def _flush(self, one: ServedSubscription) -> None:
        try:
            await one.flush()
        except LookUpAgainError:
            log.debug("gateway: %s of %s ended before it was written", one.name, self.entries.name)
        except OffloadError:
            raise
        except Exception as error:  # noqa: BLE001 (it is in the log)
            one.fail(error)

    def let_go(self) -> None:
        """Of the subscriptions that nobody has used for a while."""
        for one in list(self.subscriptions.values()):
            if one.is_idle:
                one.end()

    def expect(self) -> None:
        """Somebody has asked for it, and may be about to subscribe."""
        self._left_at = asyncio.get_running_loop().time() - KEPT_FOR + KEPT_AT_FIRST

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it, and nobody has used it for a while: to open it again takes time."""
        is_used = self.subscriptions or self._coming or self.moves
        return not is_used and asyncio.get_running_loop().time() - self._left_at >= KEPT_FOR

    @property
    def moves(self) -> int:
        """How many subscriptions are on their way to the brokers."""
        return 0 if self._leader is None else self._leader.moves

    def lose(self) -> None:
        """Another gateway has it: durable consumers look up and go there. Readers need no owner, and stay."""
        for subscription in [one for one in self.subscriptions.values() if one.durable]:
            subscription.end()

    def send_away(self) -> None:
        """Durable consumers look up again. Readers need no owner, and wait."""
        for subscription in [one for one in self.subscriptions.values() if one.durable]:
            subscription.send_away()

    def clock_was_set(self) -> None:
        """What waits for its time waits by the clock as it is now."""
        for subscription in list(self.subscriptions.values()):
            subscription.clock_was_set()

    def close(self) -> None:
        """All consumers are closed. Who is about to subscribe looks up again: no round comes here any more."""
        self._is_closed = True
        for subscription in list(self.subscriptions.values()):
            subscription.end()
        self.entries.close()

    async def _found(self, asked: Subscribing, is_ours: Callable[[], bool]) -> ServedSubscription | None:
        """None: it is at the brokers."""
        while True:
            found: ServedSubscription | asyncio.Task[Outcome] | None = None
            if self._leader is not None:
                found = self._leader.move_of(asked.subscription)
            if found is None:
                async with self._opening.setdefault(asked.subscription, asyncio.Lock()):
                    found = self.subscriptions.get(asked.subscription) or await self._new(asked, is_ours)
            if isinstance(found, ServedSubscription):
                return found
            if await outcome_of(found) is Outcome.THERE:
                return None

    async def _new(self, asked: Subscribing, is_ours: Callable[[], bool]) -> ServedSubscription | asyncio.Task[Outcome]:
        found = await self._open(asked)
        if not isinstance(found, ServedSubscription):
            return found
        self.subscriptions[asked.subscription] = found
        if self._is_closed or not is_ours():
            found.end()
            why = "is served no more" if self._is_closed else "is another gateway's"
            raise LookUpAgainError(f"{asked.topic} {why}")
        return found

    async def _open(self, asked: Subscribing) -> ServedSubscription | asyncio.Task[Outcome]:
        """Or its way to the brokers."""
        if not self._follows:
            await self._refresh()
        cursor: SubscriptionCursor
        if asked.durable:
            cursor = durable = await self._owned(asked)
            if (refused := not_here(asked.subscription, durable)) is not None:
                if self._leader is None:
                    raise refused
                return self._leader.go_on(asked.subscription, durable)
            await self._skip_deleted(durable)
        else:
            cursor = VolatileCursor(CursorMarker(await self._reader_begin(asked)), cache_bytes=1 << 62)
        name = self.entries.name
        return ServedSubscription(
            asked.subscription,
            self.entries,
            cursor,
            Dispatcher(str(name), partition=name.partition, limits=self._limits(asked.subscription)),
            self._workers,
            durable=asked.durable,
            traffic=Traffic(self._traffic),
            ended=self._ended,
        )

    def _limits(self, subscription: str) -> DispatchLimits:
        part = self._parts[subscription] = self._read_ahead.take(DEFAULT_LIMITS.read_ahead_bytes)
        return DEFAULT_LIMITS._replace(read_ahead_bytes=part)

    async def _owned(self, asked: Subscribing) -> DurableCursor:
        """Of one that is there only its own state counts. Raises RefusedError where the store says for good that it
        cannot have it: its name is too long for a file system, say."""
        try:
            return await self._opened(asked)
        except FatalError as error:
            raise RefusedError(ErrorCode.NOT_ALLOWED, str(error)) from error

    async def _opened(self, asked: Subscribing) -> DurableCursor:
        folder = subscription_folder(self.entries.name, asked.subscription)
        first, size = partial(self._first, asked), self._cache_bytes
        return await self._workers.flush(
            lambda: DurableCursor.open(self._store, folder, first, self._new_token, cache_bytes=size)
        )

    async def _skip_deleted(self, cursor: DurableCursor) -> None:
        """Raises RefusedError where it would not get everything else."""
        await self._workers.cursor(lambda: SubscriptionAcks(cursor).skip_what_is_deleted(self.entries))
        await self._workers.know(lambda: self._check_missing(cursor.mark_delete.place))

    async def _reader_begin(self, asked: Subscribing) -> Position:
        """The mark-delete position with which a reader begins. Raises RefusedError where it would not get
        everything."""
        if not asked.rollback_seconds:
            return await self._workers.know(lambda: self._checked(self._begin(asked)))
        since = int(time.time() - asked.rollback_seconds) * 1000
        begin = await self._workers.read(lambda: self.entries.before_time(since))
        return await self._workers.know(lambda: self._checked(begin))

    # In a thread

    def _first(self, asked: Subscribing) -> FirstState:
        """Of a subscription that has no state of its own. Raises RefusedError where it would not get everything."""
        state = copied(self._store, asked)
        return FirstState(self._checked(self._begin(asked))) if state is None else state

    def _checked(self, begin: Place) -> Position:
        self._check_missing(begin)
        return position_of(begin, self.entries.ledgers())

    def _check_missing(self, after: Place) -> None:
        if (missing := self.entries.missing_behind(after)) is not None:
            raise RefusedError(ErrorCode.NOT_ALLOWED, missing)

    def _begin(self, asked: Subscribing) -> Place:
        """The mark-delete position of a subscription that is new."""
        start = asked.start
        if start is None or asked.durable:
            start = BEFORE_ALL if asked.earliest else LATEST
        if start >= LATEST:
            return self.entries.end().last or BEFORE_ALL
        if start <= BEFORE_ALL:
            return BEFORE_ALL
        return self.entries.previous(start)  # clients drop what they do not want of it

    # On the loop

    def _ended(self, subscription: ServedSubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self._read_ahead.give_back(self._parts.pop(subscription.name))
            self._left_at = asyncio.get_running_loop().time()
