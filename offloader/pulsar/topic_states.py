"""`TopicStates` over the admin REST."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from offloader.errors import AbsentError
from offloader.model import TopicName
from offloader.ports.topic_states import CursorLooks, SubscriptionTraits, TopicSchema
from offloader.pulsar.loaded import LARGEST_STATISTICS
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.state_answers import (
    cursor_looks,
    newest_version,
    partition_count,
    schema_versions,
    subscription_traits,
)


class BrokerTopicStates:
    """Safe to use from several threads. `transport` carries the requests, by default over sockets."""

    def __init__(self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._rest = RestClient(settings, transport=transport, largest=LARGEST_STATISTICS)

    def cursors(self, topic: TopicName) -> CursorLooks:
        return cursor_looks(self._rest.get(f"{topic.rest_path}/internalStats"))

    def subscriptions(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        return subscription_traits(self._rest.get(f"{topic.rest_path}/stats"))

    def version(self) -> str:
        return self._rest.text("brokers/version")

    def partitions(self, topic: TopicName) -> int | None:
        if topic.partition < 0:
            return None
        whole = TopicName.parse(topic.partitioned_name)
        return partition_count(self._rest.get(f"{whole.rest_path}/partitions")) or None

    def schema_version(self, topic: TopicName) -> int | None:
        try:
            return newest_version(self._rest.get(f"{_schemas(topic)}/schema"))
        except AbsentError:  # of what is no topic's path: Pulsar says so where there is no schema
            return None

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        return schema_versions(self._rest.get(f"{_schemas(topic)}/schemas"))

    def close(self) -> None:
        """Close the connections."""
        self._rest.close()


def _schemas(topic: TopicName) -> str:
    """Partitions have one schema together."""
    return TopicName.parse(topic.partitioned_name).rest_path.replace("persistent", "schemas", 1)
