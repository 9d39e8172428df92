"""What is asked of brokers about a topic's subscriptions. `pulsar/subscriptions.py` has the real ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName
from offloader.state.topic import PulsarTopic

EARLIEST: Place = (-1, -1)


class SubscriptionUse(NamedTuple):
    """What a broker's statistics say of a loaded topic's subscription."""

    consumers: int
    backlog: int


@dataclass(frozen=True, slots=True)
class SubscriptionLook:
    """A subscription as its broker has it in memory at this moment.

    `created`: when the topic was made, in ms: another one after it was deleted and made again. `last_active_ms`: the
    last time that anything was consumed or acknowledged, 0: not since the topic was loaded. `replicated`: its position
    is copied to other clusters. `ranges`: beyond the mark-delete, in order; a broker tells nothing of batches.
    `lengths`: the topic's ledgers in order with their entries, None: it is open; not stored with a saved look.
    `traits_known`: whether the broker reports `replicated` and `properties`; not stored either. `sizes`: entries and
    bytes of each ledger, the open one included; not stored either.
    """

    created: int
    mark_delete: Place
    ranges: tuple[AcknowledgedRange, ...]
    consumers: int
    backlog: int
    last_active_ms: int
    replicated: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    lengths: tuple[tuple[int, int | None], ...] = ()
    traits_known: bool = True
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict, hash=False)

    def stands_where(self, other: SubscriptionLook) -> bool:
        """Whether nothing was acknowledged between two looks, of the same topic."""
        return (self.created, self.mark_delete, self.ranges) == (other.created, other.mark_delete, other.ranges)


class Subscriptions(Protocol):
    """All calls raise BrokerUnavailableError, AuthorizationFailedError, ProtocolError, and TopicNotFoundError where
    Pulsar says that the topic, or what was asked for in it, is not there."""

    def uses(self) -> Mapping[TopicName, Mapping[str, SubscriptionUse]]:
        """Of all topics that brokers have loaded; loads none. For super users; up to a minute old."""
        ...

    def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
        """None: the topic has no such durable subscription. The topic is loaded for it."""
        ...

    def report(self, topic: TopicName, *, loaded: bool) -> PulsarTopic:
        """All that can be known of the topic without the metadata service. `loaded`: its broker is asked; else the
        topic is not loaded for it, and a position in a cursor's ledger may have come further."""
        ...

    def keeps_properties(self, topic: TopicName) -> bool:
        """Whether the topic's broker stores the properties of subscriptions."""
        ...

    def delete(self, topic: TopicName, subscription: str) -> None:
        """Delete it, not by force. Raises SubscriptionBusyError: a consumer is connected; OutcomeUnknownError; and
        TopicNotFoundError where it, or the topic, is not there."""
        ...

    def create(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> bool:
        """Make it, so that it begins with the earliest entry. False: there is one. Raises OutcomeUnknownError."""
        ...

    def describe(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> None:
        """Give it these properties in the place of those that it has. Raises OutcomeUnknownError."""
        ...

    def replicate(self, topic: TopicName, subscription: str) -> None:
        """Let its position be copied to other clusters, until the next `move`. It is stored with the next entry that is
        acknowledged. Raises OutcomeUnknownError, also where brokers are not set to do that."""
        ...

    def move(self, topic: TopicName, subscription: str, mark_delete: Place) -> None:
        """Everything up to and including this position is acknowledged, and nothing behind it. Raises
        SubscriptionBusyError, OutcomeUnknownError."""
        ...

    def acknowledge(
        self,
        topic: TopicName,
        subscription: str,
        whole: Iterable[EntryRange],
        parts: Iterable[PartlyAcknowledged],
    ) -> None:
        """Acknowledge entries one by one, and messages of batches. An answer proves nothing: look.

        Raises SubscriptionBusyError, OutcomeUnknownError."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...
