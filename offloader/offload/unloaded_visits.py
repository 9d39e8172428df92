"""The application's visits of topics that nobody has loaded, by its configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from offloader.bookkeeper.connect import clients
from offloader.config import Config
from offloader.config.policies import enabled_topics
from offloader.errors import ConfigError
from offloader.lifecycle.clocks import host_ms
from offloader.lifecycle.topics.cursors.configured import subscription_names
from offloader.lifecycle.topics.visit_outcome import VisitCounts
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.lifecycle.topics.visiting import VisitClock, VisitParts, VisitPlaces, VisitRate, visit_parts
from offloader.offload import settings as derived
from offloader.ports.admin import Admin
from offloader.pulsar.admin import AdminClient


def unloaded_topics(
    config: Config, admin: Admin, counts: VisitCounts, stopping: Callable[[], bool]
) -> UnloadedTopicsTask | None:
    """None where `lifecycle.visitUnloaded` is off. Nothing is reached before it runs."""
    if not config.lifecycle.visit_unloaded:
        return None
    opened = partial(_open, config, admin, partial(sleep_until_stopping, stopping))
    return UnloadedTopicsTask(opened, config.lifecycle.visits.interval_ms, host_ms, counts, stopping)


def _open(config: Config, admin: Admin, sleep: Callable[[float], None]) -> VisitParts:
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
