"""The application's visits of topics that nobody has loaded, by its configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial

from offloader.bookkeeper.connect import clients
from offloader.config import Config
from offloader.errors import ConfigError
from offloader.lifecycle.topics.cursors.configured import subscription_names
from offloader.lifecycle.topics.visit_look import VisitCounts
from offloader.lifecycle.topics.visit_parts import VisitParts, VisitPlaces, visit_parts
from offloader.lifecycle.topics.visit_round import VisitClock, VisitRate
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.offload import settings as derived
from offloader.ports.admin import Admin
from offloader.pulsar.visits import BrokerVisits


def unloaded_topics(
    config: Config, admin: Admin, counts: VisitCounts, stopping: Callable[[], bool]
) -> UnloadedTopicsTask | None:
    """None where `lifecycle.visitUnloaded` is off. Nothing is reached before it runs."""
    if not config.lifecycle.visit_unloaded:
        return None
    opened = partial(_open, config, admin, partial(_sleep, stopping))
    return UnloadedTopicsTask(opened, config.lifecycle.visits.interval_ms, _now_ms, counts, stopping)


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
        brokers = stack.enter_context(closing(BrokerVisits(derived.pulsar(config))))
        names = subscription_names(config.pulsar.subscription, admin)
        places = VisitPlaces(tree, bookies, brokers, admin.loaded_by, names)
        rate = VisitRate(config.lifecycle.visits.at_once, config.lifecycle.visits.a_minute)
        return visit_parts(places, VisitClock(_now_ms, sleep), rate, stack.pop_all().close)


def _sleep(stopping: Callable[[], bool], seconds: float) -> None:
    """No longer than until the application stops."""
    until = time.monotonic() + seconds
    while not stopping() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.5))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
