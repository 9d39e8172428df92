"""`offloader gateway`: the parts together, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from offloader.archive.opened import OpenArchive
from offloader.config.gateway import AtEnd, Gateway
from offloader.cursors.facts import read_facts
from offloader.cursors.facts_codec import TopicFacts
from offloader.errors import ConfigError, IntegrityError, OffloadError, StoreUnavailableError
from offloader.gateway.access.access import access_of
from offloader.gateway.clock import SetClock
from offloader.gateway.doors import Doors
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.kept import KeptReaders
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.live import Brokers, LiveTopic
from offloader.gateway.observer import GatewayObserver
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.owners.owners import AWAY, TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.rounds import each, tell
from offloader.gateway.server.crowd import CrowdBounds
from offloader.gateway.server.large_frames import LargeFrames
from offloader.gateway.server.limits import DEFAULT_LIMITS, ConnectionLimits
from offloader.gateway.server.listener import GatewayListener
from offloader.gateway.shares import Shares
from offloader.gateway.telemetry import Telemetry
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.leading import Leader
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.model import TopicName
from offloader.ports.topic_states import TopicSchema

log = logging.getLogger(__name__)

LEAD_MS = 500
"""How often it is looked whether somebody may go to the brokers."""
NO_BOUND = 1 << 62
LOOK_AT_FILES_MS = 5_000
LOOK_AT_CLOCK_MS = WATCH_MS = 1_000
WRITES_WITHIN = 20.0
"""Seconds for each of the two things that a stop writes. What is not written comes again."""
ENDS_WITHIN = 5.0
"""Seconds for what threads are at when everything is written."""


@dataclass(frozen=True)
class StoredTopicsOfArchive:
    """`ArchivedTopics` of an open archive. In threads."""

    opened: OpenArchive
    on_missing: OnMissing
    kept: KeptReaders = field(default_factory=KeptReaders)
    _told: set[TopicName] = field(default_factory=set)  # of whose facts it is in the log that they cannot be read

    def names(self) -> Sequence[TopicName]:
        return list(self.opened.topics())

    def has(self, topic: TopicName) -> bool:
        return self.opened.catalogs.has(topic)

    def partitions(self, topic: TopicName) -> int | None:
        facts = self._facts(topic)
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
        facts = self._facts(topic)
        return facts is not None and facts.terminated

    def _facts(self, topic: TopicName) -> TopicFacts | None:
        """None: there are none that can be read."""
        try:
            return read_facts(self.opened.store, topic)
        except IntegrityError as error:
            if topic not in self._told:
                log.warning("gateway: %s; the topic is served without", error, extra={"see": "gateway-facts"})
            self._told.add(topic)
            return None


class GatewayApplication:
    """`listening`: is told the address once clients may come. `brokers`: where those who have read everything go on, if
    the settings say that they shall; they are closed with it."""

    def __init__(
        self,
        opened: OpenArchive,
        settings: Gateway,
        new_token: Callable[[], str],
        listening: Callable[[str], None] = lambda _: None,
        brokers: Brokers | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        self._opened = opened
        self._limits = limits
        self._brokers = brokers
        self._settings = settings
        self._new_token = new_token
        self._listening = listening
        self._here = Address("")
        self._read_ahead = Shares(settings.memory // 2)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_stopped = False
        self._hand_overs = Counter[str]()
        self.left = 0  # calls that hung when it was stopped, in threads that go on

    def run(self) -> None:
        """Until it is stopped. Raises ConfigError where it cannot listen."""
        try:
            asyncio.run(self._run())
        finally:
            self._loop = None

    def stop(self) -> None:
        """From any thread, or a signal's handler; also before it has begun."""
        self._is_stopped = True
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self) -> None:
        settings, telemetry = self._settings, Telemetry()
        workers = Workers(worked=telemetry.metrics.worked)
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        if self._is_stopped:
            self._stopping.set()
        archived = StoredTopicsOfArchive(self._opened, OnMissing(settings.on_loss.value))
        access, owners = access_of(settings), self._owners(workers)
        topics = ArchiveTopics(archived, partial(self._served, workers), workers, access.permissions, owners)
        listener = GatewayListener(
            topics,
            access.gatekeeper,
            self._limits,
            settings.connections,
            Shares(settings.memory * 3 // 8),
            LargeFrames(max(settings.memory // 8, 2 * self._limits.max_message)),
            CrowdBounds(settings.consumers, settings.connections_per_role, settings.consumers_per_role),
        )
        self._hand_overs = topics.hand_overs
        doors = Doors(settings, access, listener, workers)
        clock = SetClock(time.time, self._loop.time)

        async def look_at_clock() -> Sequence[OffloadError]:
            if clock.was_set():
                topics.clock_was_set()
                listener.clock_was_set()
            return ()

        self._tell_of(telemetry, GatewayObserver(topics, listener, workers, owners))
        self._here = await doors.open()
        self._listening(self._here.url or self._here.tls)
        rounds = [
            asyncio.create_task(each(settings.flush_interval_ms, topics.flush)),
            asyncio.create_task(each(settings.refresh_interval_ms, topics.refresh)),
            asyncio.create_task(each(settings.claim_interval_ms, owners.look)),
            asyncio.create_task(each(WATCH_MS, owners.watch)),
            asyncio.create_task(each(LOOK_AT_FILES_MS, doors.look_at_files)),
            asyncio.create_task(each(LOOK_AT_CLOCK_MS, look_at_clock)),
            asyncio.create_task(telemetry.keep_looking(self._opened.store, workers)),
        ]
        if settings.at_end is AtEnd.HAND_OVER:
            rounds.append(asyncio.create_task(each(LEAD_MS, topics.lead_away)))
        await self._stopping.wait()
        for task in rounds:
            task.cancel()
        tell(await _in_time(topics.flush(all_of_it=True)))
        tell(await _in_time(owners.release()))
        await listener.close()
        topics.close()
        await asyncio.to_thread(telemetry.close)
        workers.close()
        self.left = await workers.ended(ENDS_WITHIN)
        if self.left:
            log.warning("gateway: it stops, and %d calls hang", self.left, extra={"see": "gateway-hangs"})
        if self._brokers is not None:
            self._brokers.close()

    def _tell_of(self, telemetry: Telemetry, observer: GatewayObserver) -> None:
        """Nobody has chosen the default address: another gateway on this machine may have it."""
        try:
            telemetry.begin(self._settings.metrics_listen, observer)
        except ConfigError as error:
            if "metrics_listen" in self._settings.model_fields_set:
                raise
            log.warning("gateway: no metrics and no status: %s", error, extra={"see": "gateway-no-metrics"})

    def _owners(self, workers: Workers) -> TopicOwners:
        return TopicOwners(
            ClaimLog(self._opened.store, self._new_token),
            self._new_token(),
            lambda: self._here,
            LivingGateways(workers).is_living,
            workers,
            lambda: time.time_ns() // 1_000_000,
            max(AWAY, 3 * self._settings.claim_interval_ms / 1000),
        )

    def _served(self, workers: Workers, entries: TopicEntries, traffic: Traffic) -> SubscribedTopic:
        settings = self._settings
        bounded = settings.enable_lru_cache_max_unacked_ranges
        return SubscribedTopic(
            entries,
            self._opened.store,
            workers,
            self._new_token,
            promises=settings.durable_acks,
            traffic=traffic,
            read_ahead=self._read_ahead,
            cache_bytes=settings.max_individual_ack_cache_bytes_per_cursor if bounded else NO_BOUND,
            leader=self._leader(workers, entries),
            follows=settings.at_end is not AtEnd.END,
        )

    def _leader(self, workers: Workers, entries: TopicEntries) -> Leader | None:
        if self._settings.at_end is not AtEnd.HAND_OVER or self._brokers is None:
            return None
        live = LiveTopic(entries.name, self._brokers, lambda: self._opened.records(entries.name).head)
        return Leader(entries, live, workers, self._new_token, self._hand_overs)


async def _in_time(work: Awaitable[Sequence[OffloadError]]) -> Sequence[OffloadError]:
    try:
        return await asyncio.wait_for(work, WRITES_WITHIN)
    except TimeoutError:
        return [StoreUnavailableError(f"it stops, and not everything could be written within {WRITES_WITHIN:g} s")]
