"""The product's view of the in-memory Pulsar: `Admin`, `Pins`, `EntrySource`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from offloader.errors import (
    FatalError,
    NamespaceNotFoundError,
    SubscriptionBusyError,
    TopicMovedError,
)
from offloader.model import EntryRange, Gap, GapKind, LedgerList, LedgerSpan, Position, TopicName
from offloader.ports.admin import (
    BrokerStores,
    Identity,
    KnownTopics,
    SubscriptionTraits,
    TopicCursors,
    TopicInfo,
    TopicSchema,
    TopicUse,
)
from offloader.ports.entry_source import EntryReader, Extent, RawEntry
from offloader.ports.pins import TopicEnd
from offloader.pulsar.subscription_rest import PIN_PROPERTY, keeps_properties, pin_token
from tests.fakes.cluster_state import ClusterCore, MemoryCursor, MemoryTopic, Namespace

LAZY_CURSORS = "lazyCursorRecovery"

T = TypeVar("T")
Load = tuple[int, int] | None  # when a topic was created, and how often it was loaded; None: there is none


class MemoryAdmin:
    """`Admin` of the in-memory cluster, with its `configuration`. `loaded`: the broker of each topic that is loaded.
    `stores`: what its brokers say of their metadata stores. `offload_of_topics`: offload policies of topics
    themselves. `shadows`: sources of shadow topics."""

    def __init__(self, cluster: ClusterCore) -> None:
        self._cluster = cluster
        self.broker_version = "4.0.7"
        self.clock_ms: Callable[[], int | None] = lambda: None
        self.loaded: dict[TopicName, str] = {}
        self.shadows: dict[TopicName, str] = {}
        self.offload_of_topics: dict[TopicName, dict[str, object]] = {}
        self.stores: tuple[BrokerStores, ...] = (BrokerStores("broker:8080", "zk:memory:1"),)

    def close(self) -> None:
        """Nothing is open."""

    def version(self) -> str:
        self._cluster.faults.before("admin.version")
        return self.broker_version

    def time_ms(self) -> int | None:
        self._cluster.faults.before("admin.time_ms")
        return self.clock_ms()

    def cluster(self) -> str:
        self._cluster.faults.before("admin.cluster")
        return self._cluster.name

    def identity(self) -> Identity:
        return Identity(self.cluster(), f"memory:{self._cluster.name}")

    def stores_of_brokers(self) -> tuple[BrokerStores, ...]:
        self._cluster.faults.before("admin.stores_of_brokers")
        return self.stores

    def tenants(self) -> list[str]:
        self._cluster.faults.before("admin.tenants")
        with self._cluster.lock:
            return sorted({name.partition("/")[0] for name in self._cluster.state.namespaces})

    def namespaces_of(self, tenant: str) -> list[str]:
        self._cluster.faults.before("admin.namespaces_of")
        with self._cluster.lock:
            found = sorted(name for name in self._cluster.state.namespaces if name.partition("/")[0] == tenant)
        if not found:
            raise NamespaceNotFoundError(f"tenant {tenant} does not exist")
        return found

    def runtime_configuration(self) -> Mapping[str, str]:
        self._cluster.faults.before("admin.runtime_configuration")
        return dict(self._cluster.configuration)

    def namespaces(self) -> list[str]:
        self._cluster.faults.before("admin.namespaces")
        with self._cluster.lock:
            return sorted(self._cluster.state.namespaces)

    def namespace_properties(self, namespace: str) -> Mapping[str, str]:
        self._cluster.faults.before("admin.namespace_properties")
        return dict(self._namespace(namespace).properties)

    def retention(self, topic: TopicName) -> tuple[int, int]:
        self._cluster.faults.before("admin.retention")
        said = self._namespace(topic.namespace).policies.get("retention_policies")
        found = said if isinstance(said, dict) else {}
        return int(found.get("retentionTimeInMinutes", 0)), int(found.get("retentionSizeInMB", 0))

    def namespace_policies(self, namespace: str) -> Mapping[str, object]:
        self._cluster.faults.before("admin.namespace_policies")
        return dict(self._namespace(namespace).policies)

    def _namespace(self, name: str) -> Namespace:
        with self._cluster.lock:
            found = self._cluster.state.namespaces.get(name)
        if found is None:
            raise NamespaceNotFoundError(f"namespace {name} does not exist")
        return found

    def topics(self, namespace: str) -> list[TopicName]:
        return [topic for topic in self.all_topics(namespace) if not topic.is_system]

    def all_topics(self, namespace: str) -> list[TopicName]:
        self._cluster.faults.before("admin.topics")
        self._namespace(namespace)
        with self._cluster.lock:
            return sorted(t for t in self._cluster.state.topics if t.namespace == namespace)

    def topic_info(self, topic: TopicName) -> TopicInfo:
        self._cluster.faults.before("admin.topic_info", topic)
        with self._cluster.lock:
            found = self._cluster.state.topic(topic)
            return TopicInfo(
                created=found.created,
                ledgers=LedgerList(tuple(LedgerSpan(x.id, x.last) for x in found.ledgers)),
                sizes=self._cluster.state.sizes(found),
                last_confirmed=found.last_confirmed(),
                terminated=found.terminated,
                offloaded=frozenset(x.id for x in found.ledgers if x.offloaded),
                subscriptions=frozenset(found.cursors),
                may_have_trimmed=found.removed > 0,
                shadow_of=self.shadows.get(topic, ""),
            )

    # Tests that need these bring their own: `tests.fakes.topic_states`, `tests.fakes.idle_cluster`.

    def known_topics(self, namespace: str) -> KnownTopics:
        return KnownTopics(frozenset(self.all_topics(namespace)))

    def cursors(self, topic: TopicName) -> TopicCursors:
        raise NotImplementedError

    def subscription_traits(self, topic: TopicName) -> Mapping[str, SubscriptionTraits]:
        raise NotImplementedError

    def use(self, topic: TopicName) -> TopicUse:
        raise NotImplementedError

    def partitions(self, topic: TopicName) -> int | None:
        raise NotImplementedError

    def schema_version(self, topic: TopicName) -> int | None:
        raise NotImplementedError

    def schemas(self, topic: TopicName) -> tuple[TopicSchema, ...]:
        raise NotImplementedError

    def applied_retention(self, topic: TopicName) -> object:
        raise NotImplementedError

    def trim(self, topic: TopicName) -> None:
        raise NotImplementedError

    def shadow_source(self, topic: TopicName) -> str:
        self._cluster.faults.before("admin.shadow_source", topic)
        return self.shadows.get(topic, "")

    def offloaded_copies(self, topic: TopicName) -> Mapping[int, str]:
        self._cluster.faults.before("admin.offloaded_copies", topic)
        with self._cluster.lock:
            return {x.id: x.offloaded_as for x in self._cluster.state.topic(topic).ledgers if x.offloaded}

    def pin_token(self, topic: TopicName, subscription: str) -> str | None:
        """From the properties that the subscription was made with."""
        self._cluster.faults.before("admin.pin_token", topic)
        with self._cluster.lock:
            cursors = self._cluster.state.topic(topic).cursors
            stats = {name: {"subscriptionProperties": dict(cursor.properties)} for name, cursor in cursors.items()}
        return pin_token({"subscriptions": stats}, subscription) if keeps_properties(self.broker_version) else None

    def shows_pin_tokens(self) -> bool:
        return self.runtime_configuration().get(LAZY_CURSORS) != "true"

    def unload(self, topic: TopicName) -> None:
        lost = self._cluster.faults.before("admin.unload", topic)
        with self._cluster.lock:
            self._cluster.state.unload(self._cluster.state.topic(topic))
        _answer(None, lost)

    def set_offload_threshold(self, namespace: str, size: int, seconds: int | None = None) -> None:
        self._cluster.faults.before("admin.set_offload_threshold")
        policies = self._namespace(namespace).policies
        own = policies.setdefault("offload_policies", {})
        assert isinstance(own, dict)
        own["managedLedgerOffloadThresholdInBytes"] = size
        if seconds is not None:
            own["managedLedgerOffloadThresholdInSeconds"] = seconds

    def offload_policies(self, topic: TopicName) -> Mapping[str, object]:
        """The topic's own over the namespace's over the brokers'."""
        self._cluster.faults.before("admin.offload_policies", topic)
        own = self._namespace(topic.namespace).policies.get("offload_policies")
        brokers = {name: value for name, value in self._cluster.configuration.items() if "Offload" in name}
        of_topic = self.offload_of_topics.get(TopicName.parse(topic.partitioned_name), {})
        return {**brokers, **(own if isinstance(own, dict) else {}), **of_topic}

    def loaded_by(self, topic: TopicName) -> str | None:
        self._cluster.faults.before("admin.loaded_by", topic)
        return self.loaded.get(topic)

    def loaded_topics(self) -> Mapping[str, str]:
        self._cluster.faults.before("admin.loaded_topics")
        return {str(topic): broker for topic, broker in self.loaded.items()}


