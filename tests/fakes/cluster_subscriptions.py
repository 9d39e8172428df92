"""Subscriptions of a Pulsar in memory: `Subscriptions` of a broker whose topics and cursors are kept in nodes, as the
metadata service has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from threading import Lock

from offloader._proto.managed_ledger_pb2 import ManagedLedgerInfo
from offloader.errors import SubscriptionBusyError, TopicNotFoundError
from offloader.model import AcknowledgedRange, EntryRange, PartlyAcknowledged, Place, TopicName, joined
from offloader.ports.subscriptions import (
    EARLIEST,
    SubscriptionLook,
    SubscriptionUse,
)
from offloader.pulsar.subscription_rest import keeps_properties
from offloader.state.managed_ledger import ListedLedger, ManagedLedger
from offloader.state.names import encoded, managed_ledger_name
from offloader.state.subscription import CursorState
from offloader.state.subscription_codec import encode_cursor_node
from offloader.state.topic import NewestLedger, PulsarTopic
from tests.fakes.faults import Faults
from tests.fakes.memory_nodes import MemoryNodes


@dataclass
class HeldCursor:
    """A subscription in a broker's memory. `active_ms`: 0 once the topic is loaded anew; `stored_active_ms` stays."""

    mark: Place
    ranges: tuple[AcknowledgedRange, ...] = ()
    batches: dict[Place, tuple[int, ...]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    consumers: int = 0
    active_ms: int = 0
    stored_active_ms: int = 0
    replicated: bool = False


class HeldTopic:
    """A topic: its ledgers with their entries, its subscriptions. The last ledger is open."""

    def __init__(self, ledgers: Mapping[int, int], created: int) -> None:
        self.ledgers = dict(ledgers)
        self.created = created
        self.cursors: dict[str, HeldCursor] = {}


class MemorySubscriptions:
    """`Subscriptions`. A test changes `topics`; `flush` stores them, as a broker does within a minute. `faults`: of the
    calls `look`, `delete`, `create`, `describe`, `replicate`, `move`, `acknowledge`."""

    def __init__(self, nodes: MemoryNodes, root: str, clock_ms: Callable[[], int]) -> None:
        self.topics: dict[TopicName, HeldTopic] = {}
        self.broker_version = "4.0.7"
        self.faults = Faults(Random(0))
        self.before_delete: Callable[[], None] = lambda: None
        self._nodes = nodes
        self._root = root
        self._clock_ms = clock_ms
        self._storing = Lock()

    def make(self, topic: TopicName, ledgers: Mapping[int, int]) -> HeldTopic:
        """A new topic, in the place of what was there."""
        path = self._path(topic)
        for name in self._nodes.children(path) or ():
            self._nodes.delete(f"{path}/{name}")
        if self._nodes.get(path) is not None:
            self._nodes.delete(path)
        self._nodes.put(path, b"")
        node = self._nodes.get(path)
        assert node is not None
        self.topics[topic] = HeldTopic(ledgers, node.created_ms)
        self.flush()
        return self.topics[topic]

    def flush(self) -> None:
        """Store everything, and forget what is not there any more."""
        with self._storing:
            self._flush()

    def _flush(self) -> None:
        for topic, held in list(self.topics.items()):
            cursors = dict(held.cursors)  # other threads change them
            path = self._path(topic)
            info = ManagedLedgerInfo()
            *closed, last = sorted(held.ledgers)
            for ledger in closed:
                count = held.ledgers[ledger]
                info.ledgerInfo.add(ledgerId=ledger, entries=count, size=100 * count, timestamp=1)
            info.ledgerInfo.add(ledgerId=last)
            self._nodes.put(path, info.SerializeToString())
            for name, cursor in cursors.items():
                self._nodes.put(f"{path}/{encoded(name)}", encode_cursor_node(_stored(cursor)))
            for node in set(self._nodes.children(path) or ()) - {encoded(name) for name in cursors}:
                self._nodes.delete(f"{path}/{node}")

    def uses(self) -> Mapping[TopicName, Mapping[str, SubscriptionUse]]:
        return {
            topic: {name: SubscriptionUse(one.consumers, 0) for name, one in held.cursors.items()}
            for topic, held in self.topics.items()
        }

    def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
        lost = self.faults.before("look", topic)
        held = self._topic(topic)
        found = held.cursors.get(subscription)
        if lost is not None:
            raise lost
        if found is None:
            return None
        properties = tuple(sorted(found.properties.items()))
        *closed, last = sorted(held.ledgers.items())
        return SubscriptionLook(
            held.created,
            found.mark,
            found.ranges,
            found.consumers,
            0,
            found.active_ms,
            found.replicated,
            properties=properties,
            lengths=(*closed, (last[0], None)),
            sizes={ledger: (entries, 100 * entries) for ledger, entries in held.ledgers.items()},
        )

    def report(self, topic: TopicName, *, loaded: bool) -> PulsarTopic:
        held = self._topic(topic)
        *closed, last = sorted(held.ledgers.items())
        cursors = {
            name: CursorState(
                one.mark,
                one.ranges,
                subscription_properties=tuple(sorted(one.properties.items())),
                last_active_ms=one.active_ms,
            )
            for name, one in held.cursors.items()
        }
        listed = (ListedLedger(ledger, entries, 100 * entries, 1) for ledger, entries in closed)
        made = held.created
        return PulsarTopic(
            topic,
            ManagedLedger((*listed, ListedLedger(last[0])), created_ms=made, modified_ms=made),
            NewestLedger(False, last[1], 100 * last[1], made, made) if loaded else None,
            cursors,
        )

    def keeps_properties(self, topic: TopicName) -> bool:
        self._topic(topic)
        return keeps_properties(self.broker_version)

    def delete(self, topic: TopicName, subscription: str) -> None:
        self.before_delete()
        lost = self.faults.before("delete", topic)
        found = self._cursor(topic, subscription)
        if found.consumers:
            raise SubscriptionBusyError("Subscription has active connected consumers")
        del self._topic(topic).cursors[subscription]
        self._after(lost)

    def create(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> bool:
        lost = self.faults.before("create", topic)
        held = self._topic(topic)
        is_new = subscription not in held.cursors
        if is_new:
            held.cursors[subscription] = HeldCursor(_before_first(held), properties=dict(properties))
        self._after(lost)
        return is_new

    def describe(self, topic: TopicName, subscription: str, properties: Mapping[str, str]) -> None:
        lost = self.faults.before("describe", topic)
        self._cursor(topic, subscription).properties = dict(properties)
        self._after(lost)

    def replicate(self, topic: TopicName, subscription: str) -> None:
        lost = self.faults.before("replicate", topic)
        self._cursor(topic, subscription).replicated = True
        self._after(lost)

    def move(self, topic: TopicName, subscription: str, mark_delete: Place) -> None:
        lost = self.faults.before("move", topic)
        found, held = self._cursor(topic, subscription), self._topic(topic)
        found.mark = _before_first(held) if mark_delete == EARLIEST else mark_delete
        found.ranges, found.batches, found.replicated = (), {}, False
        self._after(lost)

    def acknowledge(
        self, topic: TopicName, subscription: str, whole: Iterable[EntryRange], parts: Iterable[PartlyAcknowledged]
    ) -> None:
        lost = self.faults.before("acknowledge", topic)
        found = self._cursor(topic, subscription)
        new = (AcknowledgedRange((one.ledger, one.first - 1), (one.ledger, one.last)) for one in whole)
        found.ranges = joined((*found.ranges, *new))
        found.batches |= {(one.ledger, one.entry): one.words for one in parts}
        self._after(lost)

    def close(self) -> None:
        """Nothing to end."""

    def acknowledge_as_a_client(self, topic: TopicName, subscription: str, place: Place) -> None:
        """Somebody uses it."""
        found = self._cursor(topic, subscription)
        found.ranges = joined((*found.ranges, AcknowledgedRange((place[0], place[1] - 1), place)))
        found.active_ms = self._clock_ms()

    def _after(self, lost: Exception | None) -> None:
        self.flush()
        if lost is not None:
            raise lost

    def _topic(self, topic: TopicName) -> HeldTopic:
        if topic not in self.topics:
            raise TopicNotFoundError(f"{topic} does not exist")
        return self.topics[topic]

    def _cursor(self, topic: TopicName, subscription: str) -> HeldCursor:
        found = self._topic(topic).cursors.get(subscription)
        if found is None:
            raise TopicNotFoundError(f"{topic}: no subscription {subscription}")
        return found

    def _path(self, topic: TopicName) -> str:
        return f"{self._root}/{managed_ledger_name(topic)}"


def _stored(cursor: HeldCursor) -> CursorState:
    batches = tuple(PartlyAcknowledged(*place, words) for place, words in sorted(cursor.batches.items()))
    properties = tuple(sorted(cursor.properties.items()))
    cursor.stored_active_ms = max(cursor.stored_active_ms, cursor.active_ms)
    position = (("pulsar.replicated.subscription", 1),) if cursor.replicated else ()
    return CursorState(cursor.mark, cursor.ranges, batches, position, properties, None, cursor.stored_active_ms)


def _before_first(held: HeldTopic) -> Place:
    return min(held.ledgers), -1
