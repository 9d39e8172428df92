"""A ledger that BookKeeper has no more is read from the brokers' copy: each entry once, and nothing made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offloader.bookkeeper.bookie_source import BookKeeperSource
from offloader.errors import DamagedObjectError, DataLostError, LedgerNotFoundError
from offloader.metadata import stock_keys
from offloader.model import TopicName
from offloader.offload.worker.offloaded_source import OffloadedSource
from offloader.ports.entry_source import Extent, RawEntry
from offloader.state.managed_ledger import ManagedLedger, OffloadContext
from offloader.storage.memory import MemoryStore
from tests.fakes.cluster import MemoryCluster
from tests.fakes.cluster_ledgers import MemoryBookies, MemoryLedgers
from tests.offload.stock_offloader import closed_ledgers, offload

T = TopicName.parse("public/default/t")
_HALF = (1 << 63) - 1


class SomeGone(MemoryLedgers):
    """BookKeeper has deleted some ledgers; Pulsar's record has their copies."""

    def __init__(self, cluster: MemoryCluster, gone: set[int], copies: dict[int, str]) -> None:
        super().__init__(cluster)
        self._gone = gone
        self._copies = copies

    def read(self, ledger: int):
        if ledger in self._gone:
            raise LedgerNotFoundError(f"ledger {ledger} is not there")
        return super().read(ledger)

    def managed_ledger(self, topic: TopicName) -> ManagedLedger:
        found = super().managed_ledger(topic)
        copies = {ledger: OffloadContext(uuid, complete=True) for ledger, uuid in self._copies.items()}
        return replace(found, ledgers=tuple(one._replace(context=copies.get(one.ledger)) for one in found.ledgers))


class World:
    def __init__(self, gone: int = 2) -> None:
        self.cluster, self.bucket = MemoryCluster(seed=1), MemoryStore()
        self.cluster.create(T)
        self.cluster.add_subscription(T, "mine")
        for _ in range(4):
            for number in range(150):
                self.cluster.produce(T, b"%d" % number * 40)
            self.cluster.roll(T)
        self.closed = closed_ledgers(self.cluster, T)
        self.gone = self.closed[1 : 1 + gone]
        self.keys = {ledger: offload(self.cluster, self.bucket, T, ledger) for ledger in self.closed[:3]}
        copies = {ledger: key[:36] for ledger, key in self.keys.items()}
        stored = BookKeeperSource(SomeGone(self.cluster, set(self.gone), copies), MemoryBookies(self.cluster))
        self.source = OffloadedSource(stored, self.bucket)
        self.extent = Extent(self.cluster.admin.topic_info(T).ledgers, (self.closed[-1], 149))

    def read(self, ledger: int, entry: int, max_bytes: int = 10_000) -> list[RawEntry]:
        reader, found = self.source.open(T, ledger, entry, max_bytes=max_bytes, extent=self.extent), []
        empty = 0
        while empty < 3:
            some = reader.read(0.001)
            empty = 0 if some else empty + 1
            assert sum(len(one.data) for one in some) <= max(max_bytes, max((len(one.data) for one in some), default=0))
            found += some
        reader.close()
        return found

    def behind(self, ledger: int, entry: int) -> list[RawEntry]:
        every = [RawEntry(e.ledger, e.entry, e.data) for e in self.cluster.entries(T)]
        return [one for one in every if (ledger, entry) <= (one.ledger, one.entry) <= self.extent.last]


@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize(("number", "entry"), [(0, 0), (0, 149), (1, 0), (1, 1), (1, 73), (1, 149), (2, 148), (3, 2)])
@pytest.mark.parametrize("max_bytes", [100, 10_000])
def test_each_entry_arrives_once_wherever_it_is(gone: int, number: int, entry: int, max_bytes: int) -> None:
    world = World(gone)
    ledger = world.closed[number]
    assert world.read(ledger, entry, max_bytes) == world.behind(ledger, entry)


def test_what_is_in_neither_place_is_lost() -> None:
    world = World()
    key = world.keys[world.gone[0]]
    world.bucket.delete([key, f"{key}-index"])
    with pytest.raises(DataLostError):
        world.read(world.closed[0], 0)


@pytest.mark.parametrize("at", [20, 300, 5000, -1])
def test_a_copy_that_is_damaged_is_damage_and_never_other_entries(at: int) -> None:
    world = World(1)
    (gone,) = world.gone
    key = stock_keys.data_key(world.keys[gone][:36], gone)
    data = world.bucket.read(key)[0]
    world.bucket.put(key, data[:at] if at < 0 else data[:at] + b"\xee\xff" * 8 + data[at + 16 :])
    told, found = "", []
    try:
        found = world.read(gone, 0)
    except DamagedObjectError as error:
        told = str(error)
    places = [(one.ledger, one.entry) for one in found]
    # an entry's own checksum tells what its bytes are worth: whoever reads raw entries checks that
    assert key in told or places == [(e.ledger, e.entry) for e in world.behind(gone, 0)]
