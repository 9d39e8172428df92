"""The admin REST calls that we use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import httpx

from offloader.errors import AuthorizationFailedError, FatalError, ProtocolError
from offloader.model import TopicName
from offloader.ports.admin import BrokerStores, Identity, TopicInfo
from offloader.pulsar.loaded import topics_loaded_at
from offloader.pulsar.managed_ledger import LAZY_CURSORS, keeps_properties, offloaded_copies, pin_token, topic_info
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

SYSTEM_NAMESPACE = "pulsar/system"
STATISTICS_AGE_MS = 60_000
"""How old a broker's statistics may be (`statsUpdateFrequencyInSecs`; seen with 4.0.7)."""
# Our names are those of the namespace's policies; the paths are below the topic's, asked with `applied=true`.
APPLIED = {
    "message_ttl_in_seconds": "messageTTL",
    "backlog_quota_map": "backlogQuotaMap",
    "retention_policies": "retention",
    "offload_policies": "offloadPolicies",
}


class AdminClient:
    """`Admin` over HTTP. Thread safe. `transport` carries the requests, by default over sockets."""

    def __init__(self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._transport = transport
        self.rest = RestClient(settings, transport=transport)

    def version(self) -> str:
        return self.rest.text("brokers/version")

    def cluster(self) -> str:
        """See `Admin.cluster`. Raises FatalError where the broker does not say."""
        try:
            name = self.runtime_configuration().get("clusterName")
        except AuthorizationFailedError:  # only super users may read it
            name = None
        if name:
            return name
        names = [n for n in _texts(self.rest.get("clusters"), "the clusters") if n != "global"]
        if len(names) != 1:
            raise FatalError(
                f"which of the clusters {names} this is, only a super user may ask: give the offloader's role that "
                "right"
            )
        return names[0]

    def identity(self) -> Identity:
        try:
            settings = _mapping(self.rest.get("brokers/internal-configuration"), "the brokers' internal configuration")
        except AuthorizationFailedError:  # only super users may read it
            settings = {}
        stores = (
            settings.get(name) for name in ("metadataStoreUrl", "zookeeperServers", "configurationMetadataStoreUrl")
        )
        return Identity(self.cluster(), " ".join(str(store) for store in stores if store))

    def stores_of_brokers(self) -> tuple[BrokerStores, ...]:
        return tuple(_stores_of(broker, self._of_broker(broker)) for broker in self._brokers())

    def runtime_configuration(self) -> Mapping[str, str]:
        """The broker's configuration as it runs. For super users."""
        settings = _mapping(self.rest.get("brokers/configuration/runtime"), "the brokers' configuration")
        return {name: str(value) for name, value in settings.items()}

    def tenants(self) -> list[str]:
        """For super users."""
        return _texts(self.rest.get("tenants"), "the tenants")

    def namespaces_of(self, tenant: str) -> list[str]:
        return _texts(self.rest.get(f"namespaces/{tenant}"), f"the namespaces of {tenant}")

    def namespaces(self) -> list[str]:
        return sorted(name for tenant in self.tenants() for name in self.namespaces_of(tenant))

    def namespace_properties(self, namespace: str) -> Mapping[str, str]:
        """What operators attached to the namespace."""
        answer = self.rest.get(f"namespaces/{namespace}/properties")
        properties = _mapping(answer, f"the properties of {namespace}", or_none=True)
        return {name: str(value) for name, value in properties.items()}

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        return _mapping(self.rest.get(f"namespaces/{namespace}"), f"the policies of {namespace}")

    def retention(self, topic: TopicName) -> tuple[int, int]:
        """See `Admin.retention`. Raises ProtocolError where the answer says none."""
        said = _mapping(self._in_force(topic, "retention"), f"the retention of {topic}")
        minutes, megabytes = said.get("retentionTimeInMinutes"), said.get("retentionSizeInMB")
        if not isinstance(minutes, int) or not isinstance(megabytes, int):
            raise ProtocolError(f"{topic}: the brokers do not say what its retention is")
        return minutes, megabytes

    def topics(self, namespace: str) -> list[TopicName]:
        if namespace == SYSTEM_NAMESPACE:
            return []
        names = _topic_names(self.rest.get(f"persistent/{namespace}"), f"the topics of {namespace}")
        return sorted(name for name in names if not is_system_topic(name))

    def topic_info(self, topic: TopicName) -> TopicInfo:
        """See `TopicInfo`. The topic is loaded if it is not."""
        path = topic.rest_path
        stats = self.rest.get(f"{path}/internalStats")  # first: only this one says 404 of a missing topic
        return topic_info(self.rest.get(f"{path}/internal-info"), stats)

    def offloaded_copies(self, topic: TopicName) -> Mapping[int, str]:
        path = topic.rest_path
        stats = self.rest.get(f"{path}/internalStats")
        return offloaded_copies(self.rest.get(f"{path}/internal-info"), stats)

    def pin_token(self, topic: TopicName, subscription: str) -> str | None:
        """See `Admin.pin_token`. The owner's version counts: while brokers are upgraded there are several."""
        stats, owner = self.rest.get_of_owner(f"{topic.rest_path}/stats")
        version = self.rest.text("brokers/version", address=owner)
        return pin_token(stats, subscription) if keeps_properties(version) else None

    def shows_pin_tokens(self) -> bool:
        """See `Admin.shows_pin_tokens`. Where only super users may know, it is as by default."""
        try:
            return self.runtime_configuration().get(LAZY_CURSORS, "").lower() != "true"
        except AuthorizationFailedError:
            return True

    def loaded_by(self, topic: TopicName) -> str | None:
        return next((broker for broker in self._brokers() if str(topic) in self._topics_of(broker)), None)

    def loaded_topics(self) -> Mapping[str, str]:
        return {topic: broker for broker in self._brokers() for topic in self._topics_of(broker)}

    def unload(self, topic: TopicName) -> None:
        """See `Admin.unload`."""
        self._put(f"{topic.rest_path}/unload")

    def set_offload_threshold(self, namespace: str, size: int, seconds: int | None = None) -> None:
        """See `Admin.set_offload_threshold`. For super users."""
        self._put(f"namespaces/{namespace}/offloadThreshold", size)
        if seconds is not None:
            self._put(f"namespaces/{namespace}/offloadThresholdInSeconds", seconds)

    def _put(self, path: str, body: object = None) -> None:
        response = self.rest.request("PUT", path, body=body)
        if response.is_error:
            raise self.rest.error(path, response)

    def offload_policies(self, topic: TopicName) -> Mapping[str, object]:
        """See `Admin.offload_policies`."""
        said = self._in_force(topic, "offloadPolicies")
        found = _mapping(said, f"the offload policies of {topic}", or_none=True)
        return {name: value for name, value in found.items() if not _is_secret(name)}

    def _in_force(self, topic: TopicName, policy: str) -> object:
        """A partition has no policies of its own: Pulsar 4.0.7 answers 412."""
        return self.rest.get(f"{TopicName.parse(topic.partitioned_name).rest_path}/{policy}", applied="true")

    def _topics_of(self, broker: str) -> Iterator[str]:
        return topics_loaded_at(self._of_broker(broker), self._transport)

    def _brokers(self) -> list[str]:
        """Their addresses, sorted."""
        brokers = _texts(self.rest.get(f"brokers/{self.cluster()}"), "the brokers")
        if not brokers:
            raise ProtocolError("the brokers: the cluster answered that it has none")
        return sorted(brokers)

    def _of_broker(self, broker: str) -> PulsarSettings:
        """How this very broker is asked."""
        scheme = self._settings.admin_url.partition("://")[0]
        return replace(self._settings, admin_url=f"{scheme}://{broker}")

    def close(self) -> None:
        self.rest.close()


def is_system_topic(topic: TopicName) -> bool:
    """Whether Pulsar made the topic for itself: policies, transaction logs and buffers, pending acknowledgements."""
    name = topic.partitioned_name.rpartition("/")[2]
    return topic.namespace == SYSTEM_NAMESPACE or name.startswith("__") or name.endswith("__transaction_pending_ack")


def effective_policies(admin: AdminClient, topic: TopicName) -> Mapping[str, object]:
    """What applies to a topic after merging broker, namespace and topic. A policy that is nowhere set is None.

    One REST call a policy: for checks, not for each round. A partition has no policies of its own (Pulsar 4.0.7 answers
    412).
    """
    whole = TopicName.parse(topic.partitioned_name)
    found: dict[str, object] = {
        name: admin.rest.get(f"{whole.rest_path}/{path}", applied="true") for name, path in APPLIED.items()
    }
    found["subscription_expiration_time_minutes"] = subscription_expiration(admin, topic.namespace)
    return found


def subscription_expiration(admin: AdminClient, namespace: str) -> object:
    """Minutes after which an idle subscription is deleted, 0: never. The namespace's, else the broker's."""
    own = admin.rest.get(f"namespaces/{namespace}/subscriptionExpirationTime")
    return own if own is not None else int(admin.runtime_configuration().get("subscriptionExpirationTimeMinutes", "0"))


def _stores_of(broker: str, settings: PulsarSettings) -> BrokerStores:
    """By the names of Pulsar 2.10 and later, or by those before. Raises BrokerUnavailableError,
    AuthorizationFailedError, ProtocolError."""
    what = f"the internal configuration of the broker {broker}"
    client = RestClient(settings)
    try:
        said = _mapping(client.get("brokers/internal-configuration"), what)
    finally:
        client.close()
    metadata, configuration, bookkeeper = (
        next((said[name] for name in names if said.get(name)), "")
        for names in (
            ("metadataStoreUrl", "zookeeperServers"),
            ("configurationMetadataStoreUrl", "configurationStoreServers"),
            ("bookkeeperMetadataServiceUri",),
        )
    )
    if not metadata or not all(isinstance(one, str) for one in (metadata, configuration, bookkeeper)):
        raise ProtocolError(f"{what} does not say where it keeps its metadata")
    return BrokerStores(broker, metadata, configuration, bookkeeper)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in ("secret", "credential", "password", "keyfile"))


# A peer's JSON is checked where it comes in.


def _mapping(value: object, what: str, *, or_none: bool = False) -> Mapping[str, Any]:
    """An object; with `or_none` null is an empty one. Raises ProtocolError."""
    if value is None and or_none:
        return {}
    if not isinstance(value, dict):
        raise _wrong(value, what, "an object")
    return value


def _texts(value: object, what: str) -> list[str]:
    """A list of strings. Raises ProtocolError."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(value, what, "a list of names")
    return value


def _topic_names(value: object, what: str) -> list[TopicName]:
    """A list of topics' full names. Raises ProtocolError."""
    try:
        return [TopicName.parse(name) for name in _texts(value, what)]
    except ValueError as error:
        raise ProtocolError(f"{what}: {error}") from error


def _wrong(value: object, what: str, wanted: str) -> ProtocolError:
    return ProtocolError(f"{what}: the broker answered {type(value).__name__} where {wanted} belongs")
