"""The series of a process that runs several shards: those of the others have the label `shard`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


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
