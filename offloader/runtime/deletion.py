"""Scanners, and the sides of deletion, over the connections of a runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING

from offloader.bridge.log import BridgeReader
from offloader.config.lifecycle import Lifecycle
from offloader.config.policies import enabled_topics
from offloader.errors import OutcomeUnknownError
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.reading import check_records
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.bookkeeper_side import BookKeeperSide
from offloader.lifecycle.deletion.leftover_side import LeftoverSide
from offloader.lifecycle.deletion.owners import LoadedTopics
from offloader.lifecycle.deletion.side import OpenSide
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.ledgers.copies import VerifyCopies, no_copies
from offloader.lifecycle.ledgers.reading import Said
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.scanned import LedgerScanner
from offloader.lifecycle.ledgers.scanner import ClusterScanner, open_scanner
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.topics.cursors.configured import subscription_names
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.visiting import VisitClock, VisitParts, VisitPlaces, VisitRate, visit_parts
from offloader.ports.object_store import ObjectStore
from offloader.runtime.connections import Runtime, pulsar_settings

if TYPE_CHECKING:
    from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicEvents
    from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening

_SECRET = 32  # bytes
Clock = Callable[[], int]
ReadReferences = Callable[[], Sequence[References]]
"""Reads all ledger lists of all metadata stores, when it is called."""


def timing_of(section: Lifecycle) -> DeletionTiming:
    """When deletions go on."""
    return DeletionTiming(
        delay=section.quarantine_ms,
        longest_compaction=section.longest_compaction_ms,
        reconsume_later=section.reconsume_later_ms,
        max_tries=section.two_phase_deletion_max_retry_delete_count,
        kept=section.record_retention_ms,
        floor=section.quarantine_floor_ms,
    )


def bounds_of(section: Lifecycle) -> DeletionBounds:
    """How much may go at once."""
    return DeletionBounds(section.limits.number, section.limits.percent, section.limits.a_round)


def ledger_scanner(
    runtime: Runtime,
    clock_ms: Clock,
    copies: VerifyCopies = no_copies,
    said: Said = lambda _what, _count: None,
    timeout: float = 0,
) -> ClusterScanner:
    """Scans the cluster for ledgers; the caller closes it. `timeout`: as of `Runtime.bookkeeper`. Raises ConfigError,
    MetadataUnavailableError."""
    tree, bookies = runtime.bookkeeper(timeout)
    connect = runtime.dependencies.zookeeper
    section, admin = runtime.config.lifecycle, runtime.admin
    return open_scanner(
        section, tree, bookies, admin, connect=connect, verify_copies=copies, clock_ms=clock_ms, said=said
    )


def ledger_lists(runtime: Runtime, clock_ms: Clock) -> tuple[References, ...]:
    """All ledger lists of all metadata stores, as they are now; what is opened for that is closed. Raises ConfigError,
    MetadataUnavailableError, AccessDeniedError."""
    with runtime.child() as own, closing(ledger_scanner(own, clock_ms)) as scanner:
        return scanner.references()


def bookkeeper_side(
    runtime: Runtime, scanner: LedgerScanner, rescues: RescueEvidence | None = None, timeout: float = 0
) -> BookKeeperSide:
    """BookKeeper's. The scanner is closed with the runtime."""
    tree, bookies = runtime.bookkeeper(timeout)
    return BookKeeperSide(tree, bookies, runtime.closing(scanner), LoadedTopics.of(runtime.admin), rescues=rescues)


def verifying_scanner(runtime: Runtime, clock_ms: Clock, timeout: float = 0) -> LedgerScanner:
    """A scanner that reads offloaded copies back; the caller closes it."""
    tree, bookies = runtime.bookkeeper(timeout)
    return runtime.dependencies.scanner(runtime.config, tree, bookies, runtime.admin, clock_ms)


def leftovers_beside(ledgers: BookKeeperSide) -> LeftoverSide:
    """Left-over managed ledgers of the same cluster."""
    return LeftoverSide(ledgers.tree, ledgers.scanner, ledgers.loaded)


def sides_together(open_ledgers: Callable[[ExitStack], BookKeeperSide]) -> tuple[OpenSide, OpenSide]:
    """BookKeeper's, and that of left-over managed ledgers: what one of them opens, and reads of everything, serves
    both. They are ended together."""
    once = _OpenedOnce(open_ledgers)
    return once, lambda stack: leftovers_beside(once(stack))


