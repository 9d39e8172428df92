"""A cluster in memory with a ledger whose entries no list has, and an archive into which they are copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.archive.archive import rescued_ledger
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.topic import ArchivedTopic
from offloader.bookkeeper.entry_codec import digest_for, encode, master_key
from offloader.bookkeeper.model import LedgerMetadata, LedgerState, StoredEntry
from offloader.lifecycle.ledgers.evidence import LedgerVerdict
from offloader.lifecycle.rescue.evidence import RescueEvidence
from offloader.lifecycle.rescue.objects import RescueCuts
from offloader.lifecycle.rescue.rescue import DoneRescue, LedgerRescue
from offloader.metadata.rescue_log import Rescues
from offloader.metadata.root import open_root
from offloader.model import SegmentLayout
from offloader.ports.object_store import ObjectStore
from offloader.storage.memory import MemoryStore
from tests.format.support import checksummed
from tests.lifecycle.deletion.cluster import DAY, NAMESPACE, JudgingScanner, OrphanCluster
from tests.lifecycle.ledgers.world import data_of

KEPT = 7
CUTS = RescueCuts(SegmentLayout(part_size=600, block_size=300, index_step=100), object_size=1500)
PUBLISHED = 1_795_269_600_000


def messages(number: int, size: int = 20) -> list[bytes]:
    """Entries of one message each, with payloads `value 0`, …"""
    return [
        checksummed(
            MessageMetadata(producer_name="p", sequence_id=n, publish_time=PUBLISHED + n),
            f"value {n}".encode().ljust(size),
        )
        for n in range(number)
    ]


class KeptCluster(OrphanCluster):
    """Metadata of topic `t` were rolled back: its list has ledgers 3 and 9, and no more 7, which has entries."""

    def __init__(self, entries: Sequence[bytes] | None = None, *, seed: int = 1) -> None:
        super().__init__(seed)
        self.entries = messages(40) if entries is None else list(entries)
        self.with_entries(KEPT, "t", self.entries)
        for ledger in (3, 9):
            self.ledger(ledger, "t")
        self.list_ledgers("t", 3, 9)
        self.network.now += DAY + 1

    def with_entries(self, ledger: int, topic: str, entries: Sequence[bytes], **custom: bytes) -> None:
        """Closed, each entry on two of three bookies."""
        metadata = self.create(ledger, 3, 2, 2, custom=data_of(f"{NAMESPACE}/persistent/{topic}") | custom)
        length = 0
        for number, payload in enumerate(entries):
            length += len(payload)
            stored = encode(StoredEntry(ledger, number, number - 1, length, payload), digest_for(metadata))
            for bookie in metadata.write_set(number):
                self.bookies[bookie].memory.add(ledger, number, stored, master_key(b""))
        closed = replace(metadata, state=LedgerState.CLOSED, last_entry=len(entries) - 1, length=length)
        self.metadata.cluster.put_ledger(ledger, closed)

    def lose(self, *entries: int, ledger: int = KEPT) -> dict[str, dict[int, bytes]]:
        """No bookie has these any more. Returns what they had."""
        return {
            bookie: {entry: kept.memory.ledgers[ledger].stored.pop(entry) for entry in entries
                     if entry in kept.memory.ledgers[ledger].stored}
            for bookie, kept in self.bookies.items()
        }  # fmt: skip

    def goes_for_good(self, bookie: str) -> None:
        """It runs no more, and somebody has taken it out of service."""
        self.bookies[bookie].up = False
        self.metadata.cluster.delete_cookie(bookie)

    def only_on(self, ledger: int, *bookies: str) -> set[int]:
        """The entries that no other bookie has."""
        write_set = self.metadata_of(ledger).write_set
        return {n for n in range(len(self.entries)) if set(write_set(n)) <= set(bookies)}

    def metadata_of(self, ledger: int) -> LedgerMetadata:
        return self.client()[1].read(ledger).metadata

    def bring_back(self, lost: dict[str, dict[int, bytes]], ledger: int = KEPT) -> None:
        for bookie, stored in lost.items():
            self.bookies[bookie].memory.ledgers[ledger].stored.update(stored)

    def verdict(self, ledger: int = KEPT) -> LedgerVerdict:
        scan = JudgingScanner(self.metadata.nodes, lambda: self.now_ms).scan({ledger})
        (found,) = scan.verdicts
        return found


@dataclass
class Archive:
    """Where rescued entries lie. Its clock is the cluster's."""

    cluster: KeptCluster = field(default_factory=KeptCluster)
    store: MemoryStore = field(default_factory=MemoryStore)
    numbers: count = field(default_factory=count)

    def __post_init__(self) -> None:
        self.store.backing.clock_ms = lambda: self.cluster.now_ms
        open_root(self.store, "memory", lambda: "root")

    def uuid(self) -> str:
        return f"00000000-0000-4000-8000-{next(self.numbers):012d}"

    def rescues(self, store: ObjectStore | None = None) -> Rescues:
        return Rescues(store or self.store, "memory")

    def evidence(self, store: ObjectStore | None = None) -> RescueEvidence:
        return RescueEvidence(lambda: self.rescues(store))

    def rescue(
        self, ledger: int = KEPT, *, store: ObjectStore | None = None, with_losses: bool = False,
        advance: Callable[[int], None] = lambda _: None, bookies=None, gone: Sequence[str] = (),
    ) -> DoneRescue:  # fmt: skip
        """One process that rescues a ledger."""
        ours, tree = self.cluster.client()
        phase = LedgerRescue(
            self.rescues(store), tree, bookies or ours, self.uuid, lambda: self.cluster.now_ms, "tester",
            with_losses=with_losses, gone=frozenset(gone), cuts=CUTS, read_ahead=4000,
        )  # fmt: skip
        return phase.run(self.cluster.verdict(ledger), advance)

    def read(self, ledger: int = KEPT) -> ArchivedTopic:
        """As readers have it."""
        return ArchivedTopic(Stores.of(self.store), TopicRecords(rescued_ledger(self.store, ledger)))

    def entries(self, ledger: int = KEPT) -> list[bytes]:
        return [entry.data for entry in self.read(ledger).entries()]

    def all_keys(self) -> list[str]:
        return [key for key, _ in self.store.list("_rescued/")]
