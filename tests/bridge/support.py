"""A topic of three ledgers in an archive, its bookies, and the brokers' bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import LedgerState, StoredEntry
from offloader.bridge.building import BuildSettings, BuiltLedger, LedgerBuilder
from offloader.bridge.core.coverage import UncommittedLedger
from offloader.bridge.core.rounds import BridgedLedger, BridgeVerdict, UnbridgedLedger
from offloader.bridge.sources import LedgerBookies
from offloader.bridge.transfer import BridgeStores, PieceThreads
from offloader.format.ledger_account import account_ledger
from offloader.format.v1 import decode_ledger_index
from offloader.metadata.stock_keys import data_key, index_key
from offloader.model import SegmentLayout
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, gap, message
from tests.bridge.core.stock_reader import StockReader
from tests.examples import tries
from tests.fakes.bookkeeper import SimulatedCluster
from tests.fakes.faulty import StoreFault
from tests.format.support import Stored

WORLDS = tries("OFFLOADER_BRIDGE_WORLDS", 4, 12)
LEAST_PART = 1_000  # of the brokers' bucket; parts of segments have some 2,000 bytes
SETTINGS = BuildSettings("memory", copy_size=4 * LEAST_PART, least_part=LEAST_PART)
CUTS = SegmentLayout(part_size=2_000, block_size=700, index_step=300)
UUID = "0f0f0f0f-1111-4222-8333-444444444444"
LEDGER = 7


def entries_of(ledger: int, count: int, seed: int = 0) -> list[Stored]:
    """Messages of many sizes."""
    rng = Random(f"{ledger} {seed}")
    return [Stored(ledger, entry, message("x" * rng.choice((0, 5, 60, 200, 900)))) for entry in range(count)]


@dataclass
class BridgeWorld:
    """Ledger 7 lies in several segments of the archive, the first and last of which hold neighbours, too. What is in
    `gaps` (ranges of entries) only bookies have."""

    seed: int = 0
    count: int = 40
    gaps: Sequence[tuple[int, int]] = ()
    borders: Sequence[int] = (15, 28)
    in_bookies: bool = True
    as_brokers_wrote_it: bool = False  # a segment that is a copy of what a broker has offloaded
    store: MemoryStore = field(default_factory=MemoryStore)
    bucket: MemoryStore = field(default_factory=lambda: MemoryStore(min_part_size=LEAST_PART))

    def __post_init__(self) -> None:
        self.entries = entries_of(LEDGER, self.count, self.seed)
        self.archive = Archive(store=self.store)
        self.archive.claim(LEDGER - 1)
        before, after = entries_of(LEDGER - 1, 6), entries_of(LEDGER + 1, 5)
        if self.as_brokers_wrote_it:
            self.archive.add(before, closed={LEDGER - 1: 5}, cuts=CUTS)
            self.archive.add_copy(self.entries, block_size=1_200, cuts=CUTS)
        borders = [] if self.as_brokers_wrote_it else [0, *self.borders, self.count]
        for first, end in pairwise(borders):
            held = [each for each in self.entries[first:end] if not self._is_missing(each.entry)]
            gaps = [gap(LEDGER, a, b) for x, y in self.gaps if (a := max(x, first)) <= (b := min(y, end - 1))]
            around = (before if first == 0 else []), (after if end == self.count else [])
            closed = {LEDGER - 1: 5} if first == 0 else {}
            self.archive.add([*around[0], *held, *around[1]], gaps, closed=closed, cuts=CUTS)
        self.cluster = SimulatedCluster(1, 3, prompt=True)
        if self.in_bookies:
            self.put_in_bookies()

    @property
    def length(self) -> int:
        return sum(len(each.data) for each in self.entries)

    @property
    def wanted(self) -> BridgedLedger:
        """As its round names it."""
        return BridgedLedger(LEDGER, self.count - 1, self.length, UUID)

    def put_in_bookies(self) -> None:
        metadata = self.cluster.create(LEDGER, 3, 2, 2)
        length = 0
        for each in self.entries:
            length += len(each.data)
            entry = StoredEntry(LEDGER, each.entry, each.entry - 1, length, each.data)
            for bookie in metadata.write_set(each.entry):
                memory = self.cluster.bookies[bookie].memory
                memory.add(LEDGER, each.entry, encode(entry, digest_for(metadata)), master_key(b""))
        closed = replace(metadata, state=LedgerState.CLOSED, last_entry=self.count - 1, length=length)
        self.cluster.metadata.cluster.put_ledger(LEDGER, closed)

    def builder(self, archive: ObjectStore | None = None, bucket: ObjectStore | None = None) -> LedgerBuilder:
        """A process."""
        bookies, metadata = self.cluster.client()
        stores = BridgeStores(archive or self.store, bucket or self.bucket)
        return LedgerBuilder(stores, LedgerBookies(metadata, bookies), PieceThreads(1), SETTINGS)

    def build(self) -> BuiltLedger:
        """By a process that nothing happens to."""
        return built(self.builder().build(TOPIC, self.wanted))

    def check(self, found: BuiltLedger) -> None:
        """Both objects are what a broker can read, and have every entry byte for byte."""
        data, _ = self.bucket.read(data_key(UUID, LEDGER))
        index, _ = self.bucket.read(index_key(UUID, LEDGER))
        account = account_ledger([data], LEDGER, decode_ledger_index(index, LEDGER))
        assert (account.entries, account.payload) == (self.count, self.length)
        for seeks_first in (True, False):
            reader = StockReader(data, index, self.count - 1, seeks_first=seeks_first)
            assert reader.read(0, self.count - 1) == [each.data for each in self.entries]
        assert (found.ledger.size, found.ledger.length) == (len(data), self.length)
        assert [key for key, _ in self.bucket.list()] == [data_key(UUID, LEDGER), index_key(UUID, LEDGER)]
        assert list(self.bucket.list_uploads()) == []

    def _is_missing(self, entry: int) -> bool:
        return any(first <= entry <= last for first, last in self.gaps)


def built(found: BuiltLedger | UnbridgedLedger | UncommittedLedger) -> BuiltLedger:
    assert isinstance(found, BuiltLedger), found
    return found


def damage_of(found: BuiltLedger | UnbridgedLedger | UncommittedLedger) -> str:
    """What is wrong with what the archive has of a ledger, in words."""
    assert isinstance(found, UnbridgedLedger), found
    assert found.verdict is BridgeVerdict.DAMAGED
    return found.why


def dying_after(calls: int) -> list[StoreFault]:
    """The process is killed: of everything behind so many calls nothing happens."""
    return [StoreFault("*", after=calls, times=1 << 30)]
