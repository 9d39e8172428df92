"""The Pulsar of the world: an in-memory cluster, and brokers that own its topics, each with a time zone, a version and
moods of its own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from offloader.errors import BrokerUnavailableError
from offloader.model import TopicName
from offloader.pulsar.subscription_rest import PIN_PROPERTY, keeps_properties
from tests.fakes.cluster import PIN, MemoryCluster
from tests.fakes.cluster_state import MemoryCursor, MemoryTopic
from tests.world.scheduler import MS, SECOND, Scheduler

OPERATION_TIMEOUT = 30 * SECOND


@dataclass
class Broker:
    """`zone`: minutes east of Greenwich, as its JVM was started with."""

    number: int
    zone: int = 0
    version: str = "4.0.7"
    up: bool = True
    hangs: bool = False

    @property
    def keeps_properties(self) -> bool:
        return keeps_properties(self.version)

    @property
    def host(self) -> str:
        return f"broker-{self.number}.example"


@dataclass
class Brokers:
    """Who owns which topic. `bytes_per_second`: the dispatch limit of a topic; `dispatched`: bytes that readers got."""

    scheduler: Scheduler
    cluster: MemoryCluster
    all: list[Broker]
    latency_ms: tuple[float, float] = (0.5, 5.0)
    bytes_per_second: dict[TopicName, float] = field(default_factory=dict)
    dispatched: Counter[TopicName] = field(default_factory=Counter)
    owners: dict[TopicName, Broker] = field(default_factory=dict)

    def owner(self, topic: TopicName) -> Broker:
        """The broker that has the topic; it is loaded by the first who asks."""
        owner = self.owners.get(topic)
        if owner is None or not owner.up:
            up = [b for b in self.all if b.up] or self.all
            owner = self.owners[topic] = self.scheduler.rng.choice(up)
        return owner

    def travel(self, *brokers: Broker) -> None:
        """The time that a question takes to the slowest of them and back, hanging ones apart."""
        self.scheduler.sleep(int(self.scheduler.rng.uniform(*self.latency_ms) * MS * (1 if brokers else 0)))

    def ask(self, broker: Broker) -> None:
        """Reach a broker, or find out that one cannot. Raises BrokerUnavailableError."""
        self.travel(broker)
        if broker.hangs:
            self.scheduler.sleep(OPERATION_TIMEOUT)
        if broker.hangs or not broker.up:
            raise BrokerUnavailableError(f"{broker.host} did not answer")

    def stop(self, broker: Broker) -> None:
        """The broker ends: its topics are unloaded, and loaded elsewhere."""
        self.scheduler.log(f"{broker.host} stops")
        broker.up = False
        for topic in self.topics_of(broker):
            self.cluster.unload(topic)
            self.owners.pop(topic, None)

    def shown(self, owner: Broker, topic: MemoryTopic, cursor: MemoryCursor) -> dict[str, str]:
        """A subscription's properties as its topic's owner tells them: an old one those of whoever subscribed first
        since it has the topic."""
        return cursor.properties if owner.keeps_properties else {PIN_PROPERTY: f"load-{topic.load}"}

    def subscribed(self, topic: TopicName) -> None:
        """The pin has been made: an old broker does not store its properties."""
        if not self.owner(topic).keeps_properties:
            self.cluster.state.topics[topic].cursors[PIN].properties = {}

    def start(self, broker: Broker, *, zone: int | None = None, version: str | None = None) -> None:
        """It is back, perhaps in another time zone, or with another version."""
        broker.up, broker.hangs = True, False
        broker.version = broker.version if version is None else version
        broker.zone = broker.zone if zone is None else zone
        self.scheduler.log(f"{broker.host} starts, zone {broker.zone}, {broker.version}")

    def unload(self, topic: TopicName) -> None:
        """The topic moves."""
        self.scheduler.log(f"unload {topic}")
        if self.cluster.exists(topic):
            self.cluster.unload(topic)
        self.owners.pop(topic, None)

    def topics_of(self, broker: Broker) -> list[TopicName]:
        """The topics that it has."""
        return [t for t, owner in self.owners.items() if owner is broker and self.cluster.exists(t)]
