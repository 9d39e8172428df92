"""Threads that share memory never hold more of it than there is, and none waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from offloader.bridge.memory_room import MemoryRoom


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
