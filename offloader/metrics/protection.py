"""The metrics of `offloader subscriptions protect`."""

from __future__ import annotations

import time
from collections import Counter as Counts
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

import offloader.metrics.protection_definitions as d
from offloader.metrics.definitions import Definition
from offloader.metrics.health import Health

LIVENESS = 600.0  # seconds without a look


class ProtectionMetrics:
    """One thread counts; others may ask. `looked` for each subscription of a round, then `round_ended`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.health = Health(LIVENESS, 0, clock, services=("pulsar",))
        self._clock = clock
        self._standing: Counts[tuple[str, str]] = Counts()
        self._at_stake: Counts[str] = Counts()
        self._subscriptions, self._stake = self._gauge(d.SUBSCRIPTIONS), self._gauge(d.AT_STAKE)
        self._entries, self._batches = self._counter(d.ENTRIES), self._counter(d.BATCHES)
        self._ended, self._failures = self._counter(d.ENDED), self._counter(d.FAILURES)
        self._seconds = self._gauge(d.ROUND_SECONDS)
        self._round_at = clock()
        self._gauge(d.ROUND_AGE).set_function(lambda: clock() - self._round_at)

    def looked(self, namespace: str, standing: str, at_stake: int = 0) -> None:
        """How a subscription stands."""
        self.health.tick()
        self._standing[namespace, standing] += 1
        self._at_stake[namespace] += at_stake

    def acknowledged(self, namespace: str, entries: int, batches: int) -> None:
        """Again."""
        self._entries.labels(namespace).inc(entries)
        self._batches.labels(namespace).inc(batches)

    def ended(self, namespace: str) -> None:
        """The protection of what was acknowledged before."""
        self._ended.labels(namespace).inc()

    def failed(self, namespace: str) -> None:
        """A look, or an acknowledgement."""
        self._failures.labels(namespace).inc()

    def round_ended(self, seconds: float) -> None:
        """All topics were looked at."""
        self.health.tick()
        self.health.checked("pulsar")
        for labels, count in self._standing.items():
            self._subscriptions.labels(*labels).set(count)
        for namespace, entries in self._at_stake.items():
            self._stake.labels(namespace).set(entries)
        # What there is none of any more stays, as 0.
        self._standing = Counts(dict.fromkeys(self._standing, 0))
        self._at_stake = Counts(dict.fromkeys(self._at_stake, 0))
        self._seconds.set(seconds)
        self._round_at = self._clock()

    def round_failed(self, why: str) -> None:
        """Nobody says which topics there are."""
        self.health.tick()
        self.health.checked("pulsar", why)

    def _gauge(self, of: Definition) -> Gauge:
        return Gauge(of.name, of.help, of.labels, registry=self.registry)

    def _counter(self, of: Definition) -> Counter:
        return Counter(of.name, of.help, of.labels, registry=self.registry)
