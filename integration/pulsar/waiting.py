"""Waiting for a condition of a real server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from integration.processes import HANGS
from offloader.errors import OffloadError, RetryableError
from offloader.model import TopicName
from offloader.ports.entry_source import EntryReader, RawEntry
from offloader.pulsar.admin import AdminClient, effective_policies

T = TypeVar("T")


def until(check: Callable[[], T | None], seconds: float = HANGS) -> T:
    """What `check` gives once it is true. While a topic moves, it may raise what may be tried again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if found := check():
                return found
        except RetryableError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def limits_in_force(admin: AdminClient, topic: TopicName) -> Mapping[str, Any]:
    """A topic's policies once a TTL, an expiration of subscriptions and a quota that evicts are among them: a broker
    applies them behind its answer."""

    def found() -> Mapping[str, Any] | None:
        policies: Mapping[str, Any] = effective_policies(admin, topic)
        for error in policies.values():
            if isinstance(error, OffloadError):
                raise error
        quota = (policies["backlog_quota_map"] or {}).get("destination_storage", {}).get("policy")
        limited = policies["message_ttl_in_seconds"] and policies["subscription_expiration_time_minutes"]
        return policies if limited and quota == "consumer_backlog_eviction" else None

    return until(found)


def read(reader: EntryReader, count: int, seconds: float = HANGS) -> list[RawEntry]:
    """That many entries, in the order they came."""
    found: list[RawEntry] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} entries came"
        found += reader.read(1)
    return found


def positions(entries: list[RawEntry]) -> list[tuple[int, int]]:
    return [(e.ledger, e.entry) for e in entries]
