"""The simulated application with brokers that read bridged ledgers: the builder, and records of brokers in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from offloader.bridge.building import LedgerBuilder
from offloader.bridge.core.coverage import UncommittedLedger
from offloader.bridge.core.rounds import BridgedLedger, BridgeRound, BridgeState, UnbridgedLedger
from offloader.bridge.core.swap_steps import LeftOut, SwapEnd, SwapOutcome
from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.driver.progress import is_wanted, progress_of
from offloader.bridge.driver.status import behind, bridge_word
from offloader.bridge.driver.steps import BridgeSteps
from offloader.bridge.log import BridgeLog
from offloader.bridge.objects import broken_objects, remove_objects
from offloader.bridge.swapping import StaleOrFine
from offloader.bridge.transfer import BridgeStores
from offloader.config.bridging import Bridge
from offloader.config.levels import TopicPolicy
from offloader.config.policies import Policies
from offloader.errors import UncommittedLedgerError
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation, is_on
from tests.truth import truth_of_cluster

TOPIC = TopicName.parse("public/default/t")
BUCKET = "s3://brokers"


class KilledError(BaseException):
    """The process is gone, in the middle of a call."""


@dataclass
class Kills:
    """The process dies at the `at`-th of the calls by which the bridge reaches something."""

    at: int = -1
    calls: int = 0

    def here(self) -> None:
        self.calls += 1
        if self.calls == self.at + 1:
            raise KilledError


@dataclass
class BrokerRecords:
    """What Pulsar's metadata say of ledgers, and what a loaded topic knows of it."""

    sim: BridgedSimulation
    contexts: dict[TopicName, dict[int, str]] = field(default_factory=dict)
    unloads: list[tuple[TopicName, int]] = field(default_factory=list)
    behind: set[TopicName] = field(default_factory=set)  # rewritten, and not unloaded since
    delivers: bool = True
    refuses: str = ""
    stuck: frozenset[TopicName] = frozenset()  # each try costs an unload, and nothing comes of it
    stuck_behind: int | None = None  # rounds with ledgers behind this one come to no end

    def put(self, topic: TopicName, ledger: int, uuid: str) -> None:
        found = self.contexts.setdefault(topic, {})
        assert found.get(ledger, uuid) == uuid, f"ledger {ledger} has another context"
        found[ledger] = uuid
        self.behind.add(topic)

    def take(self, topic: TopicName, ledger: int) -> None:
        self.contexts.get(topic, {}).pop(ledger, None)
        self.behind.add(topic)

    def newest(self, topic: TopicName) -> int:
        """The ledger that an unload closes."""
        return self.sim.cluster.admin.topic_info(topic).ledgers.spans[-1].ledger

    def unload(self, topic: TopicName) -> None:
        self.unloads.append((topic, self.sim.clock.now))
        self.sim.cluster.unload(topic)
        known = self.contexts.get(topic, {})
        state = self.sim.cluster.state.topic(topic)
        for ledger in state.ledgers:
            ledger.offloaded = ledger.id in known
        self.behind.discard(topic)


