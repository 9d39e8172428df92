"""What a restore needs of a Pulsar, as interfaces: `target.py` has the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from offloader.cursors.broker_losses import BrokerSettings
from offloader.model import TopicName
from offloader.operations.restore.pairs import Existing
from offloader.operations.restore.provenance import Origin, Outgoing, Provenance
from offloader.operations.restore.schemas import SchemaVersions
from offloader.operations.restore.tail import Tail
from offloader.ports.admin import TopicSchema
from offloader.ports.subscriptions import Subscriptions


class RestoreTarget(Protocol):
    """The topic that entries are restored to. An error's class tells whether another `attach` may help."""

    def check(self) -> Tail:
        """Look, without touching anything. Raises FatalError where the topic is refused."""

    def attach(self) -> Tail:
        """Become its only producer, wait for what an earlier one sent, and read the tail."""

    def send(self, entry: Outgoing) -> None:
        """Publish behind what was sent since `attach`; does not wait."""

    def receipts(self, timeout: float) -> list[int]:
        """Numbers of stored entries, in order, within seconds; once there are none left, raises why the connection
        ended."""

    def tail(self) -> Tail:
        """Read the tail again, nothing being on its way."""

    def provenance(self, ledger: int, entry: int) -> Provenance:
        """Of one of its entries. Raises IntegrityError where it was not restored."""

    def close(self) -> None:
        """Give up the topic."""


class BrokerStoring(NamedTuple):
    """`assumed`: why the settings are those of a version; empty: they are the brokers' own. `expires_after`: minutes
    after which a subscription that nobody uses is deleted; 0: never, or not known."""

    settings: BrokerSettings
    assumed: str = ""
    expires_after: int = 0


class Cluster(Protocol):
    """The Pulsar that is restored to."""

    def existing(self, namespace: str) -> Existing:
        """What is there. Raises NamespaceNotFoundError."""

    def check_new(self, topic: TopicName) -> None:
        """Raises FatalError where the namespace's policies would have the topic refused, once it is made."""

    def create(self, topic: TopicName, partitions: int) -> None:
        """Make the topic, with so many partitions (0: not partitioned), unless it is there."""

    def target(self, topic: TopicName, origin: Origin) -> RestoreTarget:
        """A topic that exists, as what is restored to."""

    def check_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema], *, try_upload: bool) -> SchemaVersions:
        """The versions that entries may name once these schemas are uploaded. Raises FatalError where they cannot be:
        `try_upload` finds out by uploading them under a name that no topic has, and deleting them."""

    def upload_schemas(self, topic: TopicName, schemas: Sequence[TopicSchema]) -> SchemaVersions:
        """Upload the schemas that the topic lacks, in order. Raises FatalError where its registry refuses one."""

    @property
    def subscriptions(self) -> Subscriptions:
        """Those of its topics."""

    def check_subscriptions(self, topic: TopicName, *, new: bool) -> None:
        """Raises FatalError where policies would move what is restored. `new`: the topic is to be made."""

    def lengths(self, topic: TopicName) -> Sequence[tuple[int, int | None]]:
        """A topic's ledgers in order with their entries; None: it is open."""

    def storing(self, namespace: str) -> BrokerStoring:
        """What its brokers store of a namespace's subscriptions."""

    def close(self) -> None:
        """End the connections."""
