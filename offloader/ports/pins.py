"""The durable subscriptions that keep in Pulsar what is not offloaded yet. `pulsar/pin.py` has the real ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from offloader.model import Position, TopicName


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """A topic's last readable position (None: it is empty) and its pin's mark-delete, both (ledger, entry).
    `subscribed`: a number that changes each time that we subscribe: after an unload, a lost connection, a deletion."""

    last: tuple[int, int] | None
    mark_delete: tuple[int, int]
    subscribed: int = field(default=0, compare=False)


class Pins(Protocol):
    """The driver's durable subscriptions. Safe to use from several threads."""

    def open(self, topic: TopicName) -> TopicEnd:
        """Make or take over the topic's durable subscription and hold it; a new one begins at the topic's first entry.

        Raises SubscriptionBusyError, TopicNotFoundError, AuthorizationFailedError, NotAllowedError,
        BrokerUnavailableError.
        """
        ...

    def holds(self, topic: TopicName) -> bool:
        """Whether `open` has succeeded and nothing has let go of it since: the subscription is ours then."""
        ...

    def groups(self, topics: list[TopicName]) -> list[list[TopicName]]:
        """The topics by the place that is asked for them: one that hangs shall hold no others. Waits for nothing."""
        ...

    def ends(self, topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        """Ends of many held topics at once (pipelined); a topic's failure is its value. Reconnects by itself."""
        ...

    def take_disconnected(self) -> list[TopicName]:
        """Topics whose consumer was closed by a broker or with its connection, since the last call."""
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