class MemoryPins:
    """`Pins` of the in-memory cluster. Close it, or a second holder finds its topics busy, as in Pulsar."""

    def __init__(self, cluster: ClusterCore, subscription: str = "__offloader") -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._held: set[TopicName] = set()
        self._loads: dict[TopicName, Load] = {}  # with which we are connected
        self._subscribed: dict[TopicName, int] = {}  # how often, in all

    def open(self, topic: TopicName) -> TopicEnd:
        lost = self._cluster.faults.before("pins.open", topic)
        with self._cluster.lock:
            end = self._end(topic)
            self._held.add(topic)
        return _answer(end, lost)

    def holds(self, topic: TopicName) -> bool:
        with self._cluster.lock:
            return topic in self._held

    def groups(self, topics: list[TopicName]) -> list[list[TopicName]]:
        return [topics] if topics else []

    def ends(self, topics: list[TopicName]) -> dict[TopicName, TopicEnd | Exception]:
        """A fault of the call `pins.ends` concerns one topic."""
        return {topic: self._try_end(topic) for topic in topics}

    def take_disconnected(self) -> list[TopicName]:
        with self._cluster.lock:
            gone = [topic for topic, load in self._loads.items() if load != self._load(topic)]
        for topic in gone:
            del self._loads[topic]
        return gone

    def acknowledge(self, topic: TopicName, position: Position) -> None:
        lost = self._cluster.faults.before("pins.acknowledge", topic)
        with self._cluster.lock:
            cursor = self._cursor(topic)
            self._cluster.state.acknowledge(self._cluster.state.topic(topic), cursor, (position.ledger, position.entry))
        _answer(None, lost)

    def release(self, topic: TopicName) -> None:
        lost = self._cluster.faults.before("pins.release", topic)
        with self._cluster.lock:
            self._cursor(topic)
            self._cluster.state.unsubscribe(self._cluster.state.topic(topic), self._subscription)
        self._loads.pop(topic, None)
        _answer(None, lost)  # who does not know that it is gone may subscribe again
        self._held.discard(topic)

    def drop(self, topic: TopicName) -> None:
        with self._cluster.lock:
            self._held.discard(topic)
            self._let_go(topic)

    def close(self) -> None:
        for topic in list(self._held):
            self.drop(topic)

    def _try_end(self, topic: TopicName) -> TopicEnd | Exception:
        try:
            lost = self._cluster.faults.before("pins.ends", topic)
            with self._cluster.lock:
                if topic not in self._held:
                    raise FatalError(f"{topic}: the pin is not held; open it first")
                return _answer(self._end(topic), lost)
        except Exception as error:  # noqa: BLE001 (a failure is a value)
            return error

    def _end(self, topic: TopicName) -> TopicEnd:
        cursor = self._cursor(topic)
        found = self._cluster.state.topic(topic)
        return TopicEnd(found.last_readable(), cursor.mark, self._subscribed[topic])

    def _cursor(self, topic: TopicName) -> MemoryCursor:
        properties = {PIN_PROPERTY: self._cluster.state.new_token()}  # as `BrokerPins`: another one each time
        before = self._cluster.state.topic(topic).cursors.get(self._subscription)
        if before is None or before.owner is not self or self._loads.get(topic) != self._load(topic):
            self._subscribed[topic] = self._subscribed.get(topic, 0) + 1
        cursor = self._cluster.state.topic(topic).cursor(self._subscription, self, properties)
        if cursor.owner not in (None, self):
            raise SubscriptionBusyError(f"{topic}: another consumer holds the subscription {self._subscription}")
        cursor.owner = self
        self._loads[topic] = self._load(topic)
        return cursor

    def _load(self, topic: TopicName) -> Load:
        found = self._cluster.state.topics.get(topic)
        return None if found is None else (found.created, found.load)

    def _let_go(self, topic: TopicName) -> None:
        self._loads.pop(topic, None)
        found = self._cluster.state.topics.get(topic)
        cursor = found.cursors.get(self._subscription) if found else None
        if cursor is not None and cursor.owner is self:
            cursor.owner = None


