"""The application's removals of subscriptions that nobody uses, by its configuration."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.config import Config
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.configured import bounds_of
from offloader.lifecycle.deletion.timing import DeletionTiming
from offloader.lifecycle.record_queue import DamagedRecord
from offloader.lifecycle.tasks import LifecycleTask
from offloader.lifecycle.topics.cursors.configured import removal_timing, subscription_names
from offloader.lifecycle.topics.cursors.machine import is_forgotten
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.records import RemovalState
from offloader.lifecycle.topics.cursors.removals import CursorRemovals
from offloader.lifecycle.topics.cursors.service import CursorRemover
from offloader.lifecycle.topics.cursors.task import CursorRemovalTask, RemovalCounts
from offloader.offload import settings as derived
from offloader.ports.admin import Admin
from offloader.pulsar.subscriptions import BrokerSubscriptions

log = logging.getLogger(__name__)

OpenRemover = Callable[[ExitStack], CursorRemover]
"""What must be closed is left with the stack. Raises OffloadError."""


@dataclass
class OpenedForRemovals:
    """A `CursorRemovalTask` that reaches ZooKeeper, bookies and brokers only while it works: where no policy is set,
    only where a removal is recorded."""

    open_remover: OpenRemover
    removals: CursorRemovals
    after_ms: int | None
    interval: float
    counts: RemovalCounts
    make: Callable[[CursorRemover], CursorRemovalTask]
    name: str = "cursors"
    _task: CursorRemovalTask | None = None

    def run(self) -> float:
        """See LifecycleTask."""
        if self.after_ms is None and next(iter(self.removals.records()), None) is None:
            self.counts.cursor_removals_pending({}, 0)
            return self.interval
        with ExitStack() as stack:
            remover = self.open_remover(stack)
            self._task = self.make(remover) if self._task is None else replace(self._task, remover=remover)
            return self._task.run()


@dataclass
class EndedRemovals:
    """Where the application removes nothing, but somebody once did by a command: what has ended is forgotten in its
    time, what is pending is counted and stays. It reads the bucket alone."""

    removals: CursorRemovals
    timing: DeletionTiming
    interval: float
    counts: RemovalCounts
    clock_ms: Callable[[], int]
    name: str = "cursors"

    def run(self) -> float:
        """See LifecycleTask."""
        states = Counter[str]()
        for stored in self.removals.records():
            if isinstance(stored, DamagedRecord):
                states["damaged"] += 1
            elif not stored.record.has_ended:
                states[str(stored.record.state)] += 1
            elif is_forgotten(stored.record, self.clock_ms(), self.timing):
                self.removals.remove(stored)
        self.counts.cursor_removals_pending(states, states[RemovalState.MARKED] + states[RemovalState.REMOVING])
        return self.interval


def cursor_removals(
    config: Config, admin: Admin, removals: CursorRemovals, counts: RemovalCounts, clock_ms: Callable[[], int]
) -> LifecycleTask | None:
    """Both phases where `lifecycle.removeCursorsAfter` or deletion is on; else records are looked after, if there is
    any at the start. Nothing but the bucket is reached before it runs."""
    section = config.lifecycle
    reached = derived.bookkeeper(config)
    after, interval = section.remove_cursors_after_ms, section.deletion_interval_ms / 1000
    wanted = after is not None or section.topic_two_phase_deletion_enabled
    if not wanted or reached is None:  # the configuration refuses a policy without a metadata service
        looked_after = EndedRemovals(removals, removal_timing(section), interval, counts, clock_ms)
        return looked_after if _is_any_recorded(removals) else None

    def make(remover: CursorRemover) -> CursorRemovalTask:
        return CursorRemovalTask(remover, after, interval, counts, bounds_of(section))

    def opened(stack: ExitStack) -> CursorRemover:
        return _open(config, admin, removals, reached, clock_ms, stack)

    return OpenedForRemovals(opened, removals, after, interval, counts, make)


def _is_any_recorded(removals: CursorRemovals) -> bool:
    try:
        return next(iter(removals.records()), None) is not None
    except OffloadError as error:
        log.info("whether a removal is recorded is found out later: %s", error)
        return True


def _open(
    config: Config,
    admin: Admin,
    removals: CursorRemovals,
    reached: BookKeeperSettings,
    clock_ms: Callable[[], int],
    stack: ExitStack,
) -> CursorRemover:
    tree, bookies = clients(reached)
    stack.enter_context(closing(tree))
    stack.enter_context(closing(bookies))
    brokers = stack.enter_context(closing(BrokerSubscriptions(derived.pulsar(config))))
    stored = StoredTopics(tree, bookies, reached.bookies.request_timeout)
    names = subscription_names(config.pulsar.subscription, admin)
    return CursorRemover(removals, stored, brokers, names, removal_timing(config.lifecycle), clock_ms)
