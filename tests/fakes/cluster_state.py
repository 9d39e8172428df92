"""The managed ledgers of the in-memory Pulsar, and what it shares with its clients."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from offloader._proto.managed_ledger_pb2 import OffloadContext
from offloader.errors import FatalError, TopicNotFoundError
from offloader.model import GapKind, TopicName
from tests.fakes.faults import Faults

Place = tuple[int, int]


@dataclass
class MemoryEntry:
    """One entry in a ledger, and what a broker makes of it."""

    data: bytes
    hidden: GapKind | None = None
    withheld: bool = False
    pending: bool = False

    @property
    def readable(self) -> bool:
        """Whether a reader gets it."""
        return self.hidden is None and not self.withheld and not self.pending


@dataclass
class Ledger:
    """A ledger. `offloaded_as`: the uuid of the stock offloader's copy. `vanished`: BookKeeper has lost it, and the
    topic still lists it. `context`: as its topic's broker knows it, in a cluster that keeps records."""

    id: int
    entries: list[MemoryEntry] = field(default_factory=list)
    closed: bool = False
    offloaded: bool = False
    offloaded_as: str = ""
    vanished: bool = False
    context: OffloadContext | None = None

    @property
    def last(self) -> int | None:
        """The id it was closed with, None while it is open."""
        return len(self.entries) - 1 if self.closed else None


@dataclass
class MemoryCursor:
    """A durable subscription: its mark-delete, who consumes it, and the properties that it was made with and keeps."""

    mark: Place
    owner: object | None
    properties: dict[str, str] = field(default_factory=dict)


class MemoryTopic:
    """One incarnation of a topic."""

    def __init__(self, name: TopicName, created: int, ledger: Ledger) -> None:
        self.name = name
        self.created = created
        self.ledgers = [ledger]
        self.history = [ledger]
        self.cursors: dict[str, MemoryCursor] = {}
        self.terminated = False
        self.load = 0  # changes with each unload: readers of an earlier load are broken off
        self.removed = 0  # ledgers, since it was created
        # In a cluster that keeps records: whether a broker has it, which version of the record that one knows, and
        # whether it was refused because somebody else had changed the record.
        self.loaded = True
        self.version = -1
        self.fenced = False

    def open_ledger(self, ledger_id: int) -> None:
        """Close the current ledger, go on with another."""
        self.ledgers[-1].closed = True
        ledger = Ledger(ledger_id)
        self.ledgers.append(ledger)
        self.history.append(ledger)

    def terminate(self) -> None:
        """Close for ever."""
        self.ledgers[-1].closed = True
        self.terminated = True

    def drop_ledger(self, ledger_id: int) -> None:
        """Remove a ledger and its data."""
        self.keep([ledger for ledger in self.ledgers if ledger.id != ledger_id])

    def keep(self, ledgers: list[Ledger]) -> None:
        """Remove all other ledgers and their data."""
        self.removed += len(self.ledgers) - len(ledgers)
        self.ledgers = ledgers

    def cursor(self, subscription: str, owner: object | None, properties: Mapping[str, str]) -> MemoryCursor:
        """The subscription's cursor, made at the first entry where it is absent; else it keeps its properties."""
        found = self.cursors.get(subscription)
        if found is None:
            found = self.cursors[subscription] = MemoryCursor((self.ledgers[0].id, -1), owner, dict(properties))
        return found

    def placed(self, start: Place = (-1, -1)) -> Iterator[tuple[Place, MemoryEntry]]:
        """Entries at or after `start`, in order."""
        for ledger in self.ledgers:
            if ledger.id < start[0]:
                continue
            first = max(start[1], 0) if ledger.id == start[0] else 0
            for i in range(first, len(ledger.entries)):
                yield (ledger.id, i), ledger.entries[i]

    def last_readable(self) -> Place | None:
        """What GET_LAST_MESSAGE_ID answers: the last entry that can be dispatched, None when there is none."""
        last = None
        for place, entry in self.placed():
            if entry.pending:
                break
            if entry.hidden is None:
                last = place
        return last

    def last_confirmed(self) -> Place | None:
        """The last entry, whatever it is."""
        return _last_of(self.ledgers)

    def last_written(self) -> Place:
        """The last entry ever, trimmed or not."""
        return _last_of(self.history) or (-1, -1)


def _last_of(ledgers: list[Ledger]) -> Place | None:
    return next(((x.id, len(x.entries) - 1) for x in reversed(ledgers) if x.entries), None)


@dataclass
class Namespace:
    """What an operator sets on a namespace."""

    properties: dict[str, str] = field(default_factory=dict)
    policies: dict[str, object] = field(default_factory=dict)


