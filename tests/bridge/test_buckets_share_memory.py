"""Ledgers that are built in several buckets of brokers at a time share the memory for what bookies give."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from offloader.bridge.ledger_sources import LedgerBookies
from offloader.bridge.piece_workers import PieceThreads
from offloader.metadata.bridges import BridgedLedger
from offloader.offload.bridge_builds import LedgerBuilds
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.bridge.support import LEAST_PART, SETTINGS, BridgeWorld

TOGETHER = 0.3  # seconds that one waits for another to come, who must not


class Counted:
    """A metadata store that is asked by whoever holds the memory; `most`: by how many at a time."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._lock, self._another = threading.Lock(), threading.Event()
        self._inside = self.most = 0

    def read(self, ledger: int) -> Any:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
            if self._inside > 1:
                self._another.set()
        self._another.wait(TOGETHER)
        with self._lock:
            self._inside -= 1
        return self._real.read(ledger)


def test_two_buckets_do_not_hold_twice_as_much() -> None:
    world = BridgeWorld(gaps=[(10, 12)])
    bookies, metadata = world.cluster.client()
    counted = Counted(metadata)
    buckets = {url: MemoryStore(min_part_size=LEAST_PART) for url in ("s3://a", "s3://b")}
    builds = LedgerBuilds(world.store, buckets.__getitem__, LedgerBookies(counted, bookies), PieceThreads(1), SETTINGS)  # type: ignore[arg-type]
    unsaid = replace(world.wanted, length=0)  # nobody has said how long it is: it may take all of the memory
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda url: builds.build(TOPIC, unsaid, url), buckets))
    assert all(isinstance(one, BridgedLedger) and one.filled == 3 for one in found)
    assert counted.most == 1