@dataclass
class MemoryBuilds:
    """The real builder, without bookies; may die before and after each ledger."""

    stores: BridgeStores
    kills: Kills

    def build(self, topic: TopicName, ledger: BridgedLedger, bucket: str) -> BridgedLedger | UnbridgedLedger:
        assert bucket == BUCKET
        self.kills.here()
        answer = LedgerBuilder(self.stores).build(topic, ledger)
        self.kills.here()
        if isinstance(answer, UncommittedLedger):
            raise UncommittedLedgerError(str(answer))
        return answer if isinstance(answer, UnbridgedLedger) else answer.ledger

    def discard(self, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        assert bucket == BUCKET
        self.kills.here()
        remove_objects(self.stores.bucket, ledgers)
        self.kills.here()


@dataclass
class MemorySwaps:
    """Does at once what the real one does by and by, and may die between any two of its calls."""

    records: BrokerRecords
    kills: Kills
    bucket: ObjectStore

    def bridge(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome:
        if not ours():
            return SwapOutcome(SwapEnd.OVERTAKEN)
        if topic in self.records.stuck:
            self.records.unload(topic)
            return SwapOutcome(SwapEnd.LATER, "others keep changing its record", unloads=1)
        stuck = self.records.stuck_behind
        if stuck is not None and under_way.ledgers[-1].ledger > stuck:
            return SwapOutcome(SwapEnd.LATER, "brokers are offloading it by themselves")
        if self.records.refuses:
            return SwapOutcome(SwapEnd.REFUSED, self.records.refuses)
        broken = tuple(x for x in under_way.ledgers if self.bucket.stat(data_key(x.uuid, x.ledger)) is None)
        if broken:
            return SwapOutcome(SwapEnd.BUILD, "an object is not there", broken=broken)
        listed = self.records.sim.cluster.admin.topic_info(topic).ledgers
        self.kills.here()
        left = {each.ledger: LeftOut.OFF_THE_LIST for each in under_way.ledgers if each.ledger not in listed}
        for each in under_way.ledgers:
            if each.ledger not in left:
                self.records.put(topic, each.ledger, each.uuid)
        self.kills.here()
        newest = self.records.newest(topic)
        self.records.unload(topic)
        self.kills.here()
        if not self.records.delivers:
            return SwapOutcome(SwapEnd.WITHDRAW, "the broker delivers nothing", unloads=1)
        return SwapOutcome(SwapEnd.PROVEN, ledgers=under_way.ledgers, left_out=left, unloads=1, closed=newest)

    def withdraw(self, topic: TopicName, under_way: BridgeRound, ours: Callable[[], bool]) -> SwapOutcome:
        if not ours():
            return SwapOutcome(SwapEnd.OVERTAKEN)
        self.kills.here()
        for each in under_way.ledgers:
            self.records.take(topic, each.ledger)
        self.kills.here()
        self.records.unload(topic)
        self.kills.here()
        return SwapOutcome(SwapEnd.WITHDRAWN, unloads=1)

    def begun(self, topic: TopicName) -> dict[int, str]:
        return {}

    def missing(self, topic: TopicName, ledgers: Iterable[BridgedLedger]) -> dict[int, bool]:
        known, cluster = self.records.contexts.get(topic, {}), self.records.sim.cluster
        listed = {each.id: not each.vanished for each in cluster.state.topic(topic).ledgers}
        return {x.ledger: listed[x.ledger] for x in ledgers if x.ledger in listed and x.ledger not in known}

    def contexts(self, topic: TopicName) -> dict[int, str] | None:
        return dict(self.records.contexts.get(topic, {})) if self.records.sim.cluster.exists(topic) else None

    def broken(self, topic: TopicName, bucket: str, ledgers: Iterable[BridgedLedger]) -> dict[int, str]:
        assert bucket == BUCKET
        return broken_objects(self.records.sim.cluster.admin, self.bucket, topic, ledgers)

    def look(self, topic: TopicName) -> StaleOrFine:
        known = {each.id for each in self.records.sim.cluster.state.topic(topic).ledgers if each.offloaded}
        if known == self.records.contexts.get(topic, {}).keys():
            return StaleOrFine.FINE
        self.records.unload(topic)
        return StaleOrFine.REPAIRED


class Readable(Protocol):
    """Who says whether stock brokers are to read topics."""

    @property
    def readable(self) -> bool: ...


class ReadablePolicies:
    """Those of the file, with `brokerReadable` switched on or off from outside."""

    def __init__(self, policies: Policies, sim: Readable) -> None:
        self._policies = policies
        self._sim = sim

    def of(self, topic: TopicName, namespace_property: Any = None) -> TopicPolicy:
        return replace(self._policies.of(topic, namespace_property), broker_readable=self._sim.readable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policies, name)


@dataclass
class BridgedSimulation(Simulation):
    readable: bool = True
    refusal: str = ""  # why no round is begun
    no_room: str = ""  # why the record takes no more contexts
    bridge: Bridge = field(default_factory=lambda: Bridge.model_validate({"minInterval": "0s", "maxInterval": "0s"}))
    former: BridgedSimulation | None = None  # whose brokers these are, too
    bucket: ObjectStore | None = None  # the brokers'

    def __post_init__(self) -> None:
        self.kills_at = Kills()
        self.records: BrokerRecords = self.former.records if self.former else BrokerRecords(self)
        self.bucket = self.former.bucket if self.former else self.bucket or MemoryStore(MemoryBacking(), url=BUCKET)
        self.cluster_of = self.former
        super().__post_init__()

    def start(self) -> None:
        super().start()
        policies = ReadablePolicies(self.config.policies, self)
        object.__setattr__(self.context, "policies", policies)

    def check_resting(self) -> None:
        """What is told of how far brokers' reading is behind is what counting all topics gives."""
        super().check_resting()
        lags = self.bridging._lags
        for name, topic in self.registry.topics.items():
            if not is_on(lags._agenda, name):
                known = (bridge_word(topic), *behind(topic)) if is_wanted(topic) else None
                assert lags._lags.get(name) == known, f"the lag of {name} is an old one"
        assert sum(lags._ledgers.values()) == sum(lag.ledgers for lag in lags._lags.values())
        assert +lags._words == Counter(lag.word for lag in lags._lags.values())

    @property
    def steps(self) -> BridgeSteps:
        """Those of the present process."""
        steps = self.bridging._steps
        assert steps is not None
        return steps

    def bridge_settings(self) -> Bridge:
        return self.bridge

    def bridge_parts(self) -> BridgeParts:
        swaps = MemorySwaps(self.records, self.kills_at, self.bucket)
        builds = MemoryBuilds(BridgeStores(self.store, self.bucket), self.kills_at)
        return BridgeParts(
            BridgeLog(self.store, self.uuid),
            lambda: builds,
            lambda: swaps,
            lambda _: BUCKET,
            lambda _: self.refusal,
            lambda *_: self.no_room,
        )

    # What tests ask

    def state(self, topic: TopicName = TOPIC) -> BridgeState | None:
        return BridgeLog(self.store, self.uuid).load(topic).state

    def bridged(self, topic: TopicName = TOPIC) -> list[int]:
        """The ledgers of all finished rounds, oldest first."""
        found = [state.finished for state in BridgeLog(self.store, self.uuid).finished_rounds(topic)]
        return [each.ledger for one in reversed(found) if one is not None for each in one.ledgers]

    def closed(self, topic: TopicName = TOPIC) -> list[int]:
        """Listed, closed, not empty."""
        return [
            each.ledger for each in self.cluster.admin.topic_info(topic).ledgers.spans if each.last not in (None, -1)
        ]

    def until_bridged(self, rounds: int = 60, step_ms: int = 30_000) -> None:
        """Rounds until every closed ledger is."""
        for _ in range(rounds):
            self.clock.now += step_ms
            self.round()
            self.batch()
            if all(self.bridging.is_done(t, t.catalog.end) for t in self.registry.topics.values()) and self.at_rest():
                return
        topics = {str(t.name): (progress_of(t), t.catalog.end) for t in self.registry.topics.values()}
        raise AssertionError(f"not bridged after {rounds} rounds: {topics}")

    def check(self, *topics: TopicName) -> None:
        """All that must always hold, and that nothing is left of what came to nothing."""
        of = topics or (TOPIC,)
        truths = {topic: replace(truth_of_cluster(self.cluster, topic), readable=self.readable) for topic in of}
        check_invariants(self.store, truths)
        assert not self.records.behind, "a record was rewritten, and its topic not unloaded"
        named = set()
        for topic in of:
            for state in BridgeLog(self.store, self.uuid).finished_rounds(topic):
                for each in state.finished.ledgers if state.finished else ():
                    named |= {data_key(each.uuid, each.ledger), index_key(each.uuid, each.ledger)}
        for topic, contexts in self.records.contexts.items():
            if topic in of:
                there = {key for key, _ in self.bucket.list()}
                assert all(data_key(uuid, ledger) in there for ledger, uuid in contexts.items())
        if all(state is None or (state.round or state.leaving) is None for state in map(self.state, of)):
            assert {key for key, _ in self.bucket.list()} == named
