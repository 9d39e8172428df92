"""The threads that wait for the store, for names. Each kind of work has its own: none waits for another
kind's. Of one kind a few work at a time; what hangs does not count among them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from offloader.errors import StoreUnavailableError

T = TypeVar("T")
KINDS = ("read", "know", "cursor", "flush", "match", "names", "files")
FEW = {"match": 2, "files": 1}  # threads of kinds that take a processor, or little
LEFT = 2  # threads of a kind that rounds leave to whoever waits
HANGS = 10.0  # seconds in a thread, after which work counts no more among what is done at a time
MOST_HANGING = 56  # of a kind; beyond that nothing more is begun


class Workers:
    """`read`: of entries; `know`: of catalogs and lists; `cursor`: of acknowledgements; `flush`: of what is written;
    `match`: of patterns; `names`: of other gateways' addresses; `files`: of keys and certificates.
    `worked`: is told of everything that has ended: its kind, and seconds since it was asked for. On the loop."""

    def __init__(
        self,
        threads: int = 8,
        worked: Callable[[str, float], None] = lambda _kind, _seconds: None,
        *,
        hangs: float = HANGS,
    ) -> None:
        self.under_way = Counter(dict.fromkeys(KINDS, 0))
        self._worked = worked
        self._hangs = hangs
        self._rounds = {kind: asyncio.Semaphore(max(threads - LEFT, 1)) for kind in KINDS}
        self._kinds = {kind: _Threads(kind, min(threads, FEW.get(kind, threads)), hangs) for kind in KINDS}

    async def read(self, work: Callable[[], T]) -> T:
        return await self._in("read", work)

    async def know(self, work: Callable[[], T]) -> T:
        return await self._in("know", work)

    async def cursor(self, work: Callable[[], T]) -> T:
        return await self._in("cursor", work)

    async def flush(self, work: Callable[[], T]) -> T:
        return await self._in("flush", work)

    async def match(self, work: Callable[[], T]) -> T:
        return await self._in("match", work)

    async def names(self, work: Callable[[], T]) -> T:
        return await self._in("names", work)

    async def files(self, work: Callable[[], T]) -> T:
        return await self._in("files", work)

    async def in_rounds(self, kind: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do what is done again and again for everything that is served, however much that is: a client that waits for
        the same kind of work has its turn. What hangs does not count."""
        await self._rounds[kind].acquire()
        place = _Place(self._rounds[kind], self._hangs)
        try:
            return await work()
        finally:
            place.give_back()

    def oldest(self) -> dict[str, float]:
        """For how many seconds the oldest work of each kind has been in a thread."""
        return {kind: threads.oldest for kind, threads in self._kinds.items()}

    def close(self) -> None:
        """Nothing more is begun. Nobody waits for what is under way."""
        for threads in self._kinds.values():
            threads.close()

    async def ended(self, within: float) -> int:
        """How much of what was under way has not ended within so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for threads in self._kinds.values():
                    await threads.rest.wait()
        return sum(threads.working for threads in self._kinds.values())

    async def _in(self, kind: str, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        self.under_way[kind] += 1
        try:
            return await self._kinds[kind].do(work)
        finally:
            self.under_way[kind] -= 1
            self._worked(kind, loop.time() - asked)


class _Place:
    """Among those that work at a time; given back after some seconds in any case, once it `may_be_late`."""

    def __init__(
        self, places: asyncio.Semaphore, seconds: float, may_be_late: Callable[[], bool] = lambda: True
    ) -> None:
        self._places = places
        self._seconds = seconds
        self._may_be_late = may_be_late
        self.began = asyncio.get_running_loop().time()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._is_late)
        self.is_held = True

    def give_back(self) -> None:
        """It is free."""
        self._timer.cancel()
        if self.is_held:
            self.is_held = False
            self._places.release()

    def _is_late(self) -> None:
        if self._may_be_late():
            self.give_back()
        else:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._is_late)


class _Threads:
    """Of one kind."""

    def __init__(self, kind: str, count: int, hangs: float) -> None:
        self.rest = asyncio.Event()
        self.rest.set()
        self._hangs = hangs
        self._places = asyncio.Semaphore(count)
        self._pool = ThreadPoolExecutor(count + MOST_HANGING, f"gateway-{kind}")
        self._working: dict[_Place, None] = {}  # the oldest first
        self._is_closed = False

    @property
    def working(self) -> int:
        """How many of them."""
        return len(self._working)

    @property
    def oldest(self) -> float:
        """Seconds."""
        return next((asyncio.get_running_loop().time() - place.began for place in self._working), 0.0)

    async def do(self, work: Callable[[], T]) -> T:
        await self._places.acquire()
        if self._is_closed:
            self._places.release()
            raise StoreUnavailableError("the gateway stops")
        place = _Place(self._places, self._hangs, self._may_hang)
        self._working[place] = None
        self.rest.clear()
        loop = asyncio.get_running_loop()

        def ended(_: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is over: nobody waited for this
                loop.call_soon_threadsafe(self._ended, place)

        try:
            future = self._pool.submit(work)
        except BaseException:
            self._ended(place)
            raise
        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, place: _Place) -> None:
        place.give_back()
        del self._working[place]
        if not self._working:
            self.rest.set()

    def _may_hang(self) -> bool:
        """Whether one more may, and another one begin."""
        return sum(not place.is_held for place in self._working) < MOST_HANGING
