"""The gateway's own parts over a writable source, in a thread."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from queue import Queue
from typing import NamedTuple

from offloader.config.gateway import Gateway
from offloader.gateway.access.access import Anyone, RolePermissions
from offloader.gateway.application import run_every
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.limits import ConnectionLimits, LargeFrames, Shares, UnreadAnswers
from offloader.gateway.server.listener import GatewayListener
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.model import MIB, TopicName
from offloader.storage.memory import MemoryStore
from tests.gateway.writable.admin import Administration, serving
from tests.gateway.writable.growing import GrowingTopics
from tests.gateway.writable.producing import Producers, ProducingConnection
from tests.gateway.writable.source import WritableSource

EVERYTHING = {"*": ("*",)}

PATIENCE = 60  # seconds, for hanging
REFRESH_MS = 50  # what was produced while a topic was being opened is seen then


class Addresses(NamedTuple):
    """Where clients come in, and where HTTP is answered."""

    service: str
    http: str


class ProducingListener(GatewayListener):
    """`producers`: take what its clients produce."""

    producers: Producers

    def _connection(self) -> Connection:
        share, handle = self._memory.take(self._limits.buffered_bytes), self.producers.handle
        made = ProducingConnection(
            self._topics,
            self._gatekeeper,
            self._limits,
            handle,
            self._gone,
            self.traffic,
            share,
            self._large,
            self._client_limits,
            self._unread,
        )
        self.connections.add(made)
        return made


class WritableGateway:
    """`listening`: is told its addresses. `max_message`: the largest entry, as brokers have a bound for it."""

    def __init__(
        self,
        source: WritableSource,
        port: int,
        max_message: int,
        settings: Mapping[str, object],
        listening: Queue[object],
    ) -> None:
        self._source = source
        self._port = port
        self._limits = ConnectionLimits(max_message=max_message)
        self._listening = listening
        self._settings = Gateway.model_validate({"listen": "127.0.0.1:0", "durableSubscriptions": True, **settings})
        self._store = MemoryStore()
        self._tokens = (f"t{number}" for number in itertools.count())

    def run(self) -> None:
        """Until it is stopped."""
        asyncio.run(self._run())

    def stop(self) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    def moved(self, topic: TopicName) -> None:
        """From any thread; returns once its consumers are closed."""
        asyncio.run_coroutine_threadsafe(self._close(topic), self._loop).result(PATIENCE)

    async def _close(self, name: TopicName) -> None:
        topic = self._topics.served.pop(name, None)
        if topic is not None:
            await asyncio.gather(*(write() for write in topic.flushes().values()))
            topic.close()

    async def _run(self) -> None:
        self._loop, self._stopping, settings = asyncio.get_running_loop(), asyncio.Event(), self._settings
        self._workers, self._read_ahead = Workers(), Shares(settings.memory // 2)
        owners = self._owners()
        self._topics = topics = ArchiveTopics(
            self._source,
            self._served,
            self._workers,
            RolePermissions(EVERYTHING, EVERYTHING),
            lambda: self._here,
            owners,
        )
        growing = GrowingTopics(self._source, topics)
        listener = ProducingListener(
            growing,
            Anyone(),
            self._limits,
            settings.connections,
            Shares(settings.memory // 2),
            LargeFrames(settings.memory // 8),
            UnreadAnswers(settings.memory // 8),
        )
        listener.producers = Producers(self._source, topics)
        self._here = Address(f"pulsar://127.0.0.1:{await listener.listen('127.0.0.1', self._port)}")
        listener.http = Address(f"http://127.0.0.1:{await listener.listen_http('127.0.0.1', 0)}")
        self._listening.put(Addresses(self._here.url, listener.http.url))
        rounds = [
            asyncio.create_task(run_every(settings.flush_interval_ms, topics.flush)),
            asyncio.create_task(run_every(REFRESH_MS, topics.refresh)),
            asyncio.create_task(run_every(settings.claim_interval_ms, owners.look)),
        ]
        await self._stopping.wait()
        for task in rounds:
            task.cancel()
        await listener.close()
        topics.close()
        self._workers.close()

    def _owners(self) -> TopicOwners:
        claims = ClaimLog(self._store, lambda: next(self._tokens))
        living = LivingGateways(self._workers).is_living
        return TopicOwners(
            claims, "this", lambda: self._here, living, self._workers, lambda: time.time_ns() // 1_000_000
        )

    def _served(self, entries: TopicEntries, traffic: Traffic) -> SubscribedTopic:
        return SubscribedTopic(
            entries,
            self._store,
            self._workers,
            lambda: next(self._tokens),
            promises=self._settings.durable_acks,
            traffic=traffic,
            read_ahead=self._read_ahead,
        )


@contextmanager
def writable_gateway(
    port: int = 0, http_port: int = 0, max_message: int = 5 * MIB, **settings: object
) -> Iterator[Addresses]:
    """Ports 0: any. Its HTTP answers administrators, too. `settings`: of subscriptions."""
    source, listening = WritableSource(), Queue[object]()
    made = WritableGateway(source, port, max_message, settings, listening)

    def run() -> None:
        try:
            made.run()
        except BaseException as error:  # noqa: BLE001 (whoever waits gets it)
            listening.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    found = listening.get(timeout=PATIENCE)
    if isinstance(found, BaseException):
        raise found
    try:
        assert isinstance(found, Addresses)
        with serving(Administration(source, made.moved), found.http, http_port) as http:
            yield Addresses(found.service, http)
    finally:
        made.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
