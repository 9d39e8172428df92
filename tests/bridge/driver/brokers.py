"""The simulated application with everything of a bridge but sockets: the builder, the swapper, the proof through
brokers in memory that keep their lists where Pulsar does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from offloader.bridge.core.swap_steps import SwapLimits
from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.log import BridgeLog
from offloader.bridge.proof import BrokerProof
from offloader.bridge.swapping import Swapper, SwapWorld
from offloader.bridge.transfer import BridgeStores
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import TopicName
from tests.bridge.driver.simulation import BUCKET, TOPIC, BridgedSimulation, Kills, MemoryBuilds
from tests.fakes.recorded_cluster import RecordedCluster
from tests.fakes.recorded_state import record_path
from tests.invariants import check_invariants
from tests.truth import truth_of_cluster


class Dying:
    """Whatever it stands for, until the process dies before or after one of these calls."""

    def __init__(self, inner: Any, kills: Kills, calls: tuple[str, ...]) -> None:
        self._inner = inner
        self._kills = kills
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._guarded(found) if name in self._calls else found

    def _guarded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*arguments: Any, **named: Any) -> Any:
            self._kills.here()
            answer = call(*arguments, **named)
            self._kills.here()
            return answer

        return guarded


@dataclass
class BrokerSimulation(BridgedSimulation):
    former: BrokerSimulation | None = None
    was_off: bool = False  # then the pin went further than what is bridged
    theirs: set[str] = field(default_factory=set)  # uuids of what brokers have offloaded by themselves

    def made_cluster(self) -> RecordedCluster:
        made = RecordedCluster(seed=self.seed, entries_per_ledger=self.entries_per_ledger)
        assert self.bucket is not None
        made.buckets["brokers"] = self.bucket
        return made

    @property
    def brokers(self) -> RecordedCluster:
        assert isinstance(self.cluster, RecordedCluster)
        return self.cluster

    def bridge_parts(self) -> BridgeParts:
        bucket = self.bucket
        assert bucket is not None
        builds = MemoryBuilds(BridgeStores(self.store, bucket), self.kills_at)
        world = SwapWorld(
            admin=Dying(self.brokers.admin, self.kills_at, ("unload", "topic_info")),
            nodes=Dying(self.brokers.nodes, self.kills_at, ("get", "set")),
            record_path=record_path,
            open_bucket=lambda _: bucket,
            proof=BrokerProof(self.cluster.source, 0.01, lambda: self.clock() / 1000),
            has_ledger=self.brokers.has_entries,
        )
        swapper = Swapper(world, now=lambda: self.clock.now, wait=self.wait, limits=SwapLimits(tries=12))
        return BridgeParts(BridgeLog(self.store, self.uuid), lambda: builds, lambda: swapper, lambda _: BUCKET)

    def wait(self, seconds: float) -> None:
        self.clock.now += int(seconds * 1000)

    def trim(self, topic: TopicName = TOPIC) -> None:
        """Brokers look what may go, of BookKeeper's copies, too."""
        self.brokers.recorded.now_ms = max(self.brokers.recorded.now_ms, self.clock.now)
        self.brokers.check_retention(topic)

    def readable_entries(self, topic: TopicName = TOPIC) -> list[tuple[int, int, bytes]]:
        """What a stock reader gets, from the first listed ledger on."""
        first = self.cluster.admin.topic_info(topic).ledgers.spans[0].ledger
        reader = self.cluster.source.open(topic, first, 0, max_bytes=2**20)
        found: list[tuple[int, int, bytes]] = []
        while some := reader.read(0):
            found += [(one.ledger, one.entry, one.data) for one in some]
        return found

    def true_entries(self, topic: TopicName = TOPIC) -> list[tuple[int, int, bytes]]:
        """What was written into listed ledgers."""
        listed = {span.ledger for span in self.cluster.admin.topic_info(topic).ledgers.spans}
        return [
            (one.ledger, one.entry, one.data)
            for one in self.cluster.entries(topic)
            if one.ledger in listed and one.delivered
        ]

    def check(self, *topics: TopicName) -> None:
        """Stock readers get everything that is listed; and all that must always hold."""
        of = topics or (TOPIC,)
        truths = {
            topic: replace(truth_of_cluster(self.cluster, topic), readable=self.readable and not self.was_off)
            for topic in of
        }
        check_invariants(self.store, truths)
        for topic in of:
            assert self.readable_entries(topic) == self.true_entries(topic)

    def left_over(self, *topics: TopicName) -> set[str]:
        """Objects that no finished round names, where no round is under way."""
        named = set()
        for topic in topics or (TOPIC,):
            for state in BridgeLog(self.store, self.uuid).finished_rounds(topic):
                for each in state.finished.ledgers if state.finished else ():
                    named |= {data_key(each.uuid, each.ledger), index_key(each.uuid, each.ledger)}
        return {key for key, _ in self.bucket.list()} - named
