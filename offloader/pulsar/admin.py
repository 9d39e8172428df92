"""The admin REST calls that we use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import httpx

from offloader.errors import (
    AbsentError,
    AuthorizationFailedError,
    FatalError,
    OffloadError,
    ProtocolError,
    TopicNotFoundError,
)
from offloader.model import TopicName
from offloader.ports.admin import (
    BrokerStores,
    Identity,
    KnownTopics,
    SubscriptionTraits,
    TopicCursors,
    TopicInfo,
    TopicSchema,
    TopicUse,
)
from offloader.pulsar.answers import array, described, integer, mapping, texts, topic_names
from offloader.pulsar.loaded import broker_statistics
from offloader.pulsar.rest import RestClient, http_date_ms
from offloader.pulsar.schema_rest import newest_version, partition_count, schema_versions, schemas_path
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscription_rest import (
    LAZY_CURSORS,
    keeps_properties,
    loaded_topics,
    pin_token,
    subscription_traits,
)
from offloader.pulsar.topic_rest import cursors_of, ledger_lengths, managed_ledger_of, shadow_source, topic_info
from offloader.state.managed_ledger import ManagedLedger

# Our names are those of the namespace's policies; the paths are below the topic's, asked with `applied=true`.
APPLIED = {
    "message_ttl_in_seconds": "messageTTL",
    "backlog_quota_map": "backlogQuotaMap",
    "retention_policies": "retention",
    "offload_policies": "offloadPolicies",
}


class AdminClient:
    """`Admin` over HTTP. Thread safe. `transport`, `largest`: see `RestClient`."""

    def __init__(
        self, settings: PulsarSettings, *, transport: httpx.BaseTransport | None = None, largest: int | None = None
    ) -> None:
        self._settings = settings
        self._transport = transport
        self.rest = RestClient(settings, transport=transport, largest=largest)

    def version(self) -> str:
        return self.rest.text("brokers/version")

    def time_ms(self) -> int | None:
        """See `Admin.time_ms`. Each answer has a date, to the second."""
        response = self.rest.request("GET", "brokers/version")
        if response.is_error:
            raise self.rest.error("brokers/version", response)
        return http_date_ms(response.headers.get("Date"))

    def cluster(self) -> str:
        """See `Admin.cluster`. Raises FatalError where the broker does not say."""
        try:
            name = self.runtime_configuration().get("clusterName")
        except AuthorizationFailedError:  # only super users may read it
            name = None
        if name:
            return name
        names = [n for n in texts(self.rest.get("clusters"), "the clusters") if n != "global"]
        if len(names) != 1:
            raise FatalError(
                f"which of the clusters {names} this is, only a super user may ask: give the offloader's role that "
                "right"
            )
        return names[0]

    def identity(self) -> Identity:
        try:
            settings = mapping(self.rest.get("brokers/internal-configuration"), "the brokers' internal configuration")
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
        settings = mapping(self.rest.get("brokers/configuration/runtime"), "the brokers' configuration")
        return {name: str(value) for name, value in settings.items()}

    def tenants(self) -> list[str]:
        """For super users."""
        return texts(self.rest.get("tenants"), "the tenants")

    def namespaces_of(self, tenant: str) -> list[str]:
        return texts(self.rest.get(f"namespaces/{tenant}"), f"the namespaces of {tenant}")

    def namespaces(self) -> list[str]:
        return sorted(name for tenant in self.tenants() for name in self.namespaces_of(tenant))

    def namespace_properties(self, namespace: str) -> Mapping[str, str]:
        """What operators attached to the namespace."""
        answer = self.rest.get(f"namespaces/{namespace}/properties")
        properties = mapping(answer, f"the properties of {namespace}", or_none=True)
        return {name: str(value) for name, value in properties.items()}

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        return mapping(self.rest.get(f"namespaces/{namespace}"), f"the policies of {namespace}")

    def retention(self, topic: TopicName) -> tuple[int, int]:
        """See `Admin.retention`. Raises ProtocolError where the answer says none."""
        said = mapping(self._in_force(topic, "retention"), f"the retention of {topic}")
        minutes, megabytes = said.get("retentionTimeInMinutes"), said.get("retentionSizeInMB")
        if not isinstance(minutes, int) or not isinstance(megabytes, int):
            raise ProtocolError(f"{topic}: the brokers do not say what its retention is")
        return minutes, megabytes

    def applied_retention(self, topic: TopicName) -> object:
        return self.rest.get(f"{topic.rest_path}/retention", applied="true")

    def topics(self, namespace: str) -> list[TopicName]:
        return [topic for topic in self.all_topics(namespace) if not topic.is_system]

    def all_topics(self, namespace: str) -> list[TopicName]:
        answer = self.rest.get(f"persistent/{namespace}", includeSystemTopic="true")
        return sorted(topic_names(answer, f"the topics of {namespace}"))

    def known_topics(self, namespace: str) -> KnownTopics:
        what = f"the topics of {namespace}"
        topics = topic_names(self.rest.get(f"persistent/{namespace}", includeSystemTopic="true"), what)
        partitioned = topic_names(self.rest.get(f"persistent/{namespace}/partitioned"), what)
        return KnownTopics(frozenset(topics), frozenset(map(str, partitioned)))

    def topic_info(self, topic: TopicName) -> TopicInfo:
        """See `TopicInfo`. The topic is loaded if it is not."""
        path = topic.rest_path
        stats = self.rest.get(f"{path}/internalStats")  # first: only this one says 404 of a missing topic
        return topic_info(self.rest.get(f"{path}/internal-info"), stats)

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        """As its broker has it, with the uuids of its copies. The topic is loaded if it is not."""
        path = topic.rest_path
        internal = self.rest.get(f"{path}/internalStats")  # first: only this one says 404 of a missing topic
        return managed_ledger_of(self.rest.get(f"{path}/internal-info"), internal)

    def shadow_source(self, topic: TopicName) -> str:
        try:
            return shadow_source(self.rest.get(f"{topic.rest_path}/partitions"))
        except TopicNotFoundError:
            return ""

    def offloaded_copies(self, topic: TopicName) -> Mapping[int, str]:
        return self.managed_ledger(topic).copies

    def cursors(self, topic: TopicName) -> TopicCursors:
        internal = self.rest.get(f"{topic.rest_path}/internalStats")
        return TopicCursors(ledger_lengths(internal), cursors_of(internal))

    def subscription_traits(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        return subscription_traits(self.rest.get(f"{topic.rest_path}/stats"))

    def use(self, topic: TopicName) -> TopicUse:
        return _use(self.rest.get(f"{topic.rest_path}/stats"))

    def partitions(self, topic: TopicName) -> int | None:
        if topic.partition < 0:
            return None
        whole = TopicName.parse(topic.partitioned_name)
        return partition_count(self.rest.get(f"{whole.rest_path}/partitions")) or None

    def schema_version(self, topic: TopicName) -> int | None:
        try:
            return newest_version(self.rest.get(f"{schemas_path(topic)}/schema"))
        except AbsentError:  # of what is no topic's path: Pulsar says so where there is no schema
            return None

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        return schema_versions(self.rest.get(f"{schemas_path(topic)}/schemas"))

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
        self._change("PUT", f"{topic.rest_path}/unload")

    def trim(self, topic: TopicName) -> None:
        self._change("POST", f"{topic.rest_path}/trim")

    def set_offload_threshold(self, namespace: str, size: int, seconds: int | None = None) -> None:
        """See `Admin.set_offload_threshold`. For super users."""
        self._change("PUT", f"namespaces/{namespace}/offloadThreshold", size)
        if seconds is not None:
            self._change("PUT", f"namespaces/{namespace}/offloadThresholdInSeconds", seconds)

    def _change(self, method: str, path: str, body: object = None) -> None:
        response = self.rest.request(method, path, body=body)
        if response.is_error:
            raise self.rest.error(path, response)

    def offload_policies(self, topic: TopicName) -> Mapping[str, object]:
        """See `Admin.offload_policies`."""
        said = self._in_force(topic, "offloadPolicies")
        found = mapping(said, f"the offload policies of {topic}", or_none=True)
        return {name: value for name, value in found.items() if not _is_secret(name)}

    def _in_force(self, topic: TopicName, policy: str) -> object:
        """A partition has no policies of its own: Pulsar 4.0.7 answers 412."""
        return self.rest.get(f"{TopicName.parse(topic.partitioned_name).rest_path}/{policy}", applied="true")

    def _topics_of(self, broker: str) -> Iterator[str]:
        return (name for name, _ in loaded_topics(broker_statistics(self._of_broker(broker), self._transport)))

    def _brokers(self) -> list[str]:
        """Their addresses, sorted."""
        brokers = texts(self.rest.get(f"brokers/{self.cluster()}"), "the brokers")
        if not brokers:
            raise ProtocolError("the brokers: the cluster answered that it has none")
        return sorted(brokers)

    def _of_broker(self, broker: str) -> PulsarSettings:
        """How this very broker is asked."""
        scheme = self._settings.admin_url.partition("://")[0]
        return replace(self._settings, admin_url=f"{scheme}://{broker}")

    def close(self) -> None:
        self.rest.close()


def effective_policies(admin: AdminClient, topic: TopicName) -> Mapping[str, object]:
    """What applies to a topic after merging broker, namespace and topic. A policy that is nowhere set is None; one that
    cannot be read is its error.

    One REST call a policy: for checks, not for each round. A partition has no policies of its own (Pulsar 4.0.7 answers
    412).
    """
    whole = TopicName.parse(topic.partitioned_name)
    reads: dict[str, Callable[[], object]] = {
        name: partial(admin.rest.get, f"{whole.rest_path}/{path}", applied="true") for name, path in APPLIED.items()
    }
    reads["subscription_expiration_time_minutes"] = partial(subscription_expiration, admin, topic.namespace)
    return {name: _value_or_error(read) for name, read in reads.items()}


def _value_or_error(read: Callable[[], object]) -> object:
    try:
        return read()
    except OffloadError as error:
        return error


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
        said = mapping(client.get("brokers/internal-configuration"), what)
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


def _use(stats: object) -> TopicUse:
    what = "a topic's statistics"
    found = mapping(stats, what)
    subscriptions = mapping(found.get("subscriptions"), what).values()
    consumers = sum(len(array(mapping(one, what).get("consumers"), what)) for one in subscriptions)
    producers = len(array(found.get("publishers"), what)) + _number(found.get("waitingPublishers", 0), what)
    replicators = mapping(found.get("replication", {}), what).values()
    sending = sum(_number(mapping(one, what).get("replicationBacklog", 0), what) > 0 for one in replicators)
    return TopicUse(producers + consumers, sending)


def _number(value: object, what: str) -> int:
    with described(what):
        return integer(value)
