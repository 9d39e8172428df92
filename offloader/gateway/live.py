"""The live brokers of archived topics: what the gateway asks of them before it leads anybody there. Calls block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from offloader.gateway.core.hand_over import objection, readers_objection
from offloader.gateway.protocol.answers import Address
from offloader.metadata.state import CatalogHead
from offloader.model import Place, TopicName
from offloader.ports.admin import TopicInfo
from offloader.ports.subscriptions import Subscriptions
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.settings import PulsarSettings
from offloader.pulsar.subscriptions import BrokerSubscriptions


class Brokers(Protocol):
    """All raise TopicNotFoundError where there is no such topic, and what brokers raise."""

    subscriptions: Subscriptions

    def info(self, topic: TopicName) -> TopicInfo: ...

    def owner(self, topic: TopicName) -> Address:
        """Where it is served; by asking that, it is."""
        ...

    def close(self) -> None: ...


class LiveBrokers:
    """Those of the configuration's section `pulsar`."""

    def __init__(self, settings: PulsarSettings) -> None:
        self.subscriptions: Subscriptions = BrokerSubscriptions(settings)
        self._admin = AdminClient(settings)
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)

    def info(self, topic: TopicName) -> TopicInfo:
        return self._admin.topic_info(topic)

    def owner(self, topic: TopicName) -> Address:
        found = self._lookup.owner(topic)
        return Address(found.plain, found.tls)

    def close(self) -> None:
        self.subscriptions.close()
        self._admin.close()
        self._pool.close()


@dataclass(frozen=True, slots=True)
class LiveLook:
    """A topic as the archive and its brokers said at one moment. `served`: what the gateway serves of it."""

    head: CatalogHead
    served: tuple[tuple[int, int, int], ...]
    info: TopicInfo

    @property
    def lengths(self) -> list[tuple[int, int | None]]:
        """The brokers' ledgers with their entries."""
        return [(one.ledger, None if one.last is None else one.last + 1) for one in self.info.ledgers.spans]

    @property
    def created(self) -> bool:
        """Whether it is the topic that was archived."""
        return self.head.claim is not None and self.head.claim.created == self.info.created

    def objection(self, mark: Place, *, durable: bool) -> str:
        """Why a subscription that stands there may not go to the brokers; empty: it may."""
        why = objection(self.head, self.served, mark, self.info)
        return why if why or durable else readers_objection(self.head, mark, self.info)


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """One topic at its brokers. `head`: reads what the archive says of it now."""

    name: TopicName
    brokers: Brokers
    head: Callable[[], CatalogHead]

    def look(self, served: tuple[tuple[int, int, int], ...]) -> LiveLook:
        return LiveLook(self.head(), served, self.brokers.info(self.name))

    def address(self) -> Address:
        return self.brokers.owner(self.name)
