"""`offloader gateway`: the parts together, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from offloader.archive.ledgers.bucket import BucketScan
from offloader.archive.opened import OpenArchive
from offloader.config.gateway import AtEnd, Gateway, address_of
from offloader.cursors.facts import TopicFacts, read_facts
from offloader.errors import ConfigError, IntegrityError, OffloadError, StoreUnavailableError
from offloader.gateway.access.access import Access, access_of
from offloader.gateway.entries.archived import ArchivedTopicEntries
from offloader.gateway.entries.missing import OnMissing
from offloader.gateway.entries.reader import KeptReaders
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.living import LivingGateways
from offloader.gateway.owners.owners import AWAY, TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.limits import (
    DEFAULT_LIMITS,
    ClientBounds,
    ConnectionLimits,
    LargeFrames,
    Shares,
    UnreadAnswers,
)
from offloader.gateway.server.listener import GatewayListener, Tls
from offloader.gateway.telemetry import GatewayObserver, Telemetry
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.topics.quota import SubscriptionBounds
from offloader.gateway.topics.topic import SubscribedTopic
from offloader.gateway.topics.workers import Workers
from offloader.gateway.traffic import Traffic
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema

log = logging.getLogger(__name__)

SCAN_KEPT = 60.0  # seconds
NO_BOUND = 1 << 62
LOOK_AT_FILES_MS = 5_000
LOOK_AT_CLOCK_MS = WATCH_MS = 1_000
CLOCK_STEP = 0.5
"""Seconds, beyond which the clock was set. One that is slowed down or sped up goes wrong by less between looks."""
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
    _scans: list[tuple[float, BucketScan | None]] = field(default_factory=list)  # the newest, and when
    _told: set[TopicName] = field(default_factory=set)  # of whose facts it is in the log that they cannot be read

    def names(self, namespace: str) -> Sequence[TopicName]:
        return self.opened.topics_of(namespace, self._scanned())

    def has(self, topic: TopicName) -> bool:
        return self.opened.catalogs.has(topic)

    def partitions(self, topic: TopicName) -> int | None:
        facts = self._facts(topic)
        return (facts.partitions or 0) if facts is not None else None

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

    def _scanned(self) -> BucketScan | None:
        """The bucket of ledgers, listed as a whole, as it has no folders."""
        if self.opened.ledgers is None:
            return None
        if not self._scans or time.monotonic() - self._scans[-1][0] > SCAN_KEPT:
            self._scans.append((time.monotonic(), self.opened.scan()))
            del self._scans[:-1]
        return self._scans[-1][1]

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


Listen = Callable[[str, int, Tls | None], Awaitable[int]]


class Listeners:
    """Opens what the settings name, with and without TLS: for the binary protocol and for HTTP."""

    def __init__(self, settings: Gateway, access: Access, listener: GatewayListener, workers: Workers) -> None:
        self._settings = settings
        self._workers = workers
        self._access = access
        self._listener = listener

    async def open(self) -> Address:
        """Where clients come in. Raises ConfigError."""
        settings, listener = self._settings, self._listener
        plain = await self._opened("gateway.listen", settings.listen, listener.listen)
        http = await self._opened("gateway.httpListen", settings.http_listen, listener.listen_http)
        here = Address(settings.advertised or _url("pulsar", plain))
        https = None
        if settings.tls is not None and self._access.tls is not None:
            tls, files = settings.tls, self._access.tls
            secure = await self._opened("gateway.tls.listen", tls.listen, listener.listen, files.now)
            https = await self._opened("gateway.tls.httpListen", tls.http_listen, listener.listen_http, files.now)
            here = here._replace(tls=tls.advertised or _url("pulsar+ssl", secure, here.url))
        listener.http = Address(_url("http", http, here.url or here.tls), _url("https", https, here.tls or here.url))
        return here

    async def look_at_files(self) -> Sequence[OffloadError]:
        """Whoever was let in with another key must show a new token. Nothing is returned: what files have that is of
        no use is in the log."""
        if await self._workers.files(self._access.look):
            self._listener.ask_again()
        return ()

    async def _opened(self, setting: str, listen: str, door: Listen, tls: Tls | None = None) -> tuple[str, int] | None:
        if not listen:
            return None
        host, port = address_of(listen)
        try:
            return host, await door(host, port, tls)
        except OSError as error:
            raise ConfigError(f"{setting}: cannot listen on {listen} ({error.strerror})") from error


def _url(scheme: str, opened: tuple[str, int] | None, advertised: str = "") -> str:
    """Empty: it is not open. `advertised`: another URL, whose host it has."""
    if opened is None:
        return ""
    host = urlsplit(advertised).hostname or opened[0]
    return f"{scheme}://[{host}]:{opened[1]}" if ":" in host else f"{scheme}://{host}:{opened[1]}"


class SetClock:
    """Whether the machine's clock was set: timers run by another one; what is due at a moment of time does not. `wall`:
    seconds since 1970; `steady`: seconds by a clock that nobody sets."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady
        self._apart = wall() - steady()

    def was_set(self) -> bool:
        """Since the last look; also where the machine has slept."""
        apart, before = self._wall() - self._steady(), self._apart
        self._apart = apart
        return abs(apart - before) > CLOCK_STEP


