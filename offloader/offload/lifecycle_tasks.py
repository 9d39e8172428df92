"""What the application does for the end of data, by its configuration: deletions, visits of topics that nobody has
loaded, and the scheduled scan for orphans with what it reports. One short list."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.bridge.log import BridgeReader
from offloader.config import Config
from offloader.config.policies import enabled_topics
from offloader.errors import ConfigError, OffloadError
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.reading import check_records, store_time
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.clocks import Clocks, host_ms
from offloader.lifecycle.deletion.configured import (
    OpenSide,
    bookkeeper_side,
    bounds_of,
    cluster_sides,
    lists_of_all_stores,
    timing_of,
)
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.service import Announce, DeletionRules
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.system_topic.examining import CopyExaminer, LedgerExaminer
from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening
from offloader.lifecycle.deletion.task import DeletionTask, LazySide
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.stock_copies import bucket_name, stock_copies
from offloader.lifecycle.orphan_scan import (
    CLASSES,
    BucketScanRound,
    LedgerScanRound,
    OrphanScanTask,
    ScanLimits,
    ScannedSide,
)
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.topics.cursors.configured import subscription_names
from offloader.lifecycle.topics.cursors.former import forget_former, former_removals, pending_former
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.policy import OpenSubscriptions, UnusedSubscriptions
from offloader.lifecycle.topics.pace import pacing
from offloader.lifecycle.topics.visit_outcome import VisitCounts
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.lifecycle.topics.visiting import VisitClock, VisitParts, VisitPlaces, VisitRate, visit_parts
from offloader.metadata.journal import Journal
from offloader.metadata.layout import cursors_folder
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.stock_keys import STOCK_BUCKET
from offloader.metrics import Metrics
from offloader.offload import settings as derived
from offloader.offload.deletion_told import DeletionTold
from offloader.offload.lifecycle_thread import LifecycleTask
from offloader.offload.system_topic import SystemTopicCounts, system_topic
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.subscriptions import BrokerSubscriptions
from offloader.storage.open import open_store

log = logging.getLogger(__name__)

MOST_BETWEEN_MESSAGES = 30.0  # seconds between two looks at the system topic


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """What the tasks are made of. `clocks`: what ages are computed with, by default this host's alone."""

    config: Config
    admin: Admin
    store: ObjectStore
    journal: Journal
    metrics: Metrics
    cluster: str
    clocks: Clocks = field(default_factory=Clocks)


def lifecycle_tasks(parts: LifecycleParts, stopping: Callable[[], bool], stack: ExitStack) -> list[LifecycleTask]:
    """Those that are switched on; none is reached yet, but the store for whether deletion once was, and for the mark of
    our messages. The door comes before the mirror.

    `stopping`: whether to end soon. `stack`: gets what must be closed when none of them runs any more. Raises
    ConfigError."""
    queue = DeletionQueue(parts.store, parts.cluster, _new_uuid, parts.journal.check_from_beside)
    topic = system_topic(parts.config, parts.store, parts.cluster, SystemTopicCounts(parts.metrics), stack)
    found = (
        _door(parts, queue, topic, stack),
        _deletion(parts, queue, _announce(parts, topic, stack), stopping),
        _unused_subscriptions(parts, queue, stopping),
        _former_removals(parts),
        unloaded_topics(parts.config, parts.admin, parts.metrics, stopping),
        _orphan_scan(parts, queue),
    )
    for one in found:
        if isinstance(one, DeletionTask):
            stack.callback(one.end)
    return [one for one in found if one is not None]


def _announce(parts: LifecycleParts, topic: SystemTopicOpening | None, stack: ExitStack) -> Announce:
    if topic is None or parts.config.lifecycle.system_topic == "accept":
        return lambda _: None
    return stack.enter_context(closing(topic.publisher())).announce


def _door(
    parts: LifecycleParts, queue: DeletionQueue, topic: SystemTopicOpening | None, stack: ExitStack
) -> LifecycleTask | None:
    section, reached = parts.config.lifecycle, derived.bookkeeper(parts.config)
    if topic is None or section.system_topic == "publish" or reached is None:
        return None
    opened = bookkeeper_side(section, lambda: clients(reached), parts.admin, parts.clocks.now_ms)
    examiner = LedgerExaminer(opened, queue, bounds_of(section), parts.clocks.now_ms, _copies(parts, queue, reached))
    interval = min(section.deletion_interval_ms / 1000, MOST_BETWEEN_MESSAGES)
    return stack.enter_context(closing(topic.acceptor(examiner, timing_of(section), interval)))


