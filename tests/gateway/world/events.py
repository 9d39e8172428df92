"""Virtual time: what happens when. Event loops and threads of a world run only when it is their turn."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import selectors
import threading
from collections.abc import Callable
from typing import Any

Happening = Callable[[], None]


class Events:
    """What is to come. Nothing happens at the same time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.happened = 0
        self._queue: list[tuple[float, int, Happening]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, happening: Happening) -> None:
        self.at(self.now + seconds, happening)

    def at(self, when: float, happening: Happening) -> None:
        heapq.heappush(self._queue, (max(when, self.now), next(self._numbers), happening))

    def run(self, until: float, done: Callable[[], bool] = lambda: False) -> bool:
        """Whether it was done before."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, happening = heapq.heappop(self._queue)
            self.happened += 1
            happening()
            if done():
                return True
        self.now = until
        return done()


class _NothingToWaitFor(selectors.SelectSelector):
    def select(self, timeout: float | None = None) -> list[Any]:
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that is run for one turn at a time: `wake` is told when it has something to do."""

    def __init__(self, events: Events, wake: Callable[[float], None]) -> None:
        self._events, self._wake = events, wake
        super().__init__(_NothingToWaitFor())

    def time(self) -> float:
        return self._events.now

    def call_soon(self, *args: Any, **more: Any) -> asyncio.Handle:
        self._wake(self._events.now)
        return super().call_soon(*args, **more)

    def call_at(self, when: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        self._wake(when)
        return super().call_at(when, *args, **more)

    def turn(self) -> None:
        """Whatever is due."""
        super().call_soon(self.stop)
        self.run_forever()


class KilledError(BaseException):
    """The process of a thread is gone."""


class Baton:
    """Work in a thread of its own, which runs only while `go` waits for it. On its way it may `rest`."""

    here = threading.local()

    def __init__(self, work: Callable[[], Any]) -> None:
        self.over = False
        self.killed = False
        self.answer: Any = None
        self.error: BaseException | None = None
        self.seconds = 0.0
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def go(self) -> None:
        """On to where it rests for `seconds`, or to its end."""
        self._mine.release()
        self._theirs.acquire()
        if self.over:
            self._thread.join()

    def rest(self, seconds: float) -> None:
        if self.killed:
            raise KilledError
        self.seconds = seconds
        self._theirs.release()
        self._mine.acquire()
        if self.killed:
            raise KilledError

    def _run(self, work: Callable[[], Any]) -> None:
        self._mine.acquire()
        Baton.here.baton = self
        try:
            if not self.killed:
                self.answer = work()
        except BaseException as error:  # noqa: BLE001 (whoever waits for it raises it)
            self.error = error
        self.over = True
        self._theirs.release()
