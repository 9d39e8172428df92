"""The metrics of `offloader gateway`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

import offloader.metrics.gateway_definitions as d
from offloader.metrics.definitions import Definition
from offloader.metrics.health import Health

LIVENESS = 60.0  # seconds without a turn of the loop


class Sample(NamedTuple):
    """One series at one moment."""

    definition: Definition
    labels: Sequence[str]
    value: float


class GatewayMetrics:
    """`samples`: all series but the histogram's, whenever somebody asks for them. Safe to use from several threads."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self.health = Health(LIVENESS, 0, clock, services=("store",))
        self._seconds = Histogram(
            d.WORK_SECONDS.name,
            d.WORK_SECONDS.help,
            d.WORK_SECONDS.labels,
            buckets=d.WORK_SECONDS.buckets,
            registry=self.registry,
        )
        self.registry.register(_Samples(samples, lambda: self.health.age))

    def worked(self, kind: str, seconds: float) -> None:
        """A thread has done something; `seconds` since it was asked to."""
        self._seconds.labels(kind).observe(seconds)


class _Samples(Collector):
    """Families of samples, in the order of their definitions."""

    def __init__(self, samples: Callable[[], Iterable[Sample]], age: Callable[[], float]) -> None:
        self._samples = samples
        self._age = age

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Nothing, so that registering asks for no sample."""
        return ()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        found: dict[Definition, CounterMetricFamily | GaugeMetricFamily] = {
            one: _family(one) for one in d.ALL if one is not d.WORK_SECONDS
        }
        for definition, labels, value in (*self._samples(), Sample(d.TICKED, (), self._age())):
            found[definition].add_metric(labels, value)
        yield from found.values()


def _family(definition: Definition) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    return kind(definition.name, definition.help, labels=definition.labels)
