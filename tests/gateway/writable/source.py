"""Topics in memory that grow by what is produced: `ArchivedTopics` and `TopicEntries` for the gateway's own code."""

from __future__ import annotations

import itertools
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from offloader.archive.items import EntryRun
from offloader.errors import FatalError
from offloader.gateway.entries.delivered import deliverable, time_of
from offloader.gateway.values import ServedEnd, ServedEntries, ServedEntry
from offloader.model import Place, TopicName
from offloader.ports.admin import TopicSchema
from tests.gateway.whole import WholeTopic

BEFORE_ALL = (-1, -1)


@dataclass
class StoredTopic:
    """`served`: the entries that consumers get; nothing is ever taken out. `last`: that of each ledger, in order."""

    name: TopicName
    served: list[ServedEntry] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    schemas: list[TopicSchema] = field(default_factory=list)
    is_deleted: bool = False


class WritableSource:
    """Threads may share it. A topic's ledgers are those of no other one."""

    def __init__(self) -> None:
        self._topics: dict[TopicName, StoredTopic] = {}
        self._partitions: dict[TopicName, int] = {}
        self._ledgers = itertools.count(1)
        self._lock = threading.RLock()

    # What the gateway asks

    def names(self) -> Sequence[TopicName]:
        with self._lock:
            return list(self._topics)

    def has(self, topic: TopicName) -> bool:
        with self._lock:
            return topic in self._topics

    def partitions(self, topic: TopicName) -> int | None:
        """Of one partition, or of the whole topic."""
        with self._lock:
            return self._partitions.get(TopicName.parse(topic.partitioned_name))

    def schemas(self, topic: TopicName) -> Sequence[TopicSchema]:
        with self._lock:
            return list(self._topics[topic].schemas) if topic in self._topics else ()

    def open(self, topic: TopicName) -> WritableEntries:
        with self._lock:
            if topic not in self._topics:
                raise FatalError(f"there is no topic {topic}")
            return WritableEntries(self._topics[topic], self._lock)

    # What producers and administrators do

    def create(self, topic: TopicName) -> None:
        """Unless it is there."""
        with self._lock:
            if topic not in self._topics:
                self._topics[topic] = StoredTopic(topic, last={next(self._ledgers): -1})

    def create_partitions(self, topic: TopicName, count: int) -> None:
        """With all of its partitions, or more of them."""
        with self._lock:
            self._partitions[topic] = max(count, self._partitions.get(topic, 0))
            for number in range(self._partitions[topic]):
                self.create(TopicName.parse(f"{topic}-partition-{number}"))

    def delete(self, topic: TopicName) -> list[TopicName]:
        """With its partitions. Returns what is not there any more."""
        with self._lock:
            parts = [f"{topic}-partition-{number}" for number in range(self._partitions.pop(topic, 0))]
            gone = [name for name in (topic, *map(TopicName.parse, parts)) if name in self._topics]
            for name in gone:
                self._topics.pop(name).is_deleted = True
            return gone

    def add_schema(self, topic: TopicName, schema: TopicSchema) -> int:
        """Its version, which may be there."""
        with self._lock:
            known = self._topics[topic].schemas
            for one in known:
                if (one.type, one.data) == (schema.type, schema.data):
                    return one.version
            known.append(TopicSchema(len(known), schema.type, schema.data, schema.timestamp, schema.properties))
            return len(known) - 1

    def append(self, topic: TopicName, data: bytes) -> Place:
        """One entry, as a producer sends it."""
        with self._lock:
            found = self._topics[topic]
            ledger, last = next(reversed(found.last.items()))
            run = EntryRun(ledger, last + 1, 0, memoryview(data), (0, len(data)), 0)
            found.served += deliverable(run, (), sticky=True).entries()
            found.last[ledger] = last + 1
            return ledger, last + 1

    def new_ledger(self, topic: TopicName) -> None:
        """What comes next goes into another one, as after an unload."""
        with self._lock:
            self._topics[topic].last[next(self._ledgers)] = -1

    def entry(self, topic: TopicName, place: Place) -> ServedEntry | None:
        """None: no consumer gets it."""
        with self._lock:
            return _at(self._topics[topic].served, place)


class WritableEntries(WholeTopic):
    """`TopicEntries`, as of the last refresh."""

    def __init__(self, topic: StoredTopic, lock: threading.RLock) -> None:
        self.name = topic.name
        self._topic = topic
        self._lock = lock
        self._count = 0  # of the entries that are known: the list only grows
        self._ledgers: list[tuple[int, int, int]] = []
        self.refresh()

    def read(self, after: Place, most_entries: int, most_bytes: int, *, sticky: bool = False) -> ServedEntries:
        entries, count, found, size = self._topic.served, self._count, list[ServedEntry](), 0
        begin = bisect_right(entries, after, hi=count, key=_place)
        for entry in entries[begin : min(begin + most_entries, count)]:
            if found and size + len(entry.data) > most_bytes:
                break
            found.append(entry)
            size += len(entry.data)
        return ServedEntries(found, found[-1].place if found else None)

    def again(self, places: Sequence[Place], *, sticky: bool = False) -> list[ServedEntry]:
        found = [_at(self._topic.served, place) for place in sorted(set(places))]
        return [entry for entry in found if entry is not None]

    def end(self) -> ServedEnd:
        if not self._count:
            return ServedEnd(None)
        last = self._topic.served[self._count - 1]
        return ServedEnd(last.place, last.messages)

    def refresh(self) -> bool:
        with self._lock:
            if self._topic.is_deleted:
                raise FatalError(f"{self.name} was deleted")
            ledgers = [(0, ledger, last) for ledger, last in self._topic.last.items() if last >= 0]
            moved, self._ledgers = ledgers != self._ledgers, ledgers
            self._count = len(self._topic.served)
            return moved

    def before_time(self, published_ms: int) -> Place:
        def is_not_older(entry: ServedEntry) -> bool:
            said = time_of(entry)
            return said is None or said >= published_ms

        return self._before(bisect_left(self._topic.served, True, hi=self._count, key=is_not_older))

    def previous(self, place: Place) -> Place:
        return self._before(bisect_left(self._topic.served, place, hi=self._count, key=_place))

    def ledgers(self) -> Sequence[tuple[int, int, int]]:
        return self._ledgers

    def _before(self, number: int) -> Place:
        return self._topic.served[number - 1].place if number else BEFORE_ALL


def _place(entry: ServedEntry) -> Place:
    return entry.place


def _at(entries: Sequence[ServedEntry], place: Place) -> ServedEntry | None:
    """None: no consumer gets it."""
    number = bisect_left(entries, place, key=_place)
    return entries[number] if number < len(entries) and entries[number].place == place else None
