"""The live brokers of archived topics: what the gateway asks of them before it leads anybody there. Calls block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.gateway.core.hand_over import objection, readers_objection
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topic_entries import TopicEntries
from offloader.gateway.values import ServedEnd
from offloader.metadata.state import CatalogHead
from offloader.model import Place, TopicName
from offloader.ports.admin import TopicInfo
from offloader.ports.subscriptions import Subscriptions
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.last_message import LastMessage, last_message
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

    def last(self, topic: TopicName) -> LastMessage | None:
        """The last message that readers get; None: there is none."""
        ...

    def close(self) -> None: ...


class LiveBrokers:
    """Those of the configuration's section `pulsar`. `new_name`: for readers that only look."""

    def __init__(self, settings: PulsarSettings, new_name: Callable[[], str]) -> None:
        self._new_name = new_name
        self.subscriptions: Subscriptions = BrokerSubscriptions(settings)
        self._admin = AdminClient(settings)
        self._pool = ConnectionPool(settings)
        self._lookup = TopicLookup(self._pool)

    def info(self, topic: TopicName) -> TopicInfo:
        return self._admin.topic_info(topic)

    def owner(self, topic: TopicName) -> Address:
        found = self._lookup.owner(topic)
        return Address(found.plain, found.tls)

    def last(self, topic: TopicName) -> LastMessage | None:
        return last_message(self._lookup, topic, f"gateway-{self._new_name()}")

    def close(self) -> None:
        self.subscriptions.close()
        self._admin.close()
        self._pool.close()


class Archived(NamedTuple):
    """What the gateway serves of a topic: (incarnation, ledger, last entry) of each ledger, and the last entry that is
    delivered."""

    served: tuple[tuple[int, int, int], ...]
    last: Place | None

    @classmethod
    def of(cls, entries: TopicEntries) -> Archived:
        """As of its last refresh. Blocks."""
        return cls(tuple(entries.ledgers()), entries.end().last)


@dataclass(frozen=True, slots=True)
class LiveLook:
    """A topic as the archive and its brokers said at one moment."""

    head: CatalogHead
    archived: Archived
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
        served, last = self.archived
        why = objection(self.head, served, mark, self.info)
        return why if why or durable else readers_objection(served, last, mark, self.info)


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """One topic at its brokers. `head`: reads what the archive says of it now."""

    name: TopicName
    brokers: Brokers
    head: Callable[[], CatalogHead]

    def look(self, archived: Archived) -> LiveLook:
        return LiveLook(self.head(), archived, self.brokers.info(self.name))

    def end(self, archived: Archived, end: ServedEnd) -> ServedEnd:
        """The brokers' where whoever has read the whole archive goes on there, else the archive's."""
        served = archived.served
        if not served or self.look(archived).objection(served[-1][1:], durable=True):
            return end
        last = self.brokers.last(self.name)
        if last is None or (end.last is not None and last.place <= end.last):
            return end
        return ServedEnd(last.place, last.batch_index + 1, end.terminated)

    def address(self) -> Address:
        return self.brokers.owner(self.name)