class MemorySource:
    """`EntrySource` of the in-memory cluster."""

    def __init__(self, cluster: ClusterCore) -> None:
        self._cluster = cluster

    def open(
        self,
        topic: TopicName,
        ledger: int,
        entry: int,
        *,
        max_bytes: int,
        extent: Extent | None = None,
    ) -> EntryReader:
        self._cluster.faults.before("source.open", topic)
        with self._cluster.lock:
            return MemoryReader(self._cluster, topic, (ledger, entry), max_bytes)

    def explain(self, topic: TopicName, missing: EntryRange, *, limit: int) -> tuple[tuple[Gap, ...], int | None]:
        """From what was produced, one look-up an entry."""
        self._cluster.faults.before("source.explain", topic)
        gaps: list[Gap] = []
        with self._cluster.lock:
            entries = next((x.entries for x in self._cluster.state.topic(topic).ledgers if x.id == missing.ledger), [])
            for entry in missing.ids:
                kind = entries[entry].hidden if entry < len(entries) else None
                if kind is None or entry - missing.first >= limit:
                    return tuple(gaps), entry
                _extend(gaps, kind, missing.ledger, entry)
        return tuple(gaps), None


class MemoryReader:
    """Delivers as a broker does: hidden entries are left out, an open transaction stops it, trimmed ledgers are
    skipped."""

    def __init__(self, cluster: ClusterCore, topic: TopicName, start: tuple[int, int], max_bytes: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._next = start
        self._max_bytes = max_bytes
        found = cluster.state.topic(topic)
        self._incarnation, self._load = found.created, found.load

    def read(self, timeout: float) -> list[RawEntry]:
        lost = self._cluster.faults.before("source.read", self._topic)
        with self._cluster.lock:
            return _answer(self._available(), lost)

    def close(self) -> None:
        """Nothing to give back."""

    def _available(self) -> list[RawEntry]:
        found: list[RawEntry] = []
        room, count = self._max_bytes, self._cluster.state.batch()
        living = self._living()
        for (ledger, entry), stored in living.placed(self._next):
            if stored.pending or len(found) == count or (found and len(stored.data) > room):
                break
            data = self._cluster.state.data_of(living, (ledger, entry), stored)
            if data is None and not self._cluster.state.skips_unreadable():
                break
            self._next = (ledger, entry + 1)
            if stored.readable and data is not None:
                found.append(RawEntry(ledger, entry, data))
                room -= len(data)
        return found

    def _living(self) -> MemoryTopic:
        topic = self._cluster.state.topic(self._topic)
        if (topic.created, topic.load) != (self._incarnation, self._load):
            raise TopicMovedError(f"{self._topic} was unloaded")
        return topic


def _extend(gaps: list[Gap], kind: GapKind, ledger: int, entry: int) -> None:
    if gaps and gaps[-1].kind == kind:
        gaps[-1] = Gap(ledger, gaps[-1].first, entry + 1, kind=kind)
    else:
        gaps.append(Gap(ledger, entry, entry + 1, kind=kind))


def _answer(value: T, lost: Exception | None) -> T:
    if lost is not None:
        raise lost
    return value
