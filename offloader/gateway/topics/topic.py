"""A topic that is served: its entries, and its subscriptions."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakValueDictionary

from offloader._proto.pulsar_wire_pb2 import ConsumerStatsResponse
from offloader.archive.spark.values import parse_publish_time
from offloader.cursors.copy_store import read_copy
from offloader.cursors.core.cursor import CACHE_BYTES
from offloader.cursors.core.records import CursorMarker, FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.log import HandedOverError
from offloader.cursors.stored import first_of
from offloader.errors import FatalError, OffloadError
from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import DEFAULT_LIMITS, ConsumerKey, DispatchLimits, EntryAck, Joining
from offloader.gateway.server.limits import Shares
from offloader.gateway.server.ports import LATEST, ConsumerPort, SubscribedConsumer, Subscribing
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.acks import BatchSizes, SubscriptionAcks, SubscriptionCursor, VolatileCursor, position_of
from offloader.gateway.topics.quota import SubscriptionBounds, SubscriptionQuota, with_role
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
    counts what all of them get. `follows`: new segments are looked for as long as it is served, not only when a
    subscription is opened. `bounds`: of its durable subscriptions."""

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
        follows: bool = True,
        bounds: SubscriptionBounds = SubscriptionBounds(),  # noqa: B008 (a value)
    ) -> None:
        self.entries = entries
        self.subscriptions: dict[str, ServedSubscription] = {}
        self._store = store
        self._quota = SubscriptionQuota(store, entries.name, bounds)
        self._workers = workers
        self._new_token = new_token
        self._promises = promises
        self._traffic = traffic
        self._read_ahead = read_ahead
        self._parts: dict[str, int] = {}  # of what may be read ahead, by subscription
        self._cache_bytes = cache_bytes
        self._follows = follows
        self._opening = WeakValueDictionary[str, asyncio.Lock]()  # by subscription
        self._left_at = -math.inf  # when its last subscription ended
        self._coming = 0  # who are about to get a subscription
        self._is_closed = False
        self._deletions = entries.deletions()
        self._sizes = BatchSizes()

    async def subscribe(
        self, asked: Subscribing, consumer: ConsumerPort, key: object, is_ours: Callable[[], bool]
    ) -> SubscribedConsumer:
        """Raises RefusedError, and what the store raises. `is_ours`: whether no other gateway has taken the topic."""
        self._coming += 1
        try:
            found = await self._found(asked, is_ours)
        finally:
            self._coming -= 1
        if found.durable != asked.durable:
            other = "a durable one" if found.durable else "a reader's"
            raise RefusedError(ErrorCode.NOT_ALLOWED, f"subscription {asked.subscription} is {other}")
        joining = Joining(key, asked.type, asked.consumer_name, asked.priority, asked.key_policy, asked.epoch)
        await found.join(joining, consumer)
        promises = self._promises and found.durable
        return Member(found, self.entries, self._workers, joining, promises)

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
        is_used = self.subscriptions or self._coming
        return not is_used and asyncio.get_running_loop().time() - self._left_at >= KEPT_FOR

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

    async def _found(self, asked: Subscribing, is_ours: Callable[[], bool]) -> ServedSubscription:
        async with self._opening.setdefault(asked.subscription, asyncio.Lock()):
            return self.subscriptions.get(asked.subscription) or await self._new(asked, is_ours)

    async def _new(self, asked: Subscribing, is_ours: Callable[[], bool]) -> ServedSubscription:
        found = await self._open(asked)
        self.subscriptions[asked.subscription] = found
        if self._is_closed or not is_ours():
            found.end()
            why = "is served no more" if self._is_closed else "is another gateway's"
            raise LookUpAgainError(f"{asked.topic} {why}")
        return found

    async def _open(self, asked: Subscribing) -> ServedSubscription:
        if not self._follows:
            await self._refresh()
        cursor: SubscriptionCursor
        if asked.durable:
            cursor = durable = await self._owned(asked)
            await self._skip_deleted(durable)
        else:
            most = min(self._cache_bytes, CACHE_BYTES)
            cursor = VolatileCursor(CursorMarker(await self._reader_begin(asked)), most_bytes=most)
        name = self.entries.name
        return ServedSubscription(
            asked.subscription,
            self.entries,
            cursor,
            Dispatcher(str(name), partition=name.partition, limits=self._limits(asked.subscription)),
            self._workers,
            sizes=self._sizes,
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
        except HandedOverError as error:
            raise RefusedError(ErrorCode.NOT_ALLOWED, str(error)) from error
        except FatalError as error:
            log.info("gateway: %s: subscription %s: %s", self.entries.name, asked.subscription, error)
            why = "the store refuses this subscription; if its name is too long, choose one of at most 255 bytes"
            raise RefusedError(ErrorCode.NOT_ALLOWED, why) from error

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
        if state is None:
            state = FirstState(self._checked(self._begin(asked)))
        self._quota.take(asked.subscription, asked.role)
        return replace(state, properties=with_role(state.properties, asked.role))

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
            if subscription.is_deleted:
                self._quota.give_back(subscription.name)
            self._read_ahead.give_back(self._parts.pop(subscription.name))
            self._left_at = asyncio.get_running_loop().time()


FROM_COPY = "offloader.from-copy"
"""The subscription property by which a client asks for it: `newest`, or a time."""
NEWEST = "newest"


def copied(store: ObjectStore, asked: Subscribing) -> FirstState | None:
    """With what a subscription begins, by the copy of Pulsar's that the client asks for; None: it asks for none. Raises
    RefusedError where there is no such copy."""
    wanted = asked.properties.get(FROM_COPY)
    if wanted is None:
        return None
    copy = read_copy(store, asked.topic, _moment(wanted))
    cursor = None if copy is None else copy.cursor(asked.subscription)
    if copy is None or cursor is None:
        what = f"no copy of a subscription {asked.subscription} ({FROM_COPY}: {wanted})"
        raise RefusedError(ErrorCode.NOT_ALLOWED, f"{asked.topic}: the archive has {what}")
    return first_of(cursor, copy.incarnation)


def _moment(wanted: str) -> int | None:
    if wanted == NEWEST:
        return None
    try:
        return parse_publish_time(wanted)
    except ValueError as error:
        why = f"{FROM_COPY}: {error}; or write `{NEWEST}`"
        raise RefusedError(ErrorCode.NOT_ALLOWED, why) from error


@dataclass(frozen=True)
class Member:
    """A consumer of a subscription, as its connection sees it. `promises`: an acknowledgement is answered once it is
    durable."""

    subscription: ServedSubscription
    entries: TopicEntries
    workers: Workers
    joining: Joining
    promises: bool

    @property
    def partition(self) -> int:
        return self.entries.name.partition

    @property
    def key(self) -> ConsumerKey:
        return self.joining.key

    def flow(self, permits: int) -> None:
        self.subscription.flow(self.key, permits)

    def acknowledge(self, acks: Sequence[EntryAck]) -> bool:
        return self.subscription.acknowledge(acks)

    def acknowledge_up_to(self, place: Place, left: int) -> bool:
        return self.subscription.acknowledge_up_to(place, left)

    def redeliver(self, places: Sequence[Place] | None, epoch: int | None) -> None:
        self.subscription.redeliver(self.key, places, epoch)

    def leave(self) -> None:
        self.subscription.leave(self.key)

    async def stats(self) -> ConsumerStatsResponse:
        backlog = await self.subscription.backlog()
        state = self.subscription.state(self.key)
        return ConsumerStatsResponse(
            consumer_name=self.joining.name,
            available_permits=state.permits % 2**64,  # below zero, too, as brokers write it
            unacked_messages=state.unacknowledged,
            blocked_on_unacked_messages=state.is_blocked,
            type=self.joining.type.name.title(),  # Key_Shared, as brokers write it
            message_backlog=backlog,
        )

    async def durable(self) -> None:
        if self.promises:
            await self.subscription.flush()

    async def seek(self, place: Place, left: int | None) -> None:
        before = await self.workers.know(lambda: self.entries.previous(place))
        await self.subscription.reset(before, None if left is None else (place, left))

    async def seek_time(self, published_ms: int) -> None:
        before = await self.workers.read(lambda: self.entries.before_time(published_ms))
        await self.subscription.reset(before)

    async def last_message(self) -> tuple[ServedEnd, Place]:
        return await self.workers.know(self.entries.end), await self.subscription.mark_delete()

    async def unsubscribe(self) -> None:
        """Raises RefusedError."""
        await self.subscription.forget(self.key)
