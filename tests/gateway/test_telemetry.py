"""A gateway is alive as long as its loop turns, whatever the store does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from offloader.gateway import telemetry as telemetry_module
from offloader.gateway.telemetry import Telemetry
from offloader.gateway.topics.workers import Workers
from offloader.ports.object_store import Stat
from offloader.storage.forwarding import ForwardingStore
from offloader.storage.memory import MemoryStore
from tests.gateway.topics.served import until


class SilentStore(ForwardingStore):
    """Does not answer until it is told to, and then with what nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked, self.answers = 0, threading.Event()

    def stat(self, key: str) -> Stat | None:
        self.asked += 1
        self.answers.wait(20)
        raise KeyError("healthz")


def test_the_loop_turns_while_the_store_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        store, workers, telemetry, ticks = SilentStore(), Workers(1), Telemetry(), list[int]()
        monkeypatch.setattr(telemetry.metrics.health, "tick", lambda: ticks.append(1))
        looking = asyncio.create_task(telemetry.keep_looking(store, workers))
        await until(lambda: store.asked == 1)
        before = len(ticks)
        try:
            await until(lambda: len(ticks) > before + 3 * telemetry_module.LOOK)
            assert store.asked == 1, "one look at a time"
        finally:
            store.answers.set()
        await until(lambda: store.asked > 2)
        assert "healthz" in telemetry.metrics.health.ready().text
        looking.cancel()
        workers.close()

    monkeypatch.setattr(telemetry_module, "TICK", 0.001)
    asyncio.run(work())
