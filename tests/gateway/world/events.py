"""Virtual time: what happens when. Event loops and threads of a world run only when it is their turn."""

from __future__ import annotations

import _thread
import asyncio
import heapq
import itertools
import selectors
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any, ClassVar, TypeVarTuple

Happening = Callable[[], None]
Args = TypeVarTuple("Args")


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

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        self._wake(self._events.now)
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._wake(when)
        return super().call_at(when, callback, *args, context=context)

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
        self._work = work
        self._begun = False
        self._mine, self._theirs = _taken(), _taken()

    def go(self) -> None:
        """On to where it rests for `seconds`, or to its end."""
        if self._begun:
            self._mine.release()
        else:
            self._begun = True
            _Carrier.carry(self)
        self._theirs.acquire()

    def rest(self, seconds: float) -> None:
        if self.killed:
            raise KilledError
        self.seconds = seconds
        self._theirs.release()
        self._mine.acquire()
        if self.killed:
            raise KilledError

    def run(self) -> _thread.LockType:
        """All of it, in the thread that carries it. What lets `go` return then."""
        Baton.here.baton = self
        try:
            if not self.killed:
                self.answer = self._work()
        except BaseException as error:  # noqa: BLE001 (whoever waits for it raises it)
            self.error = error
        self.over = True
        return self._theirs


class _Carrier:
    """A thread of the operating system that carries one baton after another, of any world: starting one costs more than
    a hand-over."""

    idle: ClassVar[list[_Carrier]] = []

    def __init__(self) -> None:
        self._mine = _taken()
        self._baton: Baton | None = None
        _thread.start_new_thread(self._run, ())

    @classmethod
    def carry(cls, baton: Baton) -> None:
        carrier = cls.idle.pop() if cls.idle else cls()
        carrier._baton = baton
        carrier._mine.release()

    def _run(self) -> None:
        while True:
            self._mine.acquire()
            baton, self._baton = self._baton, None
            assert baton is not None
            waiting = baton.run()
            del baton
            self.idle.append(self)
            waiting.release()


def _taken() -> _thread.LockType:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock
