"""What the application does for the end of data, by its configuration: deletions, visits of topics that nobody has
loaded, and the scheduled scan for orphans with what it reports. One short list."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from offloader.config.lifecycle import Lifecycle
from offloader.errors import ConfigError, OffloadError
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.reading import store_time
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.candidates import OrphanSide
from offloader.lifecycle.clocks import Clocks, host_ms
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.service import Announce, DeletionRules
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.system_topic.examining import CopyExaminer, LedgerExaminer
from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening
from offloader.lifecycle.deletion.task import DeletionTask, LazySide
from offloader.lifecycle.ledgers.stock_copies import bucket_name
from offloader.lifecycle.orphan_scan import (
    CLASSES,
    BucketScanRound,
    LedgerScanRound,
    OrphanScanTask,
    ScanLimits,
    ScannedSide,
)
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.topics.cursors.former import forget_former, former_removals, pending_former
from offloader.lifecycle.topics.cursors.policy import OpenSubscriptions, UnusedSubscriptions
from offloader.lifecycle.topics.pace import pacing
from offloader.lifecycle.topics.visit_outcome import VisitCounts
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.lifecycle.topics.visiting import VisitClock, VisitParts
from offloader.metadata.journal import Journal
from offloader.metadata.layout import cursors_folder
from offloader.metadata.rescue_log import Rescues
from offloader.metrics import Metrics
from offloader.offload.deletion_told import DeletionTold, SystemTopicCounts
from offloader.offload.lifecycle_thread import LifecycleTask
from offloader.runtime.connections import Runtime
from offloader.runtime.deletion import (
    bookkeeper_side,
    bounds_of,
    bucket_scanner,
    bucket_side,
    ledger_lists,
    ledger_scanner,
    sides_together,
    stock_scanner,
    subscription_side,
    system_topic,
    timing_of,
    verifying_scanner,
    visits_of,
)

log = logging.getLogger(__name__)

MOST_BETWEEN_MESSAGES = 30.0  # seconds between two looks at the system topic


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """What the tasks are made of. `clocks`: what ages are computed with, by default this host's alone."""

    runtime: Runtime
    journal: Journal
    metrics: Metrics
    cluster: str
    clocks: Clocks = field(default_factory=Clocks)

    @property
    def section(self) -> Lifecycle:
        """The configuration of these tasks."""
        return self.runtime.config.lifecycle

    @property
    def interval(self) -> float:
        """Seconds between two passes."""
        return self.section.deletion_interval_ms / 1000


def lifecycle_tasks(parts: LifecycleParts, stopping: Callable[[], bool], stack: ExitStack) -> list[LifecycleTask]:
    """Those that are switched on; none is reached yet, but the store for whether deletion once was, and for the mark of
    our messages. The door comes before the mirror.

    `stopping`: whether to end soon. `stack`: gets what must be closed when none of them runs any more. Raises
    ConfigError."""
    runtime = parts.runtime
    new_token, check = runtime.dependencies.new_token, parts.journal.check_from_beside
    queue = DeletionQueue(runtime.store, parts.cluster, new_token, check)
    topic = system_topic(runtime, parts.cluster, SystemTopicCounts(parts.metrics))
    found = (
        _door(parts, queue, topic, stack),
        _deletion(parts, queue, _announce(parts, topic, stack), stopping),
        _unused_subscriptions(parts, queue, stopping),
        _former_removals(parts),
        unloaded_topics(runtime, parts.metrics, stopping),
        _orphan_scan(parts, queue),
    )
    for one in found:
        if isinstance(one, DeletionTask):
            stack.callback(one.end)
    return [one for one in found if one is not None]


def _announce(parts: LifecycleParts, topic: SystemTopicOpening | None, stack: ExitStack) -> Announce:
    if topic is None or parts.section.system_topic == "accept":
        return lambda _: None
    return stack.enter_context(closing(topic.publisher())).announce


def _door(
    parts: LifecycleParts, queue: DeletionQueue, topic: SystemTopicOpening | None, stack: ExitStack
) -> LifecycleTask | None:
    section, now_ms = parts.section, parts.clocks.now_ms
    if topic is None or section.system_topic == "publish" or not parts.runtime.has_bookkeeper:
        return None
    examiner = LedgerExaminer(_open_ledgers(parts), queue, bounds_of(section), now_ms, _copies(parts, queue))
    interval = min(parts.interval, MOST_BETWEEN_MESSAGES)
    return stack.enter_context(closing(topic.acceptor(examiner, timing_of(section), interval)))


def _open_ledgers(parts: LifecycleParts) -> Callable[[ExitStack], BookKeeperSide]:
    """Opens BookKeeper's side, without what was rescued, and with a scanner that reads no copies back."""

    def opened(stack: ExitStack) -> BookKeeperSide:
        own = stack.enter_context(parts.runtime.child())
        return bookkeeper_side(own, ledger_scanner(own, parts.clocks.now_ms))

    return opened


def _copies(parts: LifecycleParts, queue: DeletionQueue) -> CopyExaminer | None:
    section, runtime, now_ms = parts.section, parts.runtime, parts.clocks.now_ms
    if not section.stock_bucket:
        return None

    def opened(stack: ExitStack) -> StockScanner:
        own = stack.enter_context(runtime.child())
        return stock_scanner(own, own.stock_bucket, partial(ledger_lists, runtime, now_ms), parts.cluster, now_ms)

    name = bucket_name(section.stock_bucket) or section.stock_bucket
    by_the_store = partial(store_time, runtime.store, now_ms, runtime.dependencies.new_token)
    return CopyExaminer(opened, name, queue, bounds_of(section), by_the_store)


def _deletion(
    parts: LifecycleParts, queue: DeletionQueue, announce: Announce, stopping: Callable[[], bool]
) -> LifecycleTask | None:
    section, runtime, now_ms = parts.section, parts.runtime, parts.clocks.now_ms
    on = section.topic_two_phase_deletion_enabled
    subscriptions = on or section.remove_cursors_after_ms is not None
    if not subscriptions and not _has_work(queue):
        return None
    bucket = bucket_side(runtime, now_ms, cluster=parts.cluster)  # it remembers how many objects there are
    sides = {LedgerType.OBJECT: LazySide(lambda _: bucket)}
    if runtime.has_bookkeeper:

        def opened(stack: ExitStack) -> BookKeeperSide:
            own = stack.enter_context(runtime.child())
            rescues = RescueEvidence(lambda: Rescues(runtime.store, parts.cluster), stopping)
            return bookkeeper_side(own, verifying_scanner(own, now_ms), rescues)

        ledgers, left_over = sides_together(opened)
        sides[LedgerType.LEDGER] = LazySide(ledgers)
        sides[LedgerType.MANAGED_LEDGER] = LazySide(left_over)
        sides[LedgerType.SUBSCRIPTION] = LazySide(_subscriptions(parts, stopping))
    rules = DeletionRules(
        timing_of(section),
        bounds_of(section),
        section.two_phase_deletion_ledger_deletion_parallelism,
        stopping=stopping,
        subscriptions=subscriptions,
    )
    return DeletionTask(on, parts.interval, queue, sides, rules, DeletionTold(parts.metrics), now_ms, announce)


def _subscriptions(parts: LifecycleParts, stopping: Callable[[], bool]) -> OpenSubscriptions:
    pace = pacing(parts.section.visits.a_minute, host_ms, partial(sleep_until_stopping, stopping))  # over all passes

    def opened(stack: ExitStack) -> SubscriptionSide:
        return subscription_side(stack.enter_context(parts.runtime.child()), parts.clocks.now_ms, pace, stopping)

    return opened


