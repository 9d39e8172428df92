"""The Pulsar that is restored to, and in it the topic."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, cast

from offloader.archive.messages.envelope import parse_envelope
from offloader.cursors.broker_losses import defaults_of, settings_of
from offloader.errors import (
    AbsentError,
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    IntegrityError,
    NamespaceNotFoundError,
)
from offloader.model import MIB, EntryRange, TopicName
from offloader.operations.restore.pairs import Existing
from offloader.operations.restore.ports import BrokerStoring
from offloader.operations.restore.provenance import Origin, Outgoing, Provenance, read_provenance
from offloader.operations.restore.schemas import SchemaRegistry, SchemaVersions
from offloader.operations.restore.tail import PRODUCER, Tail, TargetContents, tail_of
from offloader.operations.restore.target_policies import (
    APPLIED,
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
from offloader.pulsar.producer import EntryProducer
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscriptions import BrokerSubscriptions
from offloader.pulsar.topic_rest import ledger_lengths

log = logging.getLogger(__name__)

POLL = 0.05  # seconds


class TargetCluster:
    """The Pulsar: a `ports.Cluster`. Close it."""

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


class PulsarTarget:
    """The topic: a `ports.RestoreTarget`. `new_token` makes each producer's name new: one that still closes is not in
    the way."""

    def __init__(
        self,
        topic: TopicName,
        origin: Origin,
        admin: AdminClient,
        source: BrokerSource,
        lookup: TopicLookup,
        new_token: Callable[[], str],
    ) -> None:
        self.topic = topic
        self._origin = origin
        self._admin = admin
        self._source = source
        self._lookup = lookup
        self._new_token = new_token
        self._producer: EntryProducer | None = None
        self._epoch: int | None = None

    def check(self) -> Tail:
        """Looks at the policies, and at what the topic holds."""
        path = TopicName.parse(self.topic.partitioned_name).rest_path  # partitions have no policies of their own
        applied = {name: self._admin.rest.get(f"{path}/{policy}", applied="true") for name, policy in APPLIED.items()}
        namespace = self._admin.namespace_policies(self.topic.namespace)
        check_policies(self.topic, applied, encryption_required=bool(namespace.get("encryption_required")))
        return self._look(settled=False)

    def attach(self) -> Tail:
        """Reads the tail before, too: nobody is fenced out of a topic that is refused."""
        self._let_go()
        self._look(settled=False)
        name = f"{PRODUCER}{self._new_token()}"
        epoch, self._epoch = self._epoch, None  # where the answer is lost, the epoch may be one further, by ourselves
        self._producer = EntryProducer.open(self._lookup, self.topic, name, epoch)
        self._epoch = self._producer.epoch
        self._settle()
        return self.tail()

    def send(self, entry: Outgoing) -> None:
        self._attached.send(entry.provenance.number, entry.data, messages=entry.messages, chunk=entry.chunk)

    def receipts(self, timeout: float) -> list[int]:
        return [receipt.sequence for receipt in self._attached.receipts(timeout)]

    def tail(self) -> Tail:
        return self._look(settled=True)

    def provenance(self, ledger: int, entry: int) -> Provenance:
        data = self._read(ledger, entry)
        found = None if data is None else read_provenance(parse_envelope(data).metadata)
        if found is None or found.origin != self._origin:
            raise IntegrityError(f"{self.topic}: its entry {ledger}:{entry} was not restored from {self._origin}")
        return found

    def close(self) -> None:
        """What was confirmed is stored: there is nothing to wait for."""
        self._let_go()

    def _look(self, *, settled: bool) -> Tail:
        return tail_of(self.topic, self._origin, self._contents(), settled=settled)

    @property
    def _attached(self) -> EntryProducer:
        if self._producer is None:
            raise FatalError(f"{self.topic}: attach first")
        return self._producer

    def _let_go(self) -> None:
        producer, self._producer = self._producer, None
        self._lookup.forget(self.topic)
        if producer is not None:
            producer.let_go()

    def _settle(self) -> None:
        """Wait for what an earlier producer sent: the broker closes that one, and does not wait for its writes."""
        deadline = time.monotonic() + self._lookup.timeout
        while self._stats()["pendingAddEntriesCount"]:
            if time.monotonic() > deadline:
                raise BrokerUnavailableError(f"{self.topic}: entries of an earlier producer are still being written")
            time.sleep(POLL)

    def _contents(self) -> TargetContents:
        stats = self._stats()
        ledger, entry = map(int, stats["lastConfirmedEntry"].split(":"))
        last = (ledger, entry) if entry >= 0 else None
        publishers = self._admin.rest.get(f"{self.topic.rest_path}/stats")["publishers"]
        return TargetContents(
            entries=stats["numberOfEntries"],
            last=last,
            last_data=None if last is None or not stats["numberOfEntries"] else self._read(*last),
            producers=tuple(publisher["producerName"] for publisher in publishers),
            terminated=stats["state"] == "Terminated",
            compacted=stats["compactedLedger"]["ledgerId"] >= 0,
        )

    def _stats(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self._admin.rest.get(f"{self.topic.rest_path}/internalStats"))

    def _read(self, ledger: int, entry: int) -> bytes | None:
        """One entry, None where the broker does not deliver it. Raises BrokerUnavailableError where nothing comes."""
        gaps, _ = self._source.explain(self.topic, EntryRange(ledger, entry, entry + 1), limit=1)
        if gaps:
            return None
        with closing(self._source.open(self.topic, ledger, entry, max_bytes=MIB)) as reader:
            found = reader.read(self._lookup.timeout)
        if not found:
            raise BrokerUnavailableError(
                f"{self.topic}: its last entry {ledger}:{entry} did not come in {self._lookup.timeout:.0f} s"
            )
        return next((raw.data for raw in found if (raw.ledger, raw.entry) == (ledger, entry)), None)
