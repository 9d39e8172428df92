"""Metrics, health and status of a gateway: gathered on its loop, for whoever asks over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import offloader.metrics.gateway as d
from offloader.config.gateway import address_of
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.server.listener import GatewayListener
from offloader.gateway.status import GatewayStatus, NamespaceStatus
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.subscription import ServedSubscription
from offloader.gateway.topics.workers import Workers
from offloader.metadata import layout
from offloader.metrics.gateway import GatewayMetrics, Sample
from offloader.metrics.server import MetricsServer
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)


PATIENCE = 10.0  # seconds, for a loop that does not turn
T = TypeVar("T")


class GatewayObserver:
    """Made on the loop; asked from other threads. What cannot be had in some seconds raises TimeoutError."""

    def __init__(
        self, topics: ArchiveTopics, listener: GatewayListener, workers: Workers, owners: TopicOwners | None
    ) -> None:
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
            owned=len(self._owners.owned) if self._owners is not None else 0,
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
        if self._owners is not None:
            yield Sample(d.OWNED, (), len(self._owners.owned))
            yield Sample(d.LEFT_TO_OTHERS, (), self._owners.truces)
            yield Sample(d.AWAY, (), self._owners.is_away)
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


STATUS = "/status"
TICK = 1.0  # seconds
LOOK = 10  # ticks
HANGS = 60.0  # seconds


class Telemetry:
    """`begin` once there is something to see."""

    def __init__(self) -> None:
        self._samples: Callable[[], Iterable[Sample]] = list
        self.metrics = GatewayMetrics(lambda: self._samples())
        self._server: MetricsServer | None = None

    def begin(self, listen: str, observer: GatewayObserver) -> None:
        """Serve it, unless `listen` is empty. Raises ConfigError where that is impossible."""
        self._samples = observer.samples
        if listen:
            self._server = MetricsServer(
                self.metrics.registry,
                self.metrics.health,
                *address_of(listen),
                pages={STATUS: observer.status},
                setting="gateway.metricsListen",
                instead="choose another, or nothing",
            )

    async def keep_looking(self, store: ObjectStore, workers: Workers) -> None:
        """The loop turns, also while the store does not answer; and it does or does not."""
        looking: asyncio.Task[None] | None = None
        told = set[str]()  # of which kinds of work it is in the log that one hangs
        for number in itertools.count():
            self.metrics.health.tick()
            told = self._tell_hanging(workers, told)
            if number % LOOK == 0 and looking is not None and not looking.done():
                self.metrics.health.checked("store", f"it has not answered for {LOOK * TICK:g} s")
            elif number % LOOK == 0:
                looking = asyncio.create_task(self._look(store, workers))
            await asyncio.sleep(TICK)

    def _tell_hanging(self, workers: Workers, told: set[str]) -> set[str]:
        """Returns the kinds of work of which one hangs."""
        ages = {kind: seconds for kind, seconds in workers.oldest().items() if seconds > HANGS}
        for kind in ages.keys() - told:
            log.warning(
                "gateway: work of the kind %s has been in a thread for %d s",
                kind,
                ages[kind],
                extra={"see": "gateway-hangs"},
            )
        return set(ages)

    async def _look(self, store: ObjectStore, workers: Workers) -> None:
        try:
            await workers.know(lambda: store.stat(layout.ROOT))
            self.metrics.health.checked("store")
        except Exception as error:  # noqa: BLE001 (whatever it is, the store did not answer)
            self.metrics.health.checked("store", str(error))

    def close(self) -> None:
        """Stop serving it."""
        if self._server is not None:
            self._server.close()
