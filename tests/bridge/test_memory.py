"""Threads that share memory never hold more of it than there is, and none waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from offloader.bridge.building import LedgerBuilds
from offloader.bridge.core.rounds import BridgedLedger
from offloader.bridge.sources import LedgerBookies, MemoryRoom
from offloader.bridge.transfer import PieceThreads
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC
from tests.bridge.support import LEAST_PART, SETTINGS, BridgeWorld


def test_no_more_is_held_than_there_is_and_everybody_gets_a_turn() -> None:
    room, lock, held, most = MemoryRoom(10), threading.Lock(), [0], [0]

    def take(size: int) -> None:
        with room.taken(size):
            with lock:
                held[0] += min(size, 10)
                most[0] = max(most[0], held[0])
            with lock:
                held[0] -= min(size, 10)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, [3, 0, 10, 7, 99, 1] * 20))
    assert 0 < most[0] <= 10
    assert held == [0]


def test_who_fails_gives_it_back() -> None:
    room = MemoryRoom(10)
    with pytest.raises(ValueError, match="no"), room.taken(10):
        raise ValueError("no")
    with room.taken(10):
        pass


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
    builds = LedgerBuilds(world.store, buckets.__getitem__, LedgerBookies(counted, bookies), PieceThreads(1), SETTINGS)
    unsaid = replace(world.wanted, length=0)  # nobody has said how long it is: it may take all of the memory
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda url: builds.build(TOPIC, unsaid, url), buckets))
    assert all(isinstance(one, BridgedLedger) and one.filled == 3 for one in found)
    assert counted.most == 1
