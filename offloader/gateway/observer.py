"""What can be seen of a running gateway: gathered on its loop, for whoever asks from another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import offloader.metrics.gateway_definitions as d
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.server.listener import GatewayListener
from offloader.gateway.status import GatewayStatus, NamespaceStatus
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.metrics.gateway import Sample

PATIENCE = 10.0  # seconds, for a loop that does not turn
T = TypeVar("T")


class GatewayObserver:
    """Made on the loop; asked from other threads. What cannot be had in some seconds raises TimeoutError."""

    def __init__(self, topics: ArchiveTopics, listener: GatewayListener, workers: Workers, owners: TopicOwners) -> None:
        self._loop = asyncio.get_running_loop()
        self._topics = topics
        self._listener = listener
        self._workers = workers
        self._owners = owners

    def status(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self._on_loop(self._seen()))

    def samples(self) -> list[Sample]:
        """For metrics."""
        return self._on_loop(self._sampled())

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _seen(self) -> GatewayStatus:
        traffic, connections = self._listener.traffic, self._listener.connections
        return GatewayStatus(
            at=self._loop.time(),
            connections=len(connections),
            consumers=sum(len(one.consumers) for one in connections),
            buffered=sum(one.buffered for one in connections),
            accepted=traffic.accepted,
            full=traffic.full,
            refused=dict(traffic.refused),
            work=dict(self._workers.under_way),
            topics=len(self._topics.served),
            owned=len(self._owners.owned),
            hand_overs={**self._topics.hand_overs, "under way": self._topics.moves},
            namespaces=[
                NamespaceStatus(name, one.entries, one.messages, one.size, one.redelivered, one.acknowledgements)
                for name, one in sorted(self._topics.traffic.items())
            ],
            subscriptions=await asyncio.gather(
                *(self._workers.in_rounds("cursor", one.seen) for one in self._subscriptions())
            ),
        )

    async def _sampled(self) -> list[Sample]:
        return list(self._samples())

    def _samples(self) -> Iterator[Sample]:
        connections, traffic = self._listener.connections, self._listener.traffic
        subscriptions = self._subscriptions()
        yield Sample(d.CONNECTIONS, (), len(connections))
        yield Sample(d.CONSUMERS, (), sum(len(one.consumers) for one in connections))
        yield Sample(d.BUFFERED, (), sum(one.buffered for one in connections))
        yield Sample(d.ACCEPTED, (), traffic.accepted)
        yield Sample(d.FULL, (), traffic.full)
        for error, count in traffic.refused.items():
            yield Sample(d.REFUSED, (error,), count)
        yield Sample(d.TOPICS, (), len(self._topics.served))
        yield Sample(d.OWNED, (), len(self._owners.owned))
        yield Sample(d.LEFT_TO_OTHERS, (), self._owners.truces)
        yield Sample(d.AWAY, (), self._owners.is_away)
        yield Sample(d.MOVES, (), self._topics.moves)
        for what, count in self._topics.hand_overs.items():
            yield Sample(d.HAND_OVERS, (what,), count)
        for change, count in self._owners.counts.items():
            yield Sample(d.OWNERSHIP, (change,), count)
        for durable in (True, False):
            count = sum(one.durable is durable for one in subscriptions)
            yield Sample(d.SUBSCRIPTIONS, (str(durable).lower(),), count)
        yield Sample(d.UNWRITTEN_AGE, (), max((one.unwritten_for for one in subscriptions), default=0.0))
        for kind, count in self._workers.under_way.items():
            yield Sample(d.WORK, (kind,), count)
        for kind, seconds in self._workers.oldest().items():
            yield Sample(d.WORK_AGE, (kind,), seconds)
        for namespace, one in self._topics.traffic.items():
            yield Sample(d.ENTRIES, (namespace,), one.entries)
            yield Sample(d.MESSAGES, (namespace,), one.messages)
            yield Sample(d.BYTES, (namespace,), one.size)
            yield Sample(d.REDELIVERED, (namespace,), one.redelivered)
            yield Sample(d.ACKNOWLEDGEMENTS, (namespace,), one.acknowledgements)
            yield Sample(d.WRITES, (namespace, "ok"), one.writes)
            yield Sample(d.WRITES, (namespace, "failed"), one.failed_writes)

    def _subscriptions(self) -> list[ServedSubscription]:
        return [one for topic in self._topics.served.values() for one in topic.subscriptions.values()]
