"""Series of single topics, their number bounded: those that lag most by name, the rest added up under `other`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
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
