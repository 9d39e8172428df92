"""The threads that wait for the store. Each kind of work has its own: none waits for another kind's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Workers:
    """`read`: of entries; `know`: of catalogs and lists; `cursor`: of acknowledgements; `flush`: of what is written."""

    def __init__(self, threads: int = 8) -> None:
        self._pools = [ThreadPoolExecutor(threads, f"gateway-{name}") for name in ("read", "know", "cursor", "flush")]

    async def read(self, work: Callable[[], T]) -> T:
        return await self._in(0, work)

    async def know(self, work: Callable[[], T]) -> T:
        return await self._in(1, work)

    async def cursor(self, work: Callable[[], T]) -> T:
        return await self._in(2, work)

    async def flush(self, work: Callable[[], T]) -> T:
        return await self._in(3, work)

    def close(self) -> None:
        """Waits for what is under way."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)

    async def _in(self, number: int, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pools[number], work)
