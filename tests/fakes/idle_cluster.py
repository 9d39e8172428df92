"""A cluster whose topics nobody has loaded, in memory and by the test's clock: for whoever visits them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from offloader.errors import FatalError, TopicNotFoundError
from offloader.model import TopicName
from offloader.ports.admin import KnownTopics, TopicUse
from offloader.state.names import encoded
from tests.fakes.faults import Faults
from tests.fakes.idle_brokers import IdleBrokers, IdleTopic, LedgerPlace, node_of

BROKER = "broker-1:8080"


class IdleCluster(IdleBrokers):
    """A test changes it here; the product sees `metadata` and its part of `Admin`.

    `retention`: (minutes, megabytes) by namespace or topic. `trimmed`, `unloaded`: the calls that came, and whether the
    topic was loaded by others then. `stale`: statistics of brokers are those of the last `renew`.
    """

    def __init__(self, *, seed: int = 0, now_ms: int = 1_767_225_600_000) -> None:
        super().__init__(now_ms)
        self.faults = Faults(random.Random(seed))
        self.broker_version = "4.0.7"
        self.partitioned: set[str] = set()
        self.trimmed: list[tuple[TopicName, bool]] = []
        self.unloaded: list[tuple[TopicName, bool]] = []
        self.on_trim: Callable[[TopicName], object] = lambda _: None
        self.on_use: Callable[[TopicName], object] = lambda _: None
        self._statistics: dict[str, str] | None = None

    # What a test does.

    def tick(self, seconds: float) -> None:
        """Time passes."""
        self.now_ms += int(seconds * 1000)

    def connect(self, topic: TopicName) -> None:
        """A client comes; the topic is made, and loaded."""
        with self.lock:
            self.topics.setdefault(topic, IdleTopic()).clients += 1
            self.load(topic)
            self.topics[topic].mine = False

    def leave(self, topic: TopicName) -> None:
        """All clients go; the topic stays loaded, as in Pulsar."""
        self.topics[topic].clients = 0

    def produce(self, topic: TopicName, entries: int, size: int) -> None:
        """So many entries with so many bytes in all, into the current ledger."""
        with self.lock:
            current = self.topics[topic].ledgers[-1]
            current.entries += entries
            current.size += size

    def roll(self, topic: TopicName) -> None:
        """The current ledger is full."""
        with self.lock:
            self.finish(self.topics[topic].ledgers[-1])
            self.begin(topic)
            self.write(topic)

    def subscribe(self, topic: TopicName, name: str, place: LedgerPlace) -> None:
        """A cursor, or another position of one."""
        with self.lock:
            self.topics[topic].cursors[name] = place
            self.write_cursors(topic)

    def terminate(self, topic: TopicName) -> None:
        """No ledger follows any more."""
        with self.lock:
            found = self.topics[topic]
            found.terminated = found.ledgers[-1].closed = True
            self.put_ledger(topic, found.ledgers[-1])
            self.write(topic)

    def crash(self, topic: TopicName) -> None:
        """Its broker dies: nothing is closed."""
        with self.lock:
            found = self.topics[topic]
            found.loaded, found.clients, found.mine = False, 0, False

    def delete(self, topic: TopicName) -> None:
        """The topic goes with all that it has."""
        with self.lock:
            found = self.topics.pop(topic)
            for ledger in found.ledgers:
                self.metadata.cluster.delete_ledger(ledger.id)
            for cursor in found.cursors:
                self.metadata.nodes.delete(f"{node_of(topic)}/{encoded(cursor)}")
            self.metadata.nodes.delete(node_of(topic))

    def renew(self) -> None:
        """From now on statistics are those of this moment, until the next time."""
        self._statistics = self._present()

    def size(self, topic: TopicName) -> int:
        """All bytes of the topic."""
        return sum(one.size for one in self.topics[topic].ledgers)

    # What the product calls.

    def version(self) -> str:
        self.faults.before("visits.version")
        return self.broker_version

    def loaded_topics(self) -> Mapping[str, str]:
        self.faults.before("visits.loaded")
        with self.lock:
            return self._present() if self._statistics is None else dict(self._statistics)

    def known_topics(self, namespace: str) -> KnownTopics:
        self.faults.before("visits.known")
        with self.lock:
            topics = frozenset(one for one in self.topics if one.namespace == namespace)
        return KnownTopics(topics, frozenset(self.partitioned))

    def runtime_configuration(self) -> Mapping[str, str]:
        self.faults.before("visits.default_retention")
        return dict(self.configuration)

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        self.faults.before("visits.namespace_retention")
        return {"retention_policies": _policy(self.retention.get(namespace))}

    def applied_retention(self, topic: TopicName) -> object:
        self.faults.before("visits.topic_retention", topic)
        if topic.partition >= 0:
            raise FatalError("Not allowed to set/get topic policy for a partition")
        minutes, megabytes = self.retention_of(topic)
        return _policy((minutes, megabytes))

    def trim(self, topic: TopicName) -> None:
        lost = self.faults.before("visits.trim", topic)
        self.on_trim(topic)
        with self.lock:
            found = self._existing(topic)
            self.trimmed.append((topic, found.loaded and not found.mine))
            found.mine = found.mine or not found.loaded
            self.load(topic)
            self.check_retention(topic)
        if lost is not None:
            raise lost

    def use(self, topic: TopicName) -> TopicUse:
        lost = self.faults.before("visits.use", topic)
        self.on_use(topic)
        with self.lock:
            found = self._existing(topic)
            self.load(topic)
        if lost is not None:
            raise lost
        return TopicUse(found.clients)

    def unload(self, topic: TopicName) -> None:
        lost = self.faults.before("visits.unload", topic)
        with self.lock:
            found = self._existing(topic)
            self.unloaded.append((topic, found.loaded and not found.mine))
            self.load(topic)
            self.shut(topic)
        if lost is not None:
            raise lost

    def close(self) -> None:
        """Nothing is kept open."""

    def _existing(self, topic: TopicName) -> IdleTopic:
        if str(topic) in self.partitioned:
            raise FatalError(f"{topic} is partitioned: a call about it goes to all partitions")
        if topic not in self.topics:
            raise TopicNotFoundError(f"Topic {topic} not found")
        return self.topics[topic]

    def _present(self) -> dict[str, str]:
        return {str(name): BROKER for name, one in self.topics.items() if one.loaded}


def _policy(retention: tuple[int, int] | None) -> object:
    if retention is None:
        return None
    return {"retentionTimeInMinutes": retention[0], "retentionSizeInMB": retention[1]}
