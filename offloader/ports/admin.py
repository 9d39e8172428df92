"""What is asked of a cluster over its admin REST. `pulsar/admin.py` has the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

from offloader.model import ENTRY_OVERHEAD, MAX_OBJECT_SIZE, MIB, LedgerList, LedgerSums, TopicName

LARGEST_COPY = MAX_OBJECT_SIZE - 128 * MIB  # without headers and padding of its blocks


@dataclass(frozen=True)
class TopicInfo:
    """A topic's managed ledger. `sizes` maps ledger id to (entries, bytes), the open ledger's current ones included.

    `created`, in milliseconds, is another one when the topic is deleted and created again, and at no other time.
    `subscriptions`: names of the durable ones. `token`: of the pin that there was before and after the list was read;
    empty: one that is not ours; None: not asked for, or nobody can tell. `written`: of closed ledgers, when they were
    opened and closed by brokers' clocks, where the list says both.
    """

    created: int
    ledgers: LedgerList
    sizes: Mapping[int, tuple[int, int]]
    last_confirmed: tuple[int, int] | None
    terminated: bool
    offloaded: frozenset[int]
    subscriptions: frozenset[str] = frozenset()
    token: str | None = None
    written: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def sums(self) -> LedgerSums:
        """All ledgers, to search in."""
        return LedgerSums(self.sizes, self.written)

    @cached_property
    def copyable(self) -> frozenset[int]:
        """What brokers have offloaded and an object of ours can hold: closed, not empty, and not too large for one."""
        return frozenset(filter(self._fits, self.offloaded))

    def _fits(self, ledger: int) -> bool:
        last, (entries, size) = self.ledgers.closed_with(ledger), self.sizes.get(ledger, (0, 0))
        return last is not None and last >= 0 and size + entries * ENTRY_OVERHEAD <= LARGEST_COPY


class Identity(NamedTuple):
    """Who answers for a cluster: its name, and where its brokers keep their metadata (empty: we may not read that)."""

    cluster: str
    stores: str = ""


class BrokerStores(NamedTuple):
    """Where a broker keeps its metadata, as its own configuration says it. `configuration`, `bookkeeper`: empty where
    it says no other than `metadata`."""

    broker: str
    metadata: str
    configuration: str = ""
    bookkeeper: str = ""


class Admin(Protocol):
    """The admin REST calls that we use. Raises BrokerUnavailableError, AuthorizationFailedError, ProtocolError, and,
    where Pulsar itself says that what was asked for is not there, TopicNotFoundError or NamespaceNotFoundError."""

    def version(self) -> str: ...

    def cluster(self) -> str:
        """The cluster's name."""
        ...

    def identity(self) -> Identity:
        """Who answers now."""
        ...

    def stores_of_brokers(self) -> tuple[BrokerStores, ...]:
        """What each broker that runs says, all of them: one that does not answer is an error. For super users."""
        ...

    def runtime_configuration(self) -> Mapping[str, str]: ...

    def tenants(self) -> list[str]: ...

    def namespaces_of(self, tenant: str) -> list[str]:
        """All `tenant/namespace` of a tenant."""
        ...

    def namespaces(self) -> list[str]:
        """All `tenant/namespace` that we may see."""
        ...

    def namespace_properties(self, namespace: str) -> Mapping[str, str]: ...

    def topics(self, namespace: str) -> list[TopicName]:
        """The namespace's persistent topics, partitions as topics of their own, without Pulsar's system topics."""
        ...

    def topic_info(self, topic: TopicName) -> TopicInfo: ...

    def offloaded_copies(self, topic: TopicName) -> Mapping[int, str]:
        """The uuids under which brokers have offloaded ledgers of a topic completely."""
        ...

    def pin_token(self, topic: TopicName, subscription: str) -> str | None:
        """The token that a durable subscription was made with and keeps. Empty: it has none, so we did not make it.
        None: these brokers do not keep it. Raises BrokerUnavailableError where there is no such subscription now."""
        ...

    def shows_pin_tokens(self) -> bool:
        """Whether what `pin_token` says is the subscription's own, also after its topic was loaded anew."""
        ...

    def loaded_by(self, topic: TopicName) -> str | None:
        """The broker that has the topic loaded, if any; does not load it. For super users. Up to a minute behind."""
        ...

    def loaded_topics(self) -> Mapping[str, str]:
        """All topics that brokers have loaded, and which broker it is: one request a broker, as `loaded_by`."""
        ...

    def retention(self, topic: TopicName) -> tuple[int, int]:
        """The retention in force of a topic, minutes and MB: its own, else its namespace's, else the brokers'."""
        ...

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        """The namespace's policies as Pulsar names them (`retention_policies`, `message_ttl_in_seconds`, …)."""
        ...

    def unload(self, topic: TopicName) -> None:
        """Have the topic unloaded; its clients reconnect. May be repeated. A topic that nobody has loaded may be loaded
        first. An error other than a refusal says nothing of what happened, or still will."""
        ...

    def set_offload_threshold(self, namespace: str, size: int, seconds: int | None = None) -> None:
        """From how many bytes, and after how long, brokers offload a namespace's topics by themselves; negative: never.
        `seconds` None: as it is."""
        ...

    def offload_policies(self, topic: TopicName) -> Mapping[str, object]:
        """How the topic's brokers offload by themselves, as it applies to it: its own policies over its namespace's
        over the brokers', by Pulsar's names, without secrets. Empty: they say nothing."""
        ...
