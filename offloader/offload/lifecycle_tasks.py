"""What the application does for the end of data, by its configuration: one short list."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.config import Config
from offloader.errors import OffloadError
from offloader.lifecycle.bucket.holds import holds
from offloader.lifecycle.bucket.read_copies import ReadCopies
from offloader.lifecycle.bucket.reading import store_time
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.bucket.stock import StockScanner
from offloader.lifecycle.deletion.configured import (
    OpenedForALook,
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
from offloader.lifecycle.deletion.system_topic.copies import CopyExaminer
from offloader.lifecycle.deletion.system_topic.examining import LedgerExaminer
from offloader.lifecycle.deletion.system_topic.opening import SystemTopicOpening
from offloader.lifecycle.deletion.task import DeletionTask
from offloader.lifecycle.ledgers.references import References
from offloader.lifecycle.ledgers.stock_copies import bucket_name, stock_copies, stock_store
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.tasks import LifecycleTask
from offloader.lifecycle.topics.cursors.removals import CursorRemovals
from offloader.metadata.bridge_reader import BridgeReader
from offloader.metadata.journal import Journal
from offloader.metadata.rescue_log import Rescues
from offloader.metrics import Metrics
from offloader.offload import settings as derived
from offloader.offload.cursor_removals import cursor_removals
from offloader.offload.deletion_told import DeletionTold
from offloader.offload.system_topic import SystemTopicCounts, system_topic
from offloader.offload.unloaded_visits import unloaded_topics
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore
from offloader.storage.open import open_store

log = logging.getLogger(__name__)

MOST_BETWEEN_MESSAGES = 30.0  # seconds between two looks at the system topic


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """What the tasks are made of."""

    config: Config
    admin: Admin
    store: ObjectStore
    journal: Journal
    metrics: Metrics
    cluster: str


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
        cursor_removals(parts.config, parts.admin, _removals(parts), parts.metrics, _now_ms),
        unloaded_topics(parts.config, parts.admin, parts.metrics, stopping),
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
    opened = bookkeeper_side(section, lambda: clients(reached), parts.admin, _now_ms)
    examiner = LedgerExaminer(opened, queue, bounds_of(section), _now_ms, _copies(parts, queue, reached))
    interval = min(section.deletion_interval_ms / 1000, MOST_BETWEEN_MESSAGES)
    return stack.enter_context(closing(topic.acceptor(examiner, timing_of(section), interval)))


def _copies(parts: LifecycleParts, queue: DeletionQueue, reached: BookKeeperSettings) -> CopyExaminer | None:
    section = parts.config.lifecycle
    if not section.stock_bucket:
        return None
    settings = stock_store(section.stock_bucket, derived.store(parts.config))

    def lists() -> tuple[References, ...]:
        return lists_of_all_stores(section, lambda: clients(reached), parts.admin, _now_ms)

    def opened(stack: ExitStack) -> StockScanner:
        store = stack.enter_context(closing(open_store(settings, read_only=True)))
        bridged = BridgeReader(parts.store).of
        read_copies = ReadCopies(parts.store).of
        return StockScanner(store, lists, parts.cluster, _now_ms, section.quarantine_floor_ms, bridged, read_copies)

    name = bucket_name(section.stock_bucket) or section.stock_bucket
    by_the_store = partial(store_time, parts.store, _now_ms, _new_uuid)
    return CopyExaminer(opened, name, queue, bounds_of(section), by_the_store)


def _removals(parts: LifecycleParts) -> CursorRemovals:
    return CursorRemovals(parts.store, parts.cluster, _new_uuid, parts.journal.check_from_beside)


def _deletion(
    parts: LifecycleParts, queue: DeletionQueue, announce: Announce, stopping: Callable[[], bool]
) -> LifecycleTask | None:
    section = parts.config.lifecycle
    on = section.topic_two_phase_deletion_enabled
    if not on and not _was_on(queue):
        return None
    reached = derived.bookkeeper(parts.config)
    sides = {LedgerType.OBJECT: OpenedForALook(_bucket_side(parts))}
    if reached is not None:
        copies = stock_copies(section.stock_bucket, derived.store(parts.config))
        rescues = RescueEvidence(lambda: Rescues(parts.store, parts.cluster), stopping)
        ledgers, left_over = cluster_sides(section, lambda: clients(reached), parts.admin, _now_ms, copies, rescues)
        sides[LedgerType.LEDGER] = OpenedForALook(ledgers)
        sides[LedgerType.MANAGED_LEDGER] = OpenedForALook(left_over)
    rules = DeletionRules(
        timing_of(section),
        bounds_of(section),
        section.two_phase_deletion_ledger_deletion_parallelism,
        stopping=stopping,
    )
    interval = section.deletion_interval_ms / 1000
    return DeletionTask(on, interval, queue, sides, rules, DeletionTold(parts.metrics), _now_ms, announce)


def _bucket_side(parts: LifecycleParts) -> OpenSide:
    """The archive's. Objects of Pulsar's own offloader wait for the command that names their bucket."""
    grace = parts.config.lifecycle.quarantine_floor_ms
    scanner = BucketScanner(parts.store, _now_ms, _new_uuid, grace, cluster=parts.cluster)
    held = holds(parts.config.policies)
    side = BucketSide(parts.store, scanner, held=held)  # it remembers how many objects there are
    return lambda _: side


def _was_on(queue: DeletionQueue) -> bool:
    """Then what is pending is counted, and the switch says that it is off now."""
    try:
        return queue.switch() is not None
    except OffloadError as error:
        log.info("whether deletion once was on is found out later: %s", error)
        return True


def _new_uuid() -> str:
    return str(uuid.uuid4())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
