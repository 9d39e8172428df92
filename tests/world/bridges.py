"""Brokers that read bridged ledgers, as a part of the world: every step of the bridge takes its time, and so the
process may be killed, or stand still, before and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from offloader.bridge.driver.parts import BridgeParts
from offloader.bridge.log import BridgeLog
from offloader.bridge.transfer import BridgeStores
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryBacking, MemoryStore
from tests.bridge.driver.simulation import BUCKET, BridgedSimulation, BrokerRecords, Kills, MemoryBuilds, MemorySwaps
from tests.fakes.cluster import MemoryCluster
from tests.world.brokers import Brokers
from tests.world.scheduler import MS


class _Steps(Kills):
    """Where a simulation counts the calls, time goes on here."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__()
        self._brokers = brokers

    def here(self) -> None:
        self.calls += 1
        self._brokers.scheduler.sleep(self._brokers.scheduler.rng.choice([5, 50, 500, 3_000]) * MS)


class _Records(BrokerRecords):
    """An unload goes by the world's brokers, which tell it."""

    def __init__(self, brokers: Brokers) -> None:
        super().__init__(cast("BridgedSimulation", self))
        self.brokers = brokers
        self.cluster: MemoryCluster = brokers.cluster

    def unload(self, topic: TopicName) -> None:
        self.unloads.append((topic, self.brokers.scheduler.now // MS))
        self.brokers.unload(topic)
        known = self.contexts.get(topic, {})
        for ledger in self.cluster.state.topic(topic).ledgers:
            ledger.offloaded = ledger.id in known
        self.behind.discard(topic)


class Bridges:
    """What all processes of a world have in common: the brokers' bucket, and their records."""

    def __init__(self, brokers: Brokers) -> None:
        self.bucket = MemoryStore(MemoryBacking(), url=BUCKET)
        self.records = _Records(brokers)
        self._brokers = brokers

    def parts(self, store: ObjectStore, new_uuid: Callable[[], str]) -> BridgeParts:
        """As one process has them."""
        steps = _Steps(self._brokers)
        builds = MemoryBuilds(BridgeStores(store, self.bucket), steps)
        swaps = MemorySwaps(self.records, steps, self.bucket)
        return BridgeParts(BridgeLog(store, new_uuid), lambda: builds, lambda: swaps, lambda _: BUCKET)
