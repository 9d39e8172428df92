"""The threads that wait for the store. Each kind of work has its own: none waits for another kind's."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
KINDS = ("read", "know", "cursor", "flush", "live")
LEFT = 2  # threads of a kind that rounds leave to whoever waits


class Workers:
    """`read`: of entries; `know`: of catalogs and lists; `cursor`: of acknowledgements; `flush`: of what is written;
    `live`: of brokers. `worked`: is told of everything that has ended: its kind, and seconds since it was asked for."""

    def __init__(self, threads: int = 8, worked: Callable[[str, float], None] = lambda _kind, _seconds: None) -> None:
        self.under_way = Counter(dict.fromkeys(KINDS, 0))
        self._worked = worked
        self._rounds = {kind: asyncio.Semaphore(max(threads - LEFT, 1)) for kind in KINDS}
        self._pools = {kind: ThreadPoolExecutor(threads, f"gateway-{kind}") for kind in KINDS}

    async def read(self, work: Callable[[], T]) -> T:
        return await self._in("read", work)

    async def know(self, work: Callable[[], T]) -> T:
        return await self._in("know", work)

    async def cursor(self, work: Callable[[], T]) -> T:
        return await self._in("cursor", work)

    async def flush(self, work: Callable[[], T]) -> T:
        return await self._in("flush", work)

    async def live(self, work: Callable[[], T]) -> T:
        return await self._in("live", work)

    async def in_rounds(self, kind: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do what is done again and again for everything that is served, however much that is: a client that waits for
        the same kind of work has its turn."""
        async with self._rounds[kind]:
            return await work()

    def close(self) -> None:
        """Waits for what is under way."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)

    async def _in(self, kind: str, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        self.under_way[kind] += 1
        try:
            return await loop.run_in_executor(self._pools[kind], work)
        finally:
            self.under_way[kind] -= 1
            self._worked(kind, loop.time() - asked)