def _copies(parts: LifecycleParts, queue: DeletionQueue, reached: BookKeeperSettings) -> CopyExaminer | None:
    section = parts.config.lifecycle
    if not section.stock_bucket:
        return None
    settings = derived.store(parts.config).beside(section.stock_bucket, STOCK_BUCKET)

    def lists() -> tuple[References, ...]:
        return lists_of_all_stores(section, lambda: clients(reached), parts.admin, parts.clocks.now_ms)

    def opened(stack: ExitStack) -> StockScanner:
        store = stack.enter_context(closing(open_store(settings, read_only=True)))
        bridged = BridgeReader(parts.store).of
        check = partial(check_records, parts.store)
        grace, alone = section.quarantine_floor_ms, section.bucket_is_not_shared
        return StockScanner(store, lists, parts.cluster, parts.clocks.now_ms, grace, bridged, check, alone)

    name = bucket_name(section.stock_bucket) or section.stock_bucket
    by_the_store = partial(store_time, parts.store, parts.clocks.now_ms, _new_uuid)
    return CopyExaminer(opened, name, queue, bounds_of(section), by_the_store)


def _deletion(
    parts: LifecycleParts, queue: DeletionQueue, announce: Announce, stopping: Callable[[], bool]
) -> LifecycleTask | None:
    section = parts.config.lifecycle
    on = section.topic_two_phase_deletion_enabled
    subscriptions = on or section.remove_cursors_after_ms is not None
    if not subscriptions and not _has_work(queue):
        return None
    reached = derived.bookkeeper(parts.config)
    sides = {LedgerType.OBJECT: LazySide(_bucket_side(parts))}
    if reached is not None:
        copies = stock_copies(section.stock_bucket, derived.store(parts.config))
        rescues = RescueEvidence(lambda: Rescues(parts.store, parts.cluster), stopping)
        ledgers, left_over = cluster_sides(
            section, lambda: clients(reached), parts.admin, parts.clocks.now_ms, copies, rescues
        )
        sides[LedgerType.LEDGER] = LazySide(ledgers)
        sides[LedgerType.MANAGED_LEDGER] = LazySide(left_over)
        sides[LedgerType.SUBSCRIPTION] = LazySide(_subscriptions(parts, reached, stopping))
    rules = DeletionRules(
        timing_of(section),
        bounds_of(section),
        section.two_phase_deletion_ledger_deletion_parallelism,
        stopping=stopping,
        subscriptions=subscriptions,
    )
    interval = section.deletion_interval_ms / 1000
    return DeletionTask(on, interval, queue, sides, rules, DeletionTold(parts.metrics), parts.clocks.now_ms, announce)


def _subscriptions(
    parts: LifecycleParts, reached: BookKeeperSettings, stopping: Callable[[], bool]
) -> OpenSubscriptions:
    visits = parts.config.lifecycle.visits
    pace = pacing(visits.a_minute, host_ms, partial(sleep_until_stopping, stopping))  # over all passes

    def opened(stack: ExitStack) -> SubscriptionSide:
        tree, bookies = clients(reached)
        stack.enter_context(closing(tree))
        stack.enter_context(closing(bookies))
        brokers = stack.enter_context(closing(BrokerSubscriptions(derived.pulsar(parts.config))))
        stored = StoredTopics(tree, bookies, reached.bookies.request_timeout)
        names = subscription_names(parts.config.pulsar.subscription, parts.admin)
        return SubscriptionSide(stored, brokers, names, parts.clocks.now_ms, visits.at_once, pace, stopping)

    return opened


def _unused_subscriptions(
    parts: LifecycleParts, queue: DeletionQueue, stopping: Callable[[], bool]
) -> LifecycleTask | None:
    section, reached = parts.config.lifecycle, derived.bookkeeper(parts.config)
    after = section.remove_cursors_after_ms
    if after is None or reached is None:  # the configuration refuses the policy without a metadata service
        return None
    interval = section.deletion_interval_ms / 1000
    side, bounds = _subscriptions(parts, reached, stopping), bounds_of(section)
    former = partial(former_removals, parts.store, parts.cluster)
    return UnusedSubscriptions(side, queue, after, interval, parts.metrics, parts.clocks, bounds, former)


@dataclass
class FormerRemovals:
    """Names what earlier versions left pending, and forgets what has ended there, until nothing is left."""

    parts: LifecycleParts
    name: str = "former-removals"

    def run(self) -> float:
        """See LifecycleTask."""
        parts, section = self.parts, self.parts.config.lifecycle
        for one in pending_former(parts.store, parts.cluster):
            log.warning("%s", one.says, extra={"see": "cursor-removal"})
        parts.journal.check_from_beside()
        forget_former(parts.store, parts.cluster, parts.clocks.now_ms() - section.record_retention_ms)
        return section.deletion_interval_ms / 1000


def _former_removals(parts: LifecycleParts) -> LifecycleTask | None:
    """Where there are any at the start."""
    try:
        any_there = next(iter(parts.store.list(cursors_folder(parts.cluster))), None) is not None
    except OffloadError as error:
        log.info("whether earlier versions left a removal is found out later: %s", error)
        return FormerRemovals(parts)
    return FormerRemovals(parts) if any_there else None


