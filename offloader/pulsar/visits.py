"""`TopicVisits` over the admin REST."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from offloader.errors import ProtocolError
from offloader.model import TopicName
from offloader.ports.visits import KnownTopics, TopicUse
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.settings import PulsarSettings


class BrokerVisits:
    """Thread safe. `transport` carries the requests, by default over sockets."""

    def __init__(self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._admin = AdminClient(settings, transport=transport)
        self._rest = self._admin.rest

    def version(self) -> str:
        return self._admin.version()

    def loaded(self) -> Mapping[str, str]:
        return self._admin.loaded_topics()

    def known(self, namespace: str) -> KnownTopics:
        topics = _names(self._rest.get(f"persistent/{namespace}", includeSystemTopic="true"), namespace)
        partitioned = _names(self._rest.get(f"persistent/{namespace}/partitioned"), namespace)
        return KnownTopics(frozenset(topics), frozenset(map(str, partitioned)))

    def default_retention(self) -> Mapping[str, str]:
        return self._admin.runtime_configuration()

    def namespace_retention(self, namespace: str) -> object:
        return self._admin.namespace_policies(namespace).get("retention_policies")

    def topic_retention(self, topic: TopicName) -> object:
        return self._rest.get(f"{topic.rest_path}/retention", applied="true")

    def trim(self, topic: TopicName) -> None:
        self._do("POST", f"{topic.rest_path}/trim")

    def use(self, topic: TopicName) -> TopicUse:
        return _use(self._rest.get(f"{topic.rest_path}/stats"))

    def unload(self, topic: TopicName) -> None:
        self._do("PUT", f"{topic.rest_path}/unload")

    def close(self) -> None:
        self._admin.close()

    def _do(self, method: str, path: str) -> None:
        response = self._rest.request(method, path)
        if response.is_error:
            raise self._rest.error(path, response)


def _use(stats: object) -> TopicUse:
    found = _object(stats)
    consumers = sum(len(_array(_object(one).get("consumers"))) for one in _object(found.get("subscriptions")).values())
    producers = len(_array(found.get("publishers"))) + _count(found.get("waitingPublishers", 0))
    replicators = _object(found.get("replication", {})).values()
    return TopicUse(
        producers + consumers, sum(_count(_object(one).get("replicationBacklog", 0)) > 0 for one in replicators)
    )


def _names(answer: object, namespace: str) -> list[TopicName]:
    try:
        return [TopicName.parse(_text(name)) for name in _array(answer)]
    except ValueError as error:
        raise ProtocolError(f"the topics of {namespace}: {error}") from error


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _wrong(value, "an object")


def _array(value: object) -> list[Any]:
    return value if isinstance(value, list) else _wrong(value, "a list")


def _text(value: object) -> str:
    return value if isinstance(value, str) else _wrong(value, "a name")


def _count(value: object) -> int:
    return value if type(value) is int else _wrong(value, "a number")


def _wrong(value: object, wanted: str) -> Any:
    raise ProtocolError(f"a topic's statistics: the broker answered {type(value).__name__} where {wanted} belongs")
