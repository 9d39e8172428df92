"""Live brokers in memory: another gateway serves all that a topic has, and says what brokers say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import closing

from offloader.cursors.core.piece_codec import decode_piece
from offloader.cursors.core.records import FirstState
from offloader.cursors.durable import DurableCursor
from offloader.cursors.stored import kept_subscription
from offloader.errors import TopicNotFoundError
from offloader.gateway.protocol.answers import Address
from offloader.metadata.layout import subscription_folder
from offloader.model import (
    AcknowledgedRange,
    EntryRange,
    LedgerList,
    LedgerSpan,
    PartlyAcknowledged,
    Place,
    Position,
    TopicName,
)
from offloader.ports.admin import TopicInfo
from offloader.ports.object_store import ObjectStore
from offloader.ports.subscriptions import EARLIEST, SubscriptionLook, SubscriptionUse
from offloader.pulsar.last_message import LastMessage, last_message
from offloader.pulsar.lookup import TopicLookup
from offloader.pulsar.pool import ConnectionPool
from offloader.pulsar.settings import PulsarSettings

TOKENS = itertools.count()
NOWHERE = Position(0, 0, -1)


class LiveTopics:
    """`Brokers` of one topic. `ledgers`: those it has, with their last entries; None: open. `subscriptions`: where the
    other gateway keeps its own."""

    def __init__(self, topic: TopicName, store: ObjectStore, ledgers: Mapping[int, int | None]) -> None:
        self.topic = topic
        self.url = ""
        self.ledgers = dict(ledgers)
        self.created = 1
        self.looks = 0
        self.subscriptions = LiveSubscriptions(store, self)

    def info(self, topic: TopicName) -> TopicInfo:
        self.looks += 1
        if topic != self.topic:
            raise TopicNotFoundError(f"{topic} does not exist")
        spans = tuple(LedgerSpan(ledger, last) for ledger, last in self.ledgers.items())
        return TopicInfo(self.created, LedgerList(spans), {}, None, terminated=False, offloaded=frozenset())

    def owner(self, topic: TopicName) -> Address:
        return Address(self.url)

    def last(self, topic: TopicName) -> LastMessage | None:
        """Asked of the other gateway, as of a broker."""
        pool = ConnectionPool(PulsarSettings(service_url=self.url, admin_url="http://127.0.0.1:1"))
        with closing(pool):
            return last_message(TopicLookup(pool), topic, f"look-{next(TOKENS)}")

    def close(self) -> None:
        """Nothing to end."""


class LiveSubscriptions:
    """`Subscriptions`, kept where the other gateway finds them."""

    def __init__(self, store: ObjectStore, of: LiveTopics) -> None:
        self.properties: dict[str, dict[str, str]] = {}
        self._store = store
        self._of = of

    def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
        if subscription not in self.properties:
            return None
        # Whoever only looks takes nothing over from the gateway that serves it.
        kept = kept_subscription(self._store, topic, subscription)
        assert kept is not None
        ranges = [
            AcknowledgedRange((ledger, first - 1), (ledger, last))
            for (_, ledger), piece in kept.pieces.items()
            for first, last in decode_piece(piece).runs()
        ]
        properties = tuple(self.properties[subscription].items())
        mark = kept.marker.mark_delete.place
        return SubscriptionLook(self._of.created, mark, tuple(ranges), 0, 0, 0, properties=properties)

    def create(
        self, topic: TopicName, subscription: str, properties: Mapping[str, str], first: Place = EARLIEST
    ) -> bool:
        if subscription in self.properties:
            return False
        self.properties[subscription] = dict(properties)
        place = max(first, (min(self._of.ledgers), 0))
        self._cursor(topic, subscription, Position(0, place[0], place[1] - 1))
        return True

    def acknowledge(
        self, topic: TopicName, subscription: str, whole: Sequence[EntryRange], parts: Sequence[PartlyAcknowledged]
    ) -> None:
        cursor = self._cursor(topic, subscription)
        for one in whole:
            cursor.acknowledge((0, one.ledger), one.first, one.last)
        for part in parts:
            left = sum(word << 64 * number for number, word in enumerate(part.words))
            cursor.acknowledge_part(Position(0, part.ledger, part.entry), left.bit_length() + 1, left)
        cursor.flush()

    def uses(self) -> Mapping[TopicName, Mapping[str, SubscriptionUse]]:
        raise NotImplementedError

    def delete(self, topic: TopicName, subscription: str) -> None:
        raise NotImplementedError

    def replicate(self, topic: TopicName, subscription: str) -> None:
        raise NotImplementedError

    def move(self, topic: TopicName, subscription: str, mark_delete: Place) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to end."""

    def _cursor(self, topic: TopicName, subscription: str, begin: Position = NOWHERE) -> DurableCursor:
        folder = subscription_folder(topic, subscription)
        return DurableCursor.open(self._store, folder, lambda: FirstState(begin), lambda: f"b{next(TOKENS)}")