def unloaded_topics(
    config: Config, admin: Admin, counts: VisitCounts, stopping: Callable[[], bool]
) -> UnloadedTopicsTask | None:
    """None where `lifecycle.visitUnloaded` is off. Nothing is reached before it runs."""
    if not config.lifecycle.visit_unloaded:
        return None
    opened = partial(_open_visits, config, admin, partial(sleep_until_stopping, stopping))
    return UnloadedTopicsTask(opened, config.lifecycle.visits.interval_ms, host_ms, counts, stopping)


def _open_visits(config: Config, admin: Admin, sleep: Callable[[float], None]) -> VisitParts:
    """Raises ConfigError, MetadataUnavailableError."""
    reached = derived.bookkeeper(config)
    if reached is None:
        raise ConfigError(
            "lifecycle.visitUnloaded: needs pulsar.metadataServiceUri, for example zk://host:2181/ledgers"
        )
    with ExitStack() as stack:
        tree, bookies = clients(reached)
        stack.enter_context(closing(tree))
        stack.enter_context(closing(bookies))
        brokers = stack.enter_context(closing(AdminClient(derived.pulsar(config))))
        names = subscription_names(config.pulsar.subscription, admin)
        enabled = enabled_topics(config.policies, admin.namespace_properties)
        places = VisitPlaces(tree, bookies, brokers, admin.loaded_by, names, enabled)
        rate = VisitRate(config.lifecycle.visits.at_once, config.lifecycle.visits.a_minute)
        return visit_parts(places, VisitClock(host_ms, sleep), rate, stack.pop_all().close)


def sleep_until_stopping(stopping: Callable[[], bool], seconds: float) -> None:
    """No longer than until the application stops."""
    until = time.monotonic() + seconds
    while not stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))


def _orphan_scan(parts: LifecycleParts, queue: DeletionQueue) -> LifecycleTask | None:
    section, reached = parts.config.lifecycle, derived.bookkeeper(parts.config)
    settings = section.orphan_scan
    if settings.interval_ms is None or reached is None:
        return None
    now_ms, held = parts.clocks.now_ms, holds(parts.config.policies)
    opened = bookkeeper_side(section, lambda: clients(reached), parts.admin, now_ms)
    bounds, limits = bounds_of(section), ScanLimits(settings.quarantine, settings.most)
    sides = (
        LedgerScanRound(opened, queue, bounds, limits, now_ms),
        BucketScanRound(_bucket_scanner(parts), queue, bounds, limits, now_ms, held),
    )
    return OrphanScanTask(settings.interval_ms / 1000, sides, OrphanScanReport(parts.metrics))


class OrphanScanReport:
    """Metrics and alarms of scans. What stays the same from scan to scan is logged once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused: dict[OrphanSide, tuple[str, ...]] = {}
        self._waiting: dict[OrphanSide, int] = {}

    def __call__(self, found: ScannedSide) -> None:
        orphans = [(name, found.numbers[name], found.sizes[name]) for name in CLASSES]
        self._metrics.orphans_scanned(found.side, orphans, found.quarantined, len(found.refusals))
        if found.quarantined:
            log.info("the orphan scan quarantined %d orphans of the %s", found.quarantined, found.side)
        if found.refusals and found.refusals != self._refused.get(found.side):
            log.warning(
                "the orphan scan quarantines nothing of the %s: %s",
                found.side, " ".join(found.refusals), extra={"see": "orphan-scan-refused"},
            )  # fmt: skip
        self._refused[found.side] = found.refusals
        waiting = found.numbers.total() - found.pending - found.quarantined
        if waiting > self._waiting.get(found.side, 0):
            log.warning(
                "the orphan scan found %d orphans of the %s that it does not quarantine (%s)",
                waiting, found.side, ", ".join(f"{number} {name}" for name, number, _ in orphans if number),
                extra={"see": "orphans-found"},
            )  # fmt: skip
        self._waiting[found.side] = waiting


def _bucket_side(parts: LifecycleParts) -> OpenSide:
    """The archive's. Objects of Pulsar's own offloader wait for the command that names their bucket."""
    held = holds(parts.config.policies)
    side = BucketSide(parts.store, _bucket_scanner(parts), held=held)  # it remembers how many objects there are
    return lambda _: side


def _bucket_scanner(parts: LifecycleParts) -> BucketScanner:
    grace = parts.config.lifecycle.quarantine_floor_ms
    return BucketScanner(parts.store, parts.clocks.now_ms, _new_uuid, grace, cluster=parts.cluster)


def _has_work(queue: DeletionQueue) -> bool:
    """Where deletion once was on, or a command has marked a subscription: what is pending is counted, what has ended is
    forgotten in its time, and the switch says that it is off now."""
    try:
        return queue.switch() is not None or queue.has_any(LedgerType.SUBSCRIPTION)
    except OffloadError as error:
        log.info("whether deletion once was on is found out later: %s", error)
        return True


def _new_uuid() -> str:
    return str(uuid.uuid4())
