"""What the driver has built of ledgers, in whichever bucket a round names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from offloader.bridge.building import BuildSettings, BuiltLedger, LedgerBuilder
from offloader.bridge.ledger_sources import MOST_FILLED, LedgerBookies
from offloader.bridge.memory_room import MemoryRoom
from offloader.bridge.piece_tasks import BridgeStores
from offloader.bridge.piece_workers import PieceWorkers
from offloader.bridge.removing import remove_objects
from offloader.errors import UncommittedLedgerError
from offloader.metadata.bridges import BridgedLedger, UnbridgedLedger
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore


@dataclass
class LedgerBuilds:
    """`Builds` of `driver/bridge_ports.py`. `archive`: the application's store. `open_bucket`: by its URL; whoever made
    that closes it."""

    archive: ObjectStore
    open_bucket: Callable[[str], ObjectStore]
    bookies: LedgerBookies | None
    workers: PieceWorkers
    settings: BuildSettings
    _memory: MemoryRoom = field(default_factory=lambda: MemoryRoom(MOST_FILLED))  # of all buckets together
    _builders: dict[str, LedgerBuilder] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def build(self, topic: TopicName, ledger: BridgedLedger, bucket: str) -> BridgedLedger | UnbridgedLedger:
        """See `Builds`, `LedgerBuilder`. Raises UncommittedLedgerError where the catalog does not have all of it."""
        with self._lock:
            if bucket not in self._builders:
                stores = BridgeStores(self.archive, self.open_bucket(bucket))
                self._builders[bucket] = LedgerBuilder(stores, self.bookies, self.workers, self.settings, self._memory)
            builder = self._builders[bucket]
        found = builder.build(topic, ledger)
        if isinstance(found, BuiltLedger):
            return found.ledger
        if isinstance(found, UnbridgedLedger):
            return found
        raise UncommittedLedgerError(
            f"{topic}: ledger {ledger.ledger} is not bridged yet: entry {found.expected} is not committed"
        )

    def discard(self, bucket: str, ledgers: Iterable[BridgedLedger]) -> None:
        """See `Builds`."""
        remove_objects(self.open_bucket(bucket), ledgers)
