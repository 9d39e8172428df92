"""Series of single topics, their number bounded: those that lag most by name, the rest added up under `other`.

`Together` has the series of a process that runs several shards: those of the others have the label `shard`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import offloader.metrics.definitions as definitions
from offloader.model import TopicName

OTHER = "other"


@dataclass(frozen=True, slots=True)
class TopicLag:
    """How far one topic is behind: `lag` from the catalog's end, `pinned` from the subscription's mark-delete."""

    topic: TopicName
    lag_bytes: int
    lag_ms: int
    pinned_bytes: int
    pinned_ms: int


class TopicsCollector(Collector):
    """Shows the last snapshot of all topics, and no other topic."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lags: Iterable[TopicLag] = ()

    def set(self, lags: Iterable[TopicLag]) -> None:
        """Replace the snapshot. It is gone through when somebody asks, in their thread, and each time anew."""
        self._lags = lags

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The four gauges of each topic."""
        lags = _chosen(self._lags, self._most)
        yield _family(definitions.LAG_BYTES, {t: lag.lag_bytes for t, lag in lags.items()})
        yield _family(definitions.LAG_SECONDS, {t: lag.lag_ms / 1000 for t, lag in lags.items()})
        yield _family(definitions.PINNED_BYTES, {t: lag.pinned_bytes for t, lag in lags.items()})
        yield _family(definitions.PINNED_SECONDS, {t: lag.pinned_ms / 1000 for t, lag in lags.items()})


def _chosen(lags: Iterable[TopicLag], most: int) -> dict[str, TopicLag]:
    order = sorted(lags, key=lambda lag: (-lag.lag_bytes, -lag.lag_ms, lag.topic))
    shown = {str(lag.topic): lag for lag in order[:most]}
    rest = order[most:]
    return {**shown, OTHER: _merged(rest)} if rest else shown


def _merged(lags: list[TopicLag]) -> TopicLag:
    """Bytes add up; of the ages the greatest counts."""
    return TopicLag(
        lags[0].topic,
        sum(lag.lag_bytes for lag in lags),
        max(lag.lag_ms for lag in lags),
        sum(lag.pinned_bytes for lag in lags),
        max(lag.pinned_ms for lag in lags),
    )


def _family(definition: definitions.Definition, values: dict[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
    for topic, value in values.items():
        family.add_metric([topic], value)
    return family


class Together(CollectorRegistry):
    """`own`, and each of the `others` under its label. What is exposed has each family once."""

    def __init__(self, own: CollectorRegistry) -> None:
        super().__init__()
        self._own = own
        self._others: dict[str, CollectorRegistry] = {}

    def add(self, shard: str, registry: CollectorRegistry) -> None:
        """Another shard's series, in place of those that it had before."""
        self._others = self._others | {shard: registry}

    def remove(self, shard: str) -> None:
        """The shard is not run here any more."""
        self._others = {other: registry for other, registry in self._others.items() if other != shard}

    def collect(self) -> Iterable[Metric]:
        families = {family.name: family for family in self._own.collect()}
        for shard, registry in self._others.items():
            for family in registry.collect():
                empty = Metric(family.name, family.documentation, family.type, family.unit)
                labelled = [sample._replace(labels={**sample.labels, "shard": shard}) for sample in family.samples]
                families.setdefault(family.name, empty).samples += labelled
        return families.values()

    def restricted_registry(self, names: Iterable[str]) -> Collector:  # type: ignore[override]
        """Some families of its own shard alone."""
        return self._own.restricted_registry(names)
