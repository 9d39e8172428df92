"""`offloader gateway`: the parts together, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from offloader.archive.opened import OpenArchive
from offloader.config.gateway import Gateway
from offloader.cursors.facts import read_facts
from offloader.errors import OffloadError
from offloader.gateway.access.access import access_of
from offloader.gateway.doors import Doors
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.kept import KeptReaders
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.server.limits import ConnectionLimits
from offloader.gateway.server.listener import GatewayListener
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.model import TopicName
from offloader.ports.topic_states import TopicSchema

log = logging.getLogger(__name__)

NO_BOUND = 1 << 62
LOOK_AT_FILES_MS = 5_000


@dataclass(frozen=True)
class StoredTopicsOfArchive:
    """`ArchivedTopics` of an open archive. In threads."""

    opened: OpenArchive
    on_missing: OnMissing
    kept: KeptReaders = field(default_factory=KeptReaders)

    def names(self) -> Sequence[TopicName]:
        return list(self.opened.topics())

    def partitions(self, topic: TopicName) -> int | None:
        facts = read_facts(self.opened.store, topic)
        return facts.partitions if facts is not None else None

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]:
        facts = read_facts(self.opened.store, topic)
        return facts.schemas if facts is not None else ()

    def open(self, topic: TopicName) -> TopicEntries:
        return ArchivedTopicEntries(
            self.opened,
            topic,
            self.kept,
            on_missing=self.on_missing,
            is_terminated=lambda: self._is_terminated(topic),
        )

    def _is_terminated(self, topic: TopicName) -> bool:
        facts = read_facts(self.opened.store, topic)
        return facts is not None and facts.terminated


class GatewayApplication:
    """`listening`: is told the address once clients may come."""

    def __init__(
        self,
        opened: OpenArchive,
        settings: Gateway,
        new_token: Callable[[], str],
        listening: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._opened = opened
        self._settings = settings
        self._new_token = new_token
        self._listening = listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self) -> None:
        """Until it is stopped. Raises ConfigError where it cannot listen."""
        try:
            asyncio.run(self._run())
        finally:
            self._loop = None

    def stop(self) -> None:
        """From any thread, or a signal's handler."""
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self) -> None:
        settings, workers = self._settings, Workers()
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        archived = StoredTopicsOfArchive(self._opened, OnMissing(settings.on_loss.value))
        access = access_of(settings)
        topics = ArchiveTopics(archived, lambda entries: self._served(entries, workers), workers, access.permissions)
        listener = GatewayListener(topics, access.gatekeeper, ConnectionLimits(), settings.connections)
        doors = Doors(settings, access, listener)
        topics.address_of_all = await doors.open()
        self._listening(topics.address_of_all.url or topics.address_of_all.tls)
        rounds = [
            asyncio.create_task(self._each(settings.flush_interval_ms, topics.flush)),
            asyncio.create_task(self._each(settings.refresh_interval_ms, topics.refresh)),
            asyncio.create_task(_look_at_files(doors)),
        ]
        await self._stopping.wait()
        for task in rounds:
            task.cancel()
        _tell(await topics.flush())
        await listener.close()
        topics.close()
        await asyncio.get_running_loop().run_in_executor(None, workers.close)

    def _served(self, entries: TopicEntries, workers: Workers) -> SubscribedTopic:
        settings = self._settings
        bounded = settings.enable_lru_cache_max_unacked_ranges
        return SubscribedTopic(
            entries,
            self._opened.store,
            workers,
            self._new_token,
            promises=settings.durable_acks,
            cache_bytes=settings.max_individual_ack_cache_bytes_per_cursor if bounded else NO_BOUND,
        )

    async def _each(self, interval_ms: int, work: Callable[[], Awaitable[Sequence[OffloadError]]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            _tell(await work())


async def _look_at_files(doors: Doors) -> None:
    while True:
        await asyncio.sleep(LOOK_AT_FILES_MS / 1000)
        await doors.look_at_files()


def _tell(errors: Sequence[OffloadError]) -> None:
    for error in errors:
        log.warning("gateway: %s", error, extra={"see": "gateway-waits"})
