"""What the rest of the product needs of a Pulsar cluster, as interfaces.

`source.py`, `pin.py` and `admin.py` have the real ones, `offloader.testing.cluster` an in-memory cluster for tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.model import Gap, LedgerList, Position, TopicName


class RawEntry(NamedTuple):
    """An entry exactly as BookKeeper stores it (broker entry metadata included)."""

    ledger: int
    entry: int
    data: bytes


class Extent(NamedTuple):
    """How far a reader may go: through these ledgers of the topic, up to `last`, (ledger, entry), which is confirmed."""

    ledgers: LedgerList
    last: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """A topic's last readable position and its pin's mark-delete, both (ledger, entry); `last` None: the topic is empty."""

    last: tuple[int, int] | None
    mark_delete: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic's managed ledger. `sizes` maps ledger id to (entries, bytes), the open ledger's current ones included.

    `created`, in milliseconds, is another one when the topic is deleted and created again, and at no other time.
    `subscriptions`: names of the durable ones. `token`: of the pin that there was before and after the list was read; empty: one that is not
    ours; None: not asked for, or nobody can tell.
    """

    created: int
    ledgers: LedgerList
    sizes: Mapping[int, tuple[int, int]]
    last_confirmed: tuple[int, int] | None
    terminated: bool
    offloaded: frozenset[int]
    subscriptions: frozenset[str] = frozenset()
    token: str | None = None


class Identity(NamedTuple):
    """Who answers for a cluster: its name, and where its brokers keep their metadata (empty where we may not read that)."""

    cluster: str
    stores: str = ""


class EntryReader(Protocol):
    """Reads one topic's entries in order. Not thread safe; holds a bounded number of bytes."""

    def read(self, timeout: float) -> list[RawEntry]:
        """The entries that have arrived, at least one; empty after `timeout` seconds without any.

        Raises TopicMovedError (unload), BrokerUnavailableError, TopicNotFoundError, AuthorizationFailedError, IntegrityError.
        """
        ...

    def close(self) -> None:
        """Give back what the reader holds. Never raises."""
        ...


class EntrySource(Protocol):
    """The worker's way to entries. Safe to use from several threads."""

    def open(self, topic: TopicName, ledger: int, entry: int, *, max_bytes: int, extent: Extent | None = None) -> EntryReader:
        """A reader whose first entry is the first one at or after (ledger, entry) that Pulsar delivers or, from bookies, that is stored.

        `max_bytes` bounds what it holds, but for one entry that is larger by itself. A broker knows by itself how far one may read;
        from bookies nothing beyond `extent` is read, and without one only closed ledgers.
        """
        ...

    def explain(self, topic: TopicName, ledger: int, first: int, last: int, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """Why entries `first`..`last` of a ledger were not delivered, in order, at most `limit` look-ups.

        Returns the gaps that are explained, without a hole from `first` on, and the first entry id that is *not* explained
        by them (it can be read, so it should have been delivered, or the limit was reached), None when all are. Where bookies
        deliver everything, nothing is explained.
        """
        ...


class Pins(Protocol):
    """The driver's durable subscriptions. Safe to use from several threads."""

    def open(self, topic: TopicName) -> TopicEnd:
        """Make or take over the topic's durable subscription and hold it; a new one begins at the topic's first entry.

        Raises SubscriptionBusyError, TopicNotFoundError, AuthorizationFailedError, BrokerUnavailableError.
        """
        ...

    def holds(self, topic: TopicName) -> bool:
        """Whether `open` has succeeded and nothing has let go of it since: the subscription is ours then."""
        ...

    def groups(self, topics: list[TopicName]) -> list[list[TopicName]]:
        """The topics, those together that are asked in one place: one that hangs shall hold no others. Waits for nothing."""
        ...

    def ends(self, topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        """Ends of many held topics at once (pipelined); a topic's failure is its value. Reconnects by itself."""
        ...

    def acknowledge(self, topic: TopicName, position: Position) -> None:
        """Cumulatively acknowledge up to and including `position`; returns once the broker has confirmed it."""
        ...

    def release(self, topic: TopicName) -> None:
        """Delete the durable subscription. The topic's data is no longer kept for us."""
        ...

    def drop(self, topic: TopicName) -> None:
        """Let go of the consumer, keep the subscription."""
        ...

    def close(self) -> None:
        """Let go of all consumers, keep the subscriptions."""
        ...


class Admin(Protocol):
    """The admin REST calls that we use. Raises BrokerUnavailableError, AuthorizationFailedError, ProtocolError, and, where Pulsar itself says
    that what was asked for is not there, TopicNotFoundError or NamespaceNotFoundError."""

    def version(self) -> str: ...

    def cluster(self) -> str:
        """The cluster's name."""
        ...

    def identity(self) -> Identity:
        """Who answers now."""
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

    def pin_token(self, topic: TopicName, subscription: str) -> str | None:
        """The token that a durable subscription was made with, which it keeps as long as it is there. Empty: none, so we did not make it.
        None: these brokers do not keep it. Raises BrokerUnavailableError where there is no such subscription now."""
        ...

    def shows_pin_tokens(self) -> bool:
        """Whether what `pin_token` says is the subscription's own, also after its topic was loaded anew."""
        ...

    def loaded_by(self, topic: TopicName) -> str | None:
        """The broker that has the topic loaded, None where none has; does not load it. For super users. Up to a minute behind."""
        ...

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        """The namespace's policies as Pulsar names them (`retention_policies`, `message_ttl_in_seconds`, …)."""
        ...
