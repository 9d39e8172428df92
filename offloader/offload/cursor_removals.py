"""The application's removals of subscriptions that nobody uses, by its configuration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from offloader.bookkeeper.connect import BookKeeperSettings, clients
from offloader.config import Config
from offloader.lifecycle.deletion.configured import bounds_of
from offloader.lifecycle.topics.cursors.configured import removal_timing, subscription_names
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.lifecycle.topics.cursors.removals import CursorRemovals
from offloader.lifecycle.topics.cursors.service import CursorRemover
from offloader.lifecycle.topics.cursors.task import CursorRemovalTask, RemovalCounts
from offloader.offload import settings as derived
from offloader.ports.admin import Admin
from offloader.pulsar.subscriptions import BrokerSubscriptions

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


def cursor_removals(
    config: Config, admin: Admin, removals: CursorRemovals, counts: RemovalCounts, clock_ms: Callable[[], int]
) -> OpenedForRemovals | None:
    """None where neither `lifecycle.removeCursorsAfter` nor deletion is on. Nothing is reached before it runs."""
    section = config.lifecycle
    reached = derived.bookkeeper(config)
    wanted = section.remove_cursors_after_ms is not None or section.topic_two_phase_deletion_enabled
    if not wanted or reached is None:  # the configuration refuses a policy without a metadata service
        return None
    after, interval = section.remove_cursors_after_ms, section.deletion_interval_ms / 1000

    def make(remover: CursorRemover) -> CursorRemovalTask:
        return CursorRemovalTask(remover, after, interval, counts, bounds_of(section))

    def opened(stack: ExitStack) -> CursorRemover:
        return _open(config, admin, removals, reached, clock_ms, stack)

    return OpenedForRemovals(opened, removals, after, interval, counts, make)


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
