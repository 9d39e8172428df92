"""What is asked of brokers so that topics which nobody has loaded are visited. `pulsar/visits.py` has the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.model import TopicName


class TopicUse(NamedTuple):
    """Who uses a loaded topic: producers, consumers and readers; replicators that have something to send."""

    clients: int
    replicators: int = 0


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """What brokers say of a namespace without loading anything. `partitioned`: names that stand for partitions."""

    topics: frozenset[TopicName]
    partitioned: frozenset[str] = frozenset()


class TopicVisits(Protocol):
    """Thread safe. All calls raise BrokerUnavailableError, AuthorizationFailedError, ProtocolError; FatalError where
    the broker refuses; and, where Pulsar itself says that something is not there, AbsentError.

    Only `trim` and `use` load a topic. `unload` does, too, before it unloads one that nobody has loaded.
    """

    def version(self) -> str:
        """A broker's version."""
        ...

    def loaded(self) -> Mapping[str, str]:
        """The topics that some broker has loaded, by name, with that broker: all brokers of the cluster say so, or this
        raises. For super users. Up to a minute behind."""
        ...

    def known(self, namespace: str) -> KnownTopics:
        """The topics of a namespace, Pulsar's own ones included."""
        ...

    def default_retention(self) -> Mapping[str, str]:
        """The broker's configuration as it runs. For super users."""
        ...

    def namespace_retention(self, namespace: str) -> object:
        """The namespace's policy as Pulsar writes it; None where it has none."""
        ...

    def topic_retention(self, topic: TopicName) -> object:
        """What applies to a topic (never a partition) after merging all levels."""
        ...

    def trim(self, topic: TopicName) -> None:
        """Have the topic loaded, and what retention no longer keeps dropped. May be repeated."""
        ...

    def use(self, topic: TopicName) -> TopicUse:
        """Who uses the topic now."""
        ...

    def unload(self, topic: TopicName) -> None:
        """Have the topic unloaded; clients reconnect. May be repeated."""
        ...
