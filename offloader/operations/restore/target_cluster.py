"""The Pulsar that is restored to."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from offloader.cursors.broker_losses import defaults_of, settings_of
from offloader.errors import AbsentError, AuthorizationFailedError, FatalError, NamespaceNotFoundError
from offloader.model import TopicName
from offloader.operations.restore.pairs import Existing
from offloader.operations.restore.ports import BrokerStoring
from offloader.operations.restore.provenance import Origin
from offloader.operations.restore.schemas import SchemaRegistry, SchemaVersions
from offloader.operations.restore.target import PulsarTarget
from offloader.operations.restore.target_policies import (
    KEEPS_EVERYTHING,
    check_policies,
    check_quotas,
    inherited,
    left_to_broker,
    quotas_of,
)
from offloader.ports.admin import TopicSchema
from offloader.ports.subscriptions import Subscriptions
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscriptions import BrokerSubscriptions
from offloader.pulsar.topic_rest import ledger_lengths

log = logging.getLogger(__name__)


class TargetCluster:
    """A `ports.Cluster`. Close it."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._admin = AdminClient(settings)
        self._source = BrokerSource(settings)
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)

    def existing(self, namespace: str) -> Existing:
        rest = self._admin.rest
        try:
            partitioned = [TopicName.parse(name) for name in rest.get(f"persistent/{namespace}/partitioned")]
        except AbsentError as error:
            message = f"{namespace} does not exist: create it, with a retention without end"
            raise NamespaceNotFoundError(message) from error
        counts = {topic: rest.get(f"{topic.rest_path}/partitions")["partitions"] for topic in partitioned}
        return Existing(set(self._admin.topics(namespace)), counts)

    def check_new(self, topic: TopicName) -> None:
        """Only super users may see the broker's defaults: warns where they count and cannot be seen."""
        policies = self._admin.namespace_policies(topic.namespace)
        unsaid = left_to_broker(policies)
        try:
            defaults = self._admin.runtime_configuration() if unsaid else {}
        except AuthorizationFailedError:
            log.warning(
                "%s: the namespace leaves %s to the broker, whose defaults only super users may see: they are "
                "checked when the topic is made",
                topic,
                " and ".join(unsaid),
                extra={"see": "policies-unseen"},
            )
            defaults = KEEPS_EVERYTHING
        required = bool(policies.get("encryption_required"))
        check_policies(topic, inherited(policies, defaults), encryption_required=required, new=True)

    def create(self, topic: TopicName, partitions: int) -> None:
        path, body = (f"{topic.rest_path}/partitions", partitions) if partitions else (topic.rest_path, None)
        response = self._admin.rest.request("PUT", path, body=body)
        if response.is_error and response.status_code != 409:  # 409: it is there
            raise self._admin.rest.error(path, response)

    def target(self, topic: TopicName, origin: Origin) -> PulsarTarget:
        return PulsarTarget(topic, origin, self._admin, self._source, self._lookup, lambda: str(uuid.uuid4()))

    def check_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema], *, try_upload: bool) -> SchemaVersions:
        registry = SchemaRegistry(self._admin.rest, topic)
        if schemas and self._enforces_schemas(topic.namespace):
            raise FatalError(
                f"{topic}: its namespace or broker lets only producers with a schema into topics that have one: set "
                f"schemaValidationEnforced of {topic.namespace} to false until it is restored"
            )
        if try_upload and (missing := registry.missing(schemas)):
            registry.try_upload(missing, TopicName.parse(f"{topic.namespace}/schemas-tried-{uuid.uuid4()}"))
        return registry.expected(schemas)

    def upload_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema]) -> SchemaVersions:
        return SchemaRegistry(self._admin.rest, topic).upload(schemas)

    def _enforces_schemas(self, namespace: str) -> bool:
        """The broker's setting counts where it can be seen."""
        if self._admin.namespace_policies(namespace).get("schema_validation_enforced"):
            return True
        try:
            return self._admin.runtime_configuration().get("isSchemaValidationEnforced") == "true"
        except AuthorizationFailedError:
            return False

    @cached_property
    def subscriptions(self) -> Subscriptions:
        return BrokerSubscriptions(self._settings)

    def check_subscriptions(self, topic: TopicName, *, new: bool) -> None:
        """What a topic inherits from the brokers' configuration counts where it can be seen."""
        if not new:
            path = TopicName.parse(topic.partitioned_name).rest_path
            check_quotas(topic, self._admin.rest.get(f"{path}/backlogQuotaMap", applied="true"))
            return
        try:
            defaults = self._admin.runtime_configuration()
        except AuthorizationFailedError:
            defaults = {}
        check_quotas(topic, quotas_of(self._admin.namespace_policies(topic.namespace), defaults), new=True)

    def lengths(self, topic: TopicName) -> Sequence[tuple[int, int | None]]:
        return ledger_lengths(self._admin.rest.get(f"{topic.rest_path}/internalStats"))

    def storing(self, namespace: str) -> BrokerStoring:
        version = self._admin.rest.text("brokers/version")
        configuration: Mapping[str, str] = {}
        try:
            configuration = self._admin.runtime_configuration()
        except AuthorizationFailedError:
            settings = defaults_of(version)
            assumed = f"the defaults of Pulsar {version}, since only super users may see the brokers' settings"
        else:
            settings, assumed = settings_of(configuration, version), ""
        own: Any = self._admin.namespace_policies(namespace).get("subscription_expiration_time_minutes")
        expires = configuration.get("subscriptionExpirationTimeMinutes", 0) if own is None else own
        return BrokerStoring(settings, assumed, max(int(expires), 0))

    def close(self) -> None:
        if "subscriptions" in self.__dict__:
            self.subscriptions.close()
        self._pool.close()
        self._source.close()
        self._admin.close()
