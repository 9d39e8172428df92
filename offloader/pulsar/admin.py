"""The admin REST calls that we use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offloader.errors import AuthorizationFailedError, FatalError
from offloader.model import TopicName
from offloader.pulsar.api import TopicInfo
from offloader.pulsar.loaded import loaded_by
from offloader.pulsar.managed_ledger import topic_info
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

SYSTEM_NAMESPACE = "pulsar/system"


class AdminClient:
    """`Admin` over HTTP. Thread safe."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self.rest = RestClient(settings)

    def version(self) -> str:
        """The broker's version."""
        return self.rest.text("brokers/version")

    def cluster(self) -> str:
        """See `Admin.cluster`. Raises FatalError where the broker does not say."""
        try:
            name = self.runtime_configuration().get("clusterName")
        except AuthorizationFailedError:  # only super users may read it
            name = None
        if name:
            return name
        names = [n for n in self.rest.get("clusters") if n != "global"]
        if len(names) != 1:
            raise FatalError(
                f"which of the clusters {names} this is, only a super user may ask: give the offloader's role that right"
            )
        return str(names[0])

    def runtime_configuration(self) -> Mapping[str, str]:
        """The broker's configuration as it runs. For super users."""
        return dict(self.rest.get("brokers/configuration/runtime"))

    def namespaces(self) -> list[str]:
        """See `Admin.namespaces`."""
        return sorted(name for tenant in self.rest.get("tenants") for name in self.rest.get(f"namespaces/{tenant}"))

    def namespace_properties(self, namespace: str) -> Mapping[str, str]:
        """What operators attached to the namespace."""
        return dict(self.rest.get(f"namespaces/{namespace}/properties") or {})

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        """See `Admin.namespace_policies`."""
        return dict(self.rest.get(f"namespaces/{namespace}"))

    def topics(self, namespace: str) -> list[TopicName]:
        """See `Admin.topics`."""
        if namespace == SYSTEM_NAMESPACE:
            return []
        names = [TopicName.parse(name) for name in self.rest.get(f"persistent/{namespace}")]
        return sorted(name for name in names if not is_system_topic(name))

    def topic_info(self, topic: TopicName) -> TopicInfo:
        """See `TopicInfo`. The topic is loaded if it is not."""
        path = topic.rest_path
        stats: dict[str, Any] = self.rest.get(f"{path}/internalStats")  # first: only this one says 404 of a missing topic
        return topic_info(self.rest.get(f"{path}/internal-info"), stats)

    def loaded_by(self, topic: TopicName) -> str | None:
        """See `Admin.loaded_by`."""
        brokers = [str(broker) for broker in self.rest.get(f"brokers/{self.cluster()}")]
        return loaded_by(self._settings, brokers, topic)

    def close(self) -> None:
        """Close the connections."""
        self.rest.close()


def is_system_topic(topic: TopicName) -> bool:
    """Whether Pulsar made the topic for itself: policies, transaction logs and buffers, pending acknowledgements."""
    name = topic.partitioned_name.rpartition("/")[2]
    return topic.namespace == SYSTEM_NAMESPACE or name.startswith("__") or name.endswith("__transaction_pending_ack")
