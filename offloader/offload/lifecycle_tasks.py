"""What the application does for the end of data, by its configuration: one short list."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from offloader.bookkeeper.connect import clients
from offloader.config import Config
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.configured import OpenedForALook, bookkeeper_side, bounds_of, leftover_side, timing_of
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType
from offloader.lifecycle.deletion.service import DeletionRules
from offloader.lifecycle.deletion.task import DeletionTask
from offloader.lifecycle.ledgers.stock_copies import stock_copies
from offloader.lifecycle.tasks import LifecycleTask
from offloader.metadata.journal import Journal
from offloader.metrics import Metrics
from offloader.offload import settings as derived
from offloader.offload.deletion_told import DeletionTold
from offloader.ports.admin import Admin
from offloader.ports.object_store import ObjectStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """What the tasks are made of."""

    config: Config
    admin: Admin
    store: ObjectStore
    journal: Journal
    metrics: Metrics
    cluster: str


def lifecycle_tasks(parts: LifecycleParts, stopping: Callable[[], bool]) -> list[LifecycleTask]:
    """Those that are switched on; none is reached yet, but the store for whether deletion once was.

    `stopping`: whether to end soon."""
    found = (_deletion(parts, stopping),)
    return [one for one in found if one is not None]


def _deletion(parts: LifecycleParts, stopping: Callable[[], bool]) -> LifecycleTask | None:
    section = parts.config.lifecycle
    queue = DeletionQueue(parts.store, parts.cluster, lambda: str(uuid.uuid4()), parts.journal.check_from_beside)
    on = section.topic_two_phase_deletion_enabled
    if not on and not _was_on(queue):
        return None
    reached = derived.bookkeeper(parts.config)
    sides = {}
    if reached is not None:
        copies = stock_copies(section.stock_bucket, derived.store(parts.config))
        opened = bookkeeper_side(section, lambda: clients(reached), parts.admin, _now_ms, copies)
        sides[LedgerType.LEDGER] = OpenedForALook(opened)
        left_over = leftover_side(section, lambda: clients(reached), parts.admin, _now_ms)
        sides[LedgerType.MANAGED_LEDGER] = OpenedForALook(left_over)
    rules = DeletionRules(
        timing_of(section),
        bounds_of(section),
        section.two_phase_deletion_ledger_deletion_parallelism,
        owner=True,
        stopping=stopping,
    )
    interval = section.deletion_interval_ms / 1000
    return DeletionTask(on, interval, queue, sides, rules, DeletionTold(parts.metrics), _now_ms)


def _was_on(queue: DeletionQueue) -> bool:
    """Then what is pending is counted, and the switch says that it is off now."""
    try:
        return queue.switch() is not None
    except OffloadError as error:
        log.info("whether deletion once was on is found out later: %s", error)
        return True


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