class GatewayApplication:
    """`listening`: is told the address once clients may come."""

    def __init__(
        self,
        opened: OpenArchive,
        settings: Gateway,
        new_token: Callable[[], str],
        listening: Callable[[str], None] = lambda _: None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        self._opened = opened
        self._limits = limits
        self._settings = settings
        self._new_token = new_token
        self._listening = listening
        self._here = Address("")
        self._read_ahead = Shares(settings.memory // 2)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_stopped = False
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
        access = access_of(settings)
        owners = self._owners(workers) if settings.durable_subscriptions else None
        make = partial(self._served, workers)
        topics = ArchiveTopics(archived, make, workers, access.permissions, lambda: self._here, owners)
        listener = GatewayListener(
            topics,
            access.gatekeeper,
            self._limits,
            settings.connections,
            Shares(settings.memory // 4),
            LargeFrames(max(settings.memory // 8, 2 * self._limits.max_message)),
            UnreadAnswers(max(settings.memory // 8, 2 * self._limits.max_message)),
            ClientBounds(settings.consumers, settings.connections_per_role, settings.consumers_per_role),
        )
        listeners = Listeners(settings, access, listener, workers)
        clock = SetClock(time.time, self._loop.time)

        async def look_at_clock() -> Sequence[OffloadError]:
            if clock.was_set():
                topics.clock_was_set()
                listener.clock_was_set()
            return ()

        self._tell_of(telemetry, GatewayObserver(topics, listener, workers, owners))
        self._here = await listeners.open()
        self._listening(self._here.url or self._here.tls)
        rounds = [
            asyncio.create_task(run_every(settings.flush_interval_ms, topics.flush)),
            asyncio.create_task(run_every(settings.refresh_interval_ms, topics.refresh)),
            asyncio.create_task(run_every(LOOK_AT_FILES_MS, listeners.look_at_files)),
            asyncio.create_task(run_every(LOOK_AT_CLOCK_MS, look_at_clock)),
            asyncio.create_task(telemetry.keep_looking(self._opened.store, workers)),
        ]
        if owners is not None:
            rounds.append(asyncio.create_task(run_every(settings.claim_interval_ms, owners.look)))
            rounds.append(asyncio.create_task(run_every(WATCH_MS, owners.watch)))
        await self._stopping.wait()
        for task in rounds:
            task.cancel()
        log_errors(await _in_time(topics.flush(all_of_it=True)))
        if owners is not None:
            log_errors(await _in_time(owners.release()))
        await listener.close()
        topics.close()
        await asyncio.to_thread(telemetry.close)
        workers.close()
        self.left = await workers.ended(ENDS_WITHIN)
        if self.left:
            log.warning("gateway: it stops, and %d calls hang", self.left, extra={"see": "gateway-hangs"})

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
            follows=settings.at_end is not AtEnd.END,
            bounds=SubscriptionBounds(settings.subscriptions_per_topic, settings.subscriptions_per_role),
        )


async def run_every(interval_ms: int, work: Callable[[], Awaitable[Sequence[OffloadError]]]) -> None:
    """Until it is cancelled. Whatever goes wrong, the next round comes."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            log_errors(await work())
        except Exception:
            log.exception("gateway: a round failed", extra={"see": "gateway-defect"})


def log_errors(errors: Sequence[OffloadError]) -> None:
    """What went wrong is tried again with the next round."""
    for error in errors:
        log.warning("gateway: %s", error, extra={"see": "gateway-waits"})


async def _in_time(work: Awaitable[Sequence[OffloadError]]) -> Sequence[OffloadError]:
    try:
        return await asyncio.wait_for(work, WRITES_WITHIN)
    except TimeoutError:
        return [StoreUnavailableError(f"it stops, and not everything could be written within {WRITES_WITHIN:g} s")]