def _unused_subscriptions(
    parts: LifecycleParts, queue: DeletionQueue, stopping: Callable[[], bool]
) -> LifecycleTask | None:
    after = parts.section.remove_cursors_after_ms
    if after is None or not parts.runtime.has_bookkeeper:  # the configuration refuses one without the other
        return None
    side, bounds = _subscriptions(parts, stopping), bounds_of(parts.section)
    former = partial(former_removals, parts.runtime.store, parts.cluster)
    return UnusedSubscriptions(side, queue, after, parts.interval, parts.metrics, parts.clocks, bounds, former)


@dataclass
class FormerRemovals:
    """Names what earlier versions left pending, and forgets what has ended there, until nothing is left."""

    parts: LifecycleParts
    name: str = "former-removals"

    def run(self) -> float:
        """See LifecycleTask."""
        parts, store = self.parts, self.parts.runtime.store
        for one in pending_former(store, parts.cluster):
            log.warning("%s", one.says, extra={"see": "cursor-removal"})
        parts.journal.check_from_beside()
        forget_former(store, parts.cluster, parts.clocks.now_ms() - parts.section.record_retention_ms)
        return parts.interval


def _former_removals(parts: LifecycleParts) -> LifecycleTask | None:
    """Where there are any at the start."""
    try:
        any_there = next(iter(parts.runtime.store.list(cursors_folder(parts.cluster))), None) is not None
    except OffloadError as error:
        log.info("whether earlier versions left a removal is found out later: %s", error)
        return FormerRemovals(parts)
    return FormerRemovals(parts) if any_there else None


def unloaded_topics(runtime: Runtime, counts: VisitCounts, stopping: Callable[[], bool]) -> UnloadedTopicsTask | None:
    """None where `lifecycle.visitUnloaded` is off. Nothing is reached before it runs."""
    section = runtime.config.lifecycle
    if not section.visit_unloaded:
        return None
    opened = partial(_open_visits, runtime, partial(sleep_until_stopping, stopping))
    return UnloadedTopicsTask(opened, section.visits.interval_ms, host_ms, counts, stopping)


def _open_visits(runtime: Runtime, sleep: Callable[[float], None]) -> VisitParts:
    """Raises ConfigError, MetadataUnavailableError."""
    if not runtime.has_bookkeeper:
        raise ConfigError(
            "lifecycle.visitUnloaded: needs pulsar.metadataServiceUri, for example zk://host:2181/ledgers"
        )
    with ExitStack() as stack:
        parts = visits_of(stack.enter_context(runtime.child()), VisitClock(host_ms, sleep))
        stack.pop_all()  # the task closes them
        return parts


def sleep_until_stopping(stopping: Callable[[], bool], seconds: float) -> None:
    """No longer than until the application stops."""
    until = time.monotonic() + seconds
    while not stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))


def _orphan_scan(parts: LifecycleParts, queue: DeletionQueue) -> LifecycleTask | None:
    section, runtime, now_ms = parts.section, parts.runtime, parts.clocks.now_ms
    settings = section.orphan_scan
    if settings.interval_ms is None or not runtime.has_bookkeeper:
        return None
    scanner, held = bucket_scanner(runtime, now_ms, parts.cluster), holds(runtime.config.policies)
    bounds, limits = bounds_of(section), ScanLimits(settings.quarantine, settings.most)
    sides = (
        LedgerScanRound(_open_ledgers(parts), queue, bounds, limits, now_ms),
        BucketScanRound(scanner, queue, bounds, limits, now_ms, held),
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


def _has_work(queue: DeletionQueue) -> bool:
    """Where deletion once was on, or a command has marked a subscription: what is pending is counted, what has ended is
    forgotten in its time, and the switch says that it is off now."""
    try:
        return queue.switch() is not None or queue.has_any(LedgerType.SUBSCRIPTION)
    except OffloadError as error:
        log.info("whether deletion once was on is found out later: %s", error)
        return True
