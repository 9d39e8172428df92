"""An in-memory Pulsar: topics, ledgers that roll, cursors that pin, trimming at retention 0.

For hermetic tests of everything above `offloader.pulsar`. It does what Pulsar 4.0.7 was seen to do
(`integration/pulsar/`). Tests use `MemoryCluster`, the product uses `cluster_clients`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.model import GapKind, LedgerList, LedgerSpan, TopicName
from offloader.pulsar.subscription_rest import PIN_PROPERTY
from tests.fakes.cluster_clients import MemoryAdmin, MemoryPins, MemorySource
from tests.fakes.cluster_ledgers import MemoryBookies, MemoryLedgers
from tests.fakes.cluster_state import ClusterCore, Ledger, MemoryEntry, MemoryTopic, Namespace, Place, State

LAZY_CURSORS = "lazyCursorRecovery"

PIN = "__offloader"


@dataclass(frozen=True, slots=True)
class Produced:
    """An entry that was ever written. `delivered`: whether a reader gets it; `hidden`: why not, where that is known."""

    created: int
    ledger: int
    entry: int
    data: bytes
    hidden: GapKind | None
    delivered: bool


class MemoryCluster(ClusterCore):
    """A test changes the cluster here; the product sees it by `admin`, `source`, `stored` (its bookie) and `pins()`.

    No read waits: a reader at the end returns an empty list at once.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        name: str = "memory",
        entries_per_ledger: int | None = None,
        state: Callable[[random.Random, int | None], State] = State,
    ) -> None:
        super().__init__(seed=seed, name=name, entries_per_ledger=entries_per_ledger, state=state)
        self.admin = MemoryAdmin(self)
        self.source = MemorySource(self)
        self.stored = BookKeeperSource(MemoryLedgers(self), MemoryBookies(self))

    def pins(self) -> MemoryPins:
        """A new holder of durable subscriptions, one for each simulated process."""
        return MemoryPins(self)

    def namespace(self, name: str) -> Namespace:
        """A namespace's properties and policies, to be changed in place; made where it is absent."""
        with self.lock:
            return self.state.namespaces.setdefault(name, Namespace())

    def create(self, topic: TopicName) -> None:
        """Make an empty topic (again: another incarnation)."""
        with self.lock:
            self.state.create(topic)

    def produce(self, topic: TopicName, data: bytes) -> tuple[int, int]:
        """Write one entry; returns (ledger, entry)."""
        return self._add(topic, MemoryEntry(data))

    def add_hidden(self, topic: TopicName, kind: GapKind, data: bytes = b"hidden") -> tuple[int, int]:
        """Write an entry that brokers do not deliver, and can say why."""
        return self._add(topic, MemoryEntry(data, hidden=kind))

    def add_withheld(self, topic: TopicName, data: bytes = b"withheld") -> tuple[int, int]:
        """Write an entry that brokers do not deliver, and that nothing explains."""
        return self._add(topic, MemoryEntry(data, withheld=True))

    def add_pending(self, topic: TopicName, data: bytes) -> tuple[int, int]:
        """Write an entry of a transaction that is still open: delivery stops before it until `resolve`."""
        return self._add(topic, MemoryEntry(data, pending=True))

    def resolve(self, topic: TopicName, *, commit: bool) -> tuple[int, int]:
        """End the topic's open transaction; returns the position of the marker that follows its entries."""
        with self.lock:
            for _, entry in self.state.topic(topic).placed():
                if entry.pending:
                    entry.pending = False
                    entry.hidden = None if commit else GapKind.ABORTED
            return self.add_hidden(topic, GapKind.MARKER, b"marker")

    def roll(self, topic: TopicName) -> None:
        """Close the open ledger and open another one."""
        with self.lock:
            self.state.roll(self.state.topic(topic))

    def unload(self, topic: TopicName) -> None:
        """Close the ledger, break off its readers, load the topic again with a new ledger."""
        with self.lock:
            self.state.unload(self.state.topic(topic))
            if self.configuration.get(LAZY_CURSORS) == "true":
                for cursor in self.state.topic(topic).cursors.values():  # they show what the next subscriber brings
                    cursor.properties = {PIN_PROPERTY: self.state.new_token()}

    def terminate(self, topic: TopicName) -> None:
        """Seal the topic: nothing can be produced any more."""
        with self.lock:
            self.state.terminate(self.state.topic(topic))

    def delete(self, topic: TopicName) -> None:
        """Remove the topic with its subscriptions and data."""
        with self.lock:
            self.state.delete(self.state.topic(topic))

    def rebuild(self) -> None:
        """Lose the whole cluster, and build an empty one with the same name and addresses."""
        with self.lock:
            self.state.rebuild()

    def lose(self, topic: TopicName, ledger: int) -> None:
        """Remove a closed ledger although the pin keeps it, as a lost bookie or an operator does."""
        with self.lock:
            self.state.topic(topic).drop_ledger(ledger)

    def vanish(self, topic: TopicName, ledger: int) -> None:
        """Remove a ledger from BookKeeper alone: the topic still lists it."""
        with self.lock:
            self._ledger(topic, ledger).vanished = True

    def offload_stock(self, topic: TopicName, ledger: int, uuid: str = "") -> None:
        """Mark a ledger as offloaded by Pulsar's own offloader."""
        with self.lock:
            found = self._ledger(topic, ledger)
            found.offloaded, found.offloaded_as = True, uuid

    def move_pin(self, topic: TopicName, ledger: int, entry: int, subscription: str = PIN) -> None:
        """Move the subscription's mark-delete, and check retention."""
        with self.lock:
            found = self.state.topic(topic)
            self.state.move(found, found.cursors[subscription], (ledger, entry))
            self.state.trim(found)

    def skip_all(self, topic: TopicName, subscription: str = PIN) -> None:
        """Move the mark-delete to the last entry, as `skip_all` does, message TTL, or a backlog quota."""
        self._move(topic, subscription, lambda found, mark: found.last_confirmed() or mark)

    def skip(self, topic: TopicName, count: int, subscription: str = PIN) -> None:
        """Move the mark-delete on by that many entries, as `skip` does."""
        self._move(topic, subscription, lambda found, mark: _after(found, mark, count))

    def reset(self, topic: TopicName, ledger: int, entry: int, subscription: str = PIN) -> None:
        """Let the subscription begin at an entry, as `resetcursor` does: the mark-delete is the entry before it."""
        self._move(topic, subscription, lambda found, _: _before(found, (ledger, entry)))

    def check_retention(self, topic: TopicName) -> None:
        """As a broker does every `retentionCheckIntervalInSeconds`."""
        with self.lock:
            self.state.trim(self.state.topic(topic))

    def delete_subscription(self, topic: TopicName, subscription: str = PIN) -> None:
        """Delete the subscription behind its owner's back."""
        with self.lock:
            self.state.unsubscribe(self.state.topic(topic), subscription)

    def add_subscription(self, topic: TopicName, subscription: str) -> None:
        """A durable subscription that somebody else makes, at the first entry; it keeps data, too."""
        with self.lock:
            self.state.topic(topic).cursor(subscription, owner=None, properties={})

    def mark_delete(self, topic: TopicName, subscription: str = PIN) -> tuple[int, int] | None:
        """Where the pin stands, None where there is none."""
        with self.lock:
            cursor = self.state.topic(topic).cursors.get(subscription)
            return None if cursor is None else cursor.mark

    def entries(self, topic: TopicName) -> tuple[Produced, ...]:
        """Everything ever written to all incarnations of the topic, hidden and trimmed entries included, in order."""
        with self.lock:
            return tuple(
                Produced(t.created, ledger.id, i, e.data, e.hidden, e.readable)
                for t in self.state.all_incarnations(topic)
                for ledger in t.history
                for i, e in enumerate(ledger.entries)
            )

    def ledgers(self, topic: TopicName) -> LedgerList:
        """All ledgers that the living incarnation ever had, trimmed ones included."""
        with self.lock:
            return LedgerList(tuple(LedgerSpan(ledger.id, ledger.last) for ledger in self.state.topic(topic).history))

    def exists(self, topic: TopicName) -> bool:
        """Whether the topic is there now."""
        with self.lock:
            return topic in self.state.topics

    def _add(self, topic: TopicName, entry: MemoryEntry) -> tuple[int, int]:
        with self.lock:
            return self.state.append(self.state.topic(topic), entry)

    def _move(self, topic: TopicName, subscription: str, place: Callable[[MemoryTopic, Place], Place]) -> None:
        with self.lock:
            found = self.state.topic(topic)
            cursor = found.cursors[subscription]
            self.state.move(found, cursor, place(found, cursor.mark))

    def _ledger(self, topic: TopicName, ledger: int) -> Ledger:
        return next(found for found in self.state.topic(topic).ledgers if found.id == ledger)


def _after(topic: MemoryTopic, mark: Place, count: int) -> Place:
    """The entry that is so many entries on, or the last one."""
    following = [place for place, _ in topic.placed() if place > mark][:count]
    return following[-1] if following else mark


def _before(topic: MemoryTopic, place: Place) -> Place:
    """The entry before, or before the first one."""
    earlier = [found for found, _ in topic.placed() if found < place]
    return earlier[-1] if earlier else (topic.ledgers[0].id, -1)