class State:
    """All topics, and what happens to them."""

    def __init__(self, rng: random.Random, entries_per_ledger: int | None) -> None:
        self.topics: dict[TopicName, MemoryTopic] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.deleted: dict[TopicName, list[MemoryTopic]] = {}
        self.rng = rng
        self.entries_per_ledger = entries_per_ledger
        self.last_ledger = rng.randrange(100)
        self.tokens = 0
        self.created = 0

    def topic(self, name: TopicName) -> MemoryTopic:
        """The living incarnation. Raises TopicNotFoundError."""
        found = self.topics.get(name)
        if found is None:
            raise TopicNotFoundError(f"{name} does not exist")
        return found

    def create(self, name: TopicName) -> None:
        """A new incarnation with one open, empty ledger."""
        if name in self.topics:
            raise FatalError(f"{name} exists already")
        self.namespaces.setdefault(name.namespace, Namespace())
        self.created += 1
        self.topics[name] = MemoryTopic(name, 1_767_225_600_000 + self.created, Ledger(self.new_ledger_id()))

    def append(self, topic: MemoryTopic, entry: MemoryEntry) -> Place:
        """Write one entry to the open ledger; a full one rolls."""
        if topic.terminated:
            raise FatalError(f"{topic.name} is terminated")
        ledger = topic.ledgers[-1]
        ledger.entries.append(entry)
        place = (ledger.id, len(ledger.entries) - 1)
        if self.entries_per_ledger is not None and len(ledger.entries) >= self.entries_per_ledger:
            self.roll(topic)
        return place

    def roll(self, topic: MemoryTopic) -> None:
        """Close the open ledger, open another, trim what nobody keeps."""
        if topic.terminated:
            return
        topic.open_ledger(self.new_ledger_id())
        self.trim(topic)

    def unload(self, topic: MemoryTopic) -> None:
        """As a broker that gives the topic away: consumers are closed; an empty last ledger is replaced, not kept."""
        topic.load += 1
        for cursor in topic.cursors.values():
            cursor.owner = None
        if topic.terminated:
            return
        empty = topic.ledgers[-1] if not topic.ledgers[-1].entries else None
        self.roll(topic)
        if empty is not None:
            self.forget_empty(topic, empty)

    def forget_empty(self, topic: MemoryTopic, empty: Ledger) -> None:
        """A load drops the last ledger where it has no entries."""
        topic.drop_ledger(empty.id)
        topic.history.remove(empty)
        for cursor in topic.cursors.values():
            if cursor.mark[0] == empty.id:
                cursor.mark = (topic.ledgers[-1].id, -1)

    def trim(self, topic: MemoryTopic) -> None:
        """Retention 0: a closed ledger goes once every cursor is past it or stands at its last entry. The last ledger
        stays. A cursor stays where it is, even in a ledger that is gone.
        """
        ends = {x.id: x.last for x in topic.ledgers}
        needed = [mark[0] + (mark[1] == ends.get(mark[0])) for mark in (c.mark for c in topic.cursors.values())]
        keep = min(needed, default=topic.ledgers[-1].id)
        topic.keep([x for x in topic.ledgers if x.id >= keep or not x.closed or x is topic.ledgers[-1]])

    def acknowledge(self, topic: MemoryTopic, cursor: MemoryCursor, place: Place) -> None:
        """Cumulative. A position behind the mark-delete changes nothing, nor does one past the last entry."""
        if cursor.mark < place <= topic.last_written():
            self.move(topic, cursor, place)

    def move(self, topic: MemoryTopic, cursor: MemoryCursor, place: Place) -> None:
        """Put the mark-delete somewhere. In another ledger it trims at once, else the next check of retention does."""
        before, cursor.mark = cursor.mark, place
        if before[0] != place[0]:
            self.trim(topic)

    def terminate(self, topic: MemoryTopic) -> None:
        """Nothing can be produced any more."""
        topic.terminate()

    def data_of(self, topic: MemoryTopic, place: Place, stored: MemoryEntry) -> bytes | None:
        """An entry as the topic's broker reads it; None: it cannot."""
        return stored.data

    def skips_unreadable(self) -> bool:
        """Whether brokers go on behind what they cannot read."""
        return False

    def unsubscribe(self, topic: MemoryTopic, subscription: str) -> None:
        """Delete a durable subscription."""
        topic.cursors.pop(subscription, None)
        self.trim(topic)

    def delete(self, topic: MemoryTopic) -> None:
        """The topic goes, its history stays for the tests."""
        topic.load += 1
        self.deleted.setdefault(topic.name, []).append(self.topics.pop(topic.name))

    def rebuild(self) -> None:
        """Everything is lost, and an empty cluster takes its place: ids of ledgers begin at 0 again."""
        for topic in list(self.topics.values()):
            self.delete(topic)
        self.namespaces.clear()
        self.last_ledger = -1

    def all_incarnations(self, name: TopicName) -> list[MemoryTopic]:
        """Deleted ones first, in order."""
        living = self.topics.get(name)
        return [*self.deleted.get(name, []), *([living] if living else [])]

    def sizes(self, topic: MemoryTopic) -> Mapping[int, tuple[int, int]]:
        """Entries and bytes by ledger."""
        return {x.id: (len(x.entries), sum(len(e.data) for e in x.entries)) for x in topic.ledgers}

    def batch(self) -> int:
        """How many entries one read gives at most; irregular, as with real brokers."""
        return self.rng.randint(1, 50)

    def new_token(self) -> str:
        """One that no other subscription has."""
        self.tokens += 1
        return f"pin-{self.tokens}"

    def new_ledger_id(self) -> int:
        """A higher one than any before."""
        self.last_ledger += self.rng.randint(1, 4)
        return self.last_ledger


class ClusterCore:
    """The state, the lock that guards it, and what fails on purpose."""

    def __init__(
        self,
        *,
        seed: int,
        name: str,
        entries_per_ledger: int | None,
        state: Callable[[random.Random, int | None], State] = State,
    ) -> None:
        rng = random.Random(seed)
        self.name = name
        self.state = state(rng, entries_per_ledger)
        self.lock = threading.RLock()
        self.faults = Faults(rng)
        self.configuration: dict[str, str] = {
            "brokerEntryMetadataInterceptors": "",
            "exposingBrokerEntryMetadataToClientEnabled": "true",
            "maxMessageSize": "5242880",
        }
