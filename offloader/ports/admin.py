"""What is asked of a cluster over its admin REST. `pulsar/admin.py` has the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from offloader.model import ENTRY_OVERHEAD, MAX_OBJECT_SIZE, MIB, LedgerList, LedgerSums, TopicName
from offloader.state.subscription import CursorState

LARGEST_COPY = MAX_OBJECT_SIZE - 128 * MIB  # without headers and padding of its blocks


@dataclass(frozen=True)
class TopicInfo:
    """A topic's managed ledger. `sizes` maps ledger id to (entries, bytes), the open ledger's current ones included.

    `created`, in milliseconds, is another one when the topic is deleted and created again, and at no other time.
    `subscriptions`: names of the durable ones. `token`: of the pin that there was before and after the list was read;
    empty: one that is not ours; None: not asked for, or nobody can tell. `written`: of closed ledgers, when they were
    opened and closed by brokers' clocks, where the list says both. `may_have_trimmed`: not every ledger that the topic
    ever had is certainly listed. `shadow_of`: the topic whose data it shows as its own (PIP-180); empty: it is no
    shadow, or a partition, of which only its partitioned topic says it (`Admin.shadow_source`).
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
    side_ledgers: frozenset[int] = frozenset()
    """Ledgers beside those of the list that the broker reports: cursors', schemas', the compacted view."""
    may_have_trimmed: bool = False
    shadow_of: str = ""

    @property
    def all_ledgers(self) -> frozenset[int]:
        """Every ledger that the broker reports for the topic."""
        return self.side_ledgers | self.sizes.keys()

    def advanced_to(self, ledger: int, entry: int) -> TopicInfo:
        """The same after entries were written up to this one of the open ledger, of the average size of its others."""
        entries, size = self.sizes[ledger]
        if entry < entries:
            return self
        sizes = {**self.sizes, ledger: (entry + 1, size + size // max(entries, 1) * (entry + 1 - entries))}
        return replace(self, sizes=sizes, last_confirmed=max(self.last_confirmed or (-1, -1), (ledger, entry)))

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


class TopicUse(NamedTuple):
    """Who uses a loaded topic: producers, consumers and readers; replicators that have something to send."""

    clients: int
    replicators: int = 0


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """What brokers say of a namespace without loading anything. `partitioned`: names that stand for partitions."""

    topics: frozenset[TopicName]
    partitioned: frozenset[str] = frozenset()


class TopicCursors(NamedTuple):
    """All cursors in the memory of a topic's broker, non-durable ones too. `lengths`: the topic's ledgers in order with
    their entries; None: it is open."""

    lengths: tuple[tuple[int, int | None], ...]
    cursors: Mapping[str, CursorState]


class SubscriptionTraits(NamedTuple):
    """What a broker says of a durable subscription besides its position."""

    replicated: bool
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One version of a topic's schema. `type` as Pulsar names it (`AVRO`, `KEY_VALUE`, …). `data`: as the admin REST
    says it, which gives a JSON text of key and value for `KEY_VALUE`. `timestamp` in ms."""

    version: int
    type: str
    data: bytes = b""
    timestamp: int = 0
    properties: tuple[tuple[str, str], ...] = field(default=())


class Admin(Protocol):
    """The admin REST calls that we use. Thread safe. Raises BrokerUnavailableError, AuthorizationFailedError,
    ProtocolError; FatalError where the broker refuses; and, where Pulsar itself says that what was asked for is not
    there, TopicNotFoundError or NamespaceNotFoundError."""

    def version(self) -> str: ...

    def time_ms(self) -> int | None:
        """What time it is by the clock of the broker that answers; None: it does not say."""
        ...

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

    def all_topics(self, namespace: str) -> list[TopicName]:
        """The same with Pulsar's system topics (`TopicName.is_system`)."""
        ...

    def known_topics(self, namespace: str) -> KnownTopics:
        """All topics of a namespace, Pulsar's own ones included, and the names of partitioned ones."""
        ...

    def topic_info(self, topic: TopicName) -> TopicInfo: ...

    def cursors(self, topic: TopicName) -> TopicCursors:
        """As its broker has them. One request. A topic that no broker has loaded is loaded, as by the two below."""
        ...

    def subscription_traits(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        """Of the durable ones. One request."""
        ...

    def use(self, topic: TopicName) -> TopicUse:
        """Who uses the topic now."""
        ...

    def partitions(self, topic: TopicName) -> int | None:
        """Of the partitioned topic that it is one of; None: it is none of any."""
        ...

    def schema_version(self, topic: TopicName) -> int | None:
        """The newest; None: it has no schema."""
        ...

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        """All versions, in order."""
        ...

    def shadow_source(self, topic: TopicName) -> str:
        """The topic whose data a partitioned topic shows as its own (PIP-180); empty: it is no shadow, or there is no
        such partitioned topic."""
        ...

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

    def applied_retention(self, topic: TopicName) -> object:
        """The same of a topic that is no partition, as Pulsar writes it; None: none is set."""
        ...

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        """The namespace's policies as Pulsar names them (`retention_policies`, `message_ttl_in_seconds`, …)."""
        ...

    def unload(self, topic: TopicName) -> None:
        """Have the topic unloaded; its clients reconnect. May be repeated. A topic that nobody has loaded may be loaded
        first. An error other than a refusal says nothing of what happened, or still will."""
        ...

    def trim(self, topic: TopicName) -> None:
        """Have the topic loaded, and what retention no longer keeps dropped. May be repeated."""
        ...

    def set_offload_threshold(self, namespace: str, size: int, seconds: int | None = None) -> None:
        """From how many bytes, and after how long, brokers offload a namespace's topics by themselves; negative: never.
        `seconds` None: as it is."""
        ...

    def offload_policies(self, topic: TopicName) -> Mapping[str, object]:
        """How the topic's brokers offload by themselves, as it applies to it: its own policies over its namespace's
        over the brokers', by Pulsar's names, without secrets. Empty: they say nothing."""
        ...