@dataclass
class _OpenedOnce:
    open_side: Callable[[ExitStack], BookKeeperSide]
    _side: BookKeeperSide | None = None

    def __call__(self, stack: ExitStack) -> BookKeeperSide:
        if self._side is None:
            self._side = self.open_side(stack)
            stack.callback(self._forget)
        return self._side

    def _forget(self) -> None:
        self._side = None


def stored_topics(runtime: Runtime, timeout: float = 0) -> StoredTopics:
    """What is stored of subscriptions. `timeout`: seconds that a bookie may take; 0: as configured. Raises ConfigError,
    MetadataUnavailableError."""
    return StoredTopics(
        *runtime.bookkeeper(timeout), timeout or runtime.config.pulsar.bookies.operation_timeout_ms / 1000
    )


def names_of(runtime: Runtime, *, offline: bool = False) -> SubscriptionNames:
    """What the cluster's own subscriptions are called; `offline`: as by default, brokers are not asked."""
    return subscription_names(runtime.config.pulsar.subscription, None if offline else runtime.admin)


def subscription_side(
    runtime: Runtime,
    now_ms: Clock,
    pace: Callable[[], None],
    stopping: Callable[[], bool] = lambda: False,
    timeout: float = 0,
) -> SubscriptionSide:
    """That of subscriptions; `lifecycle.visits` says how many topics are loaded at a time. Raises ConfigError,
    MetadataUnavailableError."""
    stored, brokers, at_once = stored_topics(runtime, timeout), runtime.subscriptions, runtime.config.lifecycle.visits
    return SubscriptionSide(stored, brokers, names_of(runtime), now_ms, at_once.at_once, pace, stopping)


def bucket_scanner(
    runtime: Runtime, now_ms: Clock, cluster: str | None = None, progress: Callable[[int], None] = lambda _: None
) -> BucketScanner:
    """Scans the archive for objects."""
    grace, new_token = runtime.config.lifecycle.quarantine_floor_ms, runtime.dependencies.new_token
    return BucketScanner(runtime.store, now_ms, new_token, grace, cluster=cluster, progress=progress)


def bucket_side(
    runtime: Runtime, now_ms: Clock, stock: StockScanner | None = None, cluster: str | None = None
) -> BucketSide:
    """The archive's. `stock`: the bucket of Pulsar's own offloader, where records name it."""
    scanner = bucket_scanner(runtime, now_ms, cluster)
    return BucketSide(runtime.store, scanner, stock, held=holds(runtime.config.policies))


def stock_scanner(
    runtime: Runtime, store: ObjectStore, lists: ReadReferences, cluster: str, now_ms: Clock
) -> StockScanner:
    """Scans the bucket of Pulsar's own offloader."""
    section, bridged = runtime.config.lifecycle, BridgeReader(runtime.store).of
    check = partial(check_records, runtime.store)
    grace, alone = section.quarantine_floor_ms, section.bucket_is_not_shared
    return StockScanner(store, lists, cluster, now_ms, grace, bridged, check, alone)


def visits_of(runtime: Runtime, clock: VisitClock, timeout: float = 0) -> VisitParts:
    """What visits of unloaded topics are made of. Raises ConfigError, MetadataUnavailableError."""
    tree, bookies = runtime.bookkeeper(timeout)
    config, admin = runtime.config, runtime.admin
    enabled = enabled_topics(config.policies, admin.namespace_properties)
    places = VisitPlaces(tree, bookies, runtime.visits, admin.loaded_by, names_of(runtime), enabled)
    rate = VisitRate(config.lifecycle.visits.at_once, config.lifecycle.visits.a_minute)
    return visit_parts(places, clock, rate, runtime.close)


def system_topic(runtime: Runtime, cluster: str, events: SystemTopicEvents) -> SystemTopicOpening | None:
    """PIP-186's system topic; None where `lifecycle.systemTopic` is off. Raises ConfigError where the package is not
    installed."""
    section = runtime.config.lifecycle
    if section.system_topic == "off":
        return None
    from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening, open_mark
    from offloader.lifecycle.deletion.system_topic.pulsar_channel import check_library

    check_library()
    settings = pulsar_settings(runtime.config)
    opened = partial(open_mark, runtime.store, cluster, runtime.dependencies.new_token, partial(token_bytes, _SECRET))
    try:
        mark = opened()
    except OutcomeUnknownError:
        mark = opened()
    partitions = section.two_phase_deletion_ledger_deletion_parallelism
    return SystemTopicOpening(settings, runtime.rest, mark, events, partitions)
