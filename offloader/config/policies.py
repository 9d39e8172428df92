"""Merges a policy's levels field by field: cluster < Pulsar's namespace property < namespace < topic < partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from offloader.config.levels import DEFAULTS, Level, NamespaceSection, PolicyLevel, Rates, TopicPolicy
from offloader.config.problems import Path
from offloader.errors import ConfigError, NamespaceNotFoundError
from offloader.model import Source, TopicName

PROPERTY = "offloader.enabled"

# What a namespace's property says; None: it is not set.
Switch = bool | None

_SPELLED = {name: field.alias or name for name, field in PolicyLevel.model_fields.items()}


@dataclass(frozen=True, slots=True)
class Resolved:
    """A field's value, who set it, and where (a path in the file, or words)."""

    field: str
    value: Any
    level: Level
    path: Path


@dataclass(frozen=True, slots=True)
class _Layer:
    level: Level
    path: Path
    says: PolicyLevel

    def resolved(self, field: str) -> Resolved | None:
        value = getattr(self.says, field)
        if value is None:
            return None
        return Resolved(
            field, value, self.level, self.path if self.level is Level.PROPERTY else (*self.path, _SPELLED[field])
        )


class Policies:
    """Every topic's policy. `source`: `pulsar.source` where the file sets it. `filled`: bookies fill the gaps of source
    `broker`."""

    def __init__(
        self,
        cluster: PolicyLevel,
        namespaces: Mapping[str, NamespaceSection],
        source: Source | None = None,
        *,
        filled: bool = False,
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._source = source
        self._filled = filled

    def of(self, topic: TopicName, namespace_property: Switch = None) -> TopicPolicy:
        """A topic's policy. `namespace_property`: the `namespace_switch` of its namespace."""
        layers = self.layers(topic.namespace, topic, namespace_property)
        values = {field: self.resolve(field, layers) for field in DEFAULTS}
        plain = {field: r.value for field, r in values.items() if field != "max_bytes_per_second"}
        if self._filled and plain["source"] is Source.BROKER:
            plain["source"] = Source.BROKER_WITH_BOOKIES
        return TopicPolicy(**plain, rates=_rates(layers))

    def explain(self, topic: TopicName, namespace_property: Switch = None) -> tuple[Resolved, ...]:
        """Where each value of a topic's policy comes from; the rate limit once for each level that sets one."""
        layers = self.layers(topic.namespace, topic, namespace_property)
        merged = [self.resolve(field, layers) for field in DEFAULTS if field != "max_bytes_per_second"]
        return (*merged, *(found for layer in layers if (found := layer.resolved("max_bytes_per_second"))))

    def enables_any(self, namespace: str, namespace_property: Switch = None) -> bool:
        """Whether any topic of the namespace could be enabled: the others need not be listed."""
        section = self._namespaces.get(namespace)
        by_topic = section is not None and any(t.policies.enabled for t in section.topics.values())
        return by_topic or bool(self.resolve("enabled", self.layers(namespace, None, namespace_property)).value)

    def any_says(self, *fields: str) -> bool:
        """Whether any level of the file sets one of these fields to another value than the default."""
        return any(self.resolve(f, layers).value != DEFAULTS[f] for layers in self.scopes() for f in fields)

    def scopes(self) -> Iterator[list[_Layer]]:
        """The layers of the cluster, of every namespace and of every topic that the file names."""
        yield self.layers(None, None)
        for namespace, section in self._namespaces.items():
            yield self.layers(namespace, None)
            for name in section.topics:
                yield self.layers(namespace, TopicName.parse(name))

    def layers(self, namespace: str | None, topic: TopicName | None, namespace_property: Switch = None) -> list[_Layer]:
        """The levels that speak of a topic, the one that wins last."""
        layers = [_Layer(Level.CLUSTER, ("policies",), self._cluster)]
        if namespace_property is not None:
            switched = PolicyLevel.model_construct(enabled=namespace_property)
            layers.append(_Layer(Level.PROPERTY, (f"Pulsar's namespace property {PROPERTY}",), switched))
        section = self._namespaces.get(namespace or "")
        if section is None:
            return layers
        path: Path = ("namespaces", namespace or "")
        layers.append(_Layer(Level.NAMESPACE, (*path, "policies"), section.policies))
        for level, name in _names(topic):
            if name in section.topics:
                layers.append(_Layer(level, (*path, "topics", name, "policies"), section.topics[name].policies))
        return layers

    def resolve(self, field: str, layers: list[_Layer]) -> Resolved:
        """The value of the most specific layer that has one, else the default."""
        found = next((r for layer in reversed(layers) if (r := layer.resolved(field))), None)
        if found is not None:
            return found
        if field == "source" and self._source is not None:
            return Resolved(field, self._source, Level.CLUSTER, ("pulsar", "source"))
        return Resolved(field, DEFAULTS[field], Level.DEFAULT, ("default",))


def namespace_switch(properties: Mapping[str, str]) -> Switch:
    """What a namespace's property `offloader.enabled` says; None where it is absent. Raises ConfigError."""
    value = properties.get(PROPERTY)
    if value is None:
        return None
    if value.lower() not in ("true", "false"):
        raise ConfigError(f"{PROPERTY}: the namespace property is {value!r}; set it to true or false")
    return value.lower() == "true"


def enabled_topics(
    policies: Policies, properties: Callable[[str], Mapping[str, str]]
) -> Callable[[str], Callable[[TopicName], bool]]:
    """Of a namespace, which of its topics are enabled now. `properties`: asks Pulsar for those of a namespace."""

    def of_namespace(namespace: str) -> Callable[[TopicName], bool]:
        try:
            switch = namespace_switch(properties(namespace))
        except NamespaceNotFoundError:
            switch = None
        return lambda topic: policies.of(topic, switch).enabled

    return of_namespace


def _names(topic: TopicName | None) -> list[tuple[Level, str]]:
    if topic is None:
        return []
    whole = [(Level.TOPIC, topic.partitioned_name)]
    return [*whole, (Level.PARTITION, str(topic))] if topic.partition >= 0 else whole


def _rates(layers: list[_Layer]) -> Rates:
    found = {layer.level: layer.says.max_bytes_per_second for layer in layers}
    partition = found.get(Level.PARTITION)
    topic = found.get(Level.TOPIC) if partition is None else partition
    return Rates(found.get(Level.CLUSTER), found.get(Level.NAMESPACE), topic)
