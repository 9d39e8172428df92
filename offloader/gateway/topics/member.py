"""A consumer of a subscription, as its connection sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from offloader._proto.pulsar_wire_pb2 import ConsumerStatsResponse
from offloader.gateway.core.events import ConsumerKey, EntryAck, Joining
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import ServedEnd
from offloader.model import Place


@dataclass(frozen=True)
class Member:
    """`promises`: an acknowledgement is answered once it is durable. `end`: asks for the last message that it gets."""

    subscription: ServedSubscription
    entries: TopicEntries
    workers: Workers
    joining: Joining
    promises: bool
    end: Callable[[], Awaitable[ServedEnd]]

    @property
    def partition(self) -> int:
        return self.entries.name.partition

    @property
    def key(self) -> ConsumerKey:
        return self.joining.key

    def flow(self, permits: int) -> None:
        self.subscription.flow(self.key, permits)

    def acknowledge(self, acks: Sequence[EntryAck]) -> None:
        self.subscription.acknowledge(acks)

    def acknowledge_up_to(self, place: Place, left: int) -> None:
        self.subscription.acknowledge_up_to(place, left)

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
        return await self.end(), await self.subscription.mark_delete()

    async def unsubscribe(self) -> None:
        """Raises RefusedError."""
        await self.subscription.forget(self.key)
