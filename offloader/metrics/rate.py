"""Bytes a second over the last minute, as Pulsar's own offloader metric gives them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from offloader.metrics.definitions import RATE

WINDOW = 60


class RateCollector(Collector):
    """One sliding window for each namespace. `clock` in seconds. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: dict[str, deque[tuple[int, int]]] = {}

    def add(self, namespace: str, size: int) -> None:
        """Count bytes of now."""
        now = int(self._clock())
        with self._lock:
            seconds = self._seconds.setdefault(namespace, deque(maxlen=WINDOW + 1))
            before = seconds.pop()[1] if seconds and seconds[-1][0] == now else 0
            seconds.append((now, before + size))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The present rates; a namespace that was ever counted stays, with 0."""
        oldest = int(self._clock()) - WINDOW
        family = GaugeMetricFamily(RATE.name, RATE.help, labels=RATE.labels)
        with self._lock:
            for namespace, seconds in self._seconds.items():
                family.add_metric([namespace], sum(size for second, size in seconds if second > oldest) / WINDOW)
        yield family
