"""What Python's threads are made of, over the scheduler: locks, conditions, threads, clocks.

Everything else (events, queues, futures, pools) is Python's own, built on these, and is simulated with them; so the
product runs as it is, whatever it waits with. Threads that are no actors of a world keep the real things, also while a
world lives.
"""

from __future__ import annotations

import concurrent.futures.thread as pools
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import _base as futures
from contextlib import contextmanager
from math import ceil
from typing import Any, TypeVar

from tests.world.scheduler import EPOCH, SECOND, Actor, Killed, current, here

T = TypeVar("T")

_real_lock = threading.Lock
_real_rlock = threading.RLock
_real_thread = threading.Thread
_real_monotonic_ns, _real_time, _real_time_ns = time.monotonic_ns, time.time, time.time_ns
_real_current_thread = threading.current_thread


class Lock:
    """`threading.Lock`. Who waits is woken at random."""

    def __init__(self) -> None:
        self._locked = False
        self._waiting: list[Actor] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = here.actor
        if me is None:
            return self._take_outside(blocking)
        if not self._locked and blocking and not me.process.dead:
            scheduler = me.scheduler
            scheduler.free_locks -= 1
            if not scheduler.free_locks:
                scheduler.preempt()
        if self._locked and not self._comes_free(me, blocking, timeout):
            return False
        self._locked = True
        return True

    __enter__ = acquire

    def release(self, *_: object) -> None:
        if not self._locked:
            if (me := here.actor) is not None and me.process.dead:
                return
            raise RuntimeError("release unlocked lock")
        self._locked = False
        waiting = self._waiting
        if waiting:
            scheduler = waiting[0].scheduler
            number = int(scheduler.rng.random() * len(waiting)) if len(waiting) > 1 else 0
            scheduler.wake(waiting.pop(number))

    __exit__ = release

    def locked(self) -> bool:
        return self._locked

    def is_owned(self) -> bool:
        """By somebody: who it is, a lock does not know."""
        return self._locked

    def give_up(self) -> object:
        """As often as it is held; what `take_back` takes."""
        self.release()
        return None

    def take_back(self, _: object) -> None:
        """As it was held before."""
        self.acquire()

    def _comes_free(self, me: Actor, blocking: bool, timeout: float) -> bool:
        until = None if timeout < 0 else me.scheduler.now + ceil(timeout * SECOND)
        while self._locked:
            if not blocking:
                return False
            if me.process.dead:
                raise Killed
            self._waiting.append(me)
            woken = me.scheduler.park(until)
            if not woken:
                if me in self._waiting:
                    self._waiting.remove(me)
                if self._locked:
                    return False
        return True

    def _at_fork_reinit(self) -> None:
        self._locked = False

    def _take_outside(self, blocking: bool) -> bool:
        """When the world is over, its objects may be looked at, but nobody is left to wait for."""
        if self._locked and blocking:
            raise RuntimeError("this lock is held for ever: its world has ended")
        taken, self._locked = not self._locked, True
        return taken


class RLock(Lock):
    """`threading.RLock`."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = here.actor or _real_current_thread()
        if self._owner is me:
            self._count += 1
            return True
        if not Lock.acquire(self, blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    __enter__ = acquire

    def release(self, *_: object) -> None:
        if self._owner is not (here.actor or _real_current_thread()):
            if (me := here.actor) is not None and me.process.dead:
                return
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = None
            Lock.release(self)

    __exit__ = release

    def is_owned(self) -> bool:
        return self._owner is (here.actor or _real_current_thread())

    def give_up(self) -> object:
        saved, self._count, self._owner = (self._count, self._owner), 0, None
        Lock.release(self)
        return saved

    def take_back(self, saved: Any) -> None:
        Lock.acquire(self)
        self._count, self._owner = saved

    def _at_fork_reinit(self) -> None:
        self._locked, self._owner, self._count = False, None, 0


class Condition:
    """`threading.Condition`: Python's own makes a lock for each wait. Who has waited longest is woken first."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self._waiting: deque[Actor] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        if not self._lock.is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        me = _actor()
        self._waiting.append(me)
        saved = self._lock.give_up()
        try:
            if timeout is None or timeout > 0:
                me.scheduler.park(None if timeout is None else me.scheduler.now + ceil(timeout * SECOND))
        finally:
            notified = me not in self._waiting
            if not notified:
                self._waiting.remove(me)
            self._lock.take_back(saved)
        return notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        until = None if timeout is None else _actor().scheduler.now + ceil(timeout * SECOND)
        while not (result := predicate()):
            left = None if until is None else (until - _actor().scheduler.now) / SECOND
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        if not self._lock.is_owned():
            raise RuntimeError("cannot notify on un-acquired lock")
        for _ in range(min(n, len(self._waiting))):
            actor = self._waiting.popleft()
            actor.scheduler.wake(actor)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))

    def _at_fork_reinit(self) -> None:
        self._lock._at_fork_reinit()
        self._waiting.clear()


class SimpleQueue:
    """`queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = Condition(Lock())

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout if block else 0):
                raise queue.Empty
            return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Thread:
    """`threading.Thread` of an actor's process."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., Any] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, dict(kwargs or {})
        self.name = name or "thread"
        self.daemon = bool(daemon)
        self._actor: Actor | None = None
        self._number = _actor().scheduler.number()

    def __hash__(self) -> int:
        return self._number

    @property
    def ident(self) -> int | None:
        return None if self._actor is None else id(self._actor)

    def start(self) -> None:
        me = _actor()
        self._actor = me.scheduler.spawn(_plain(self.name), me.process, self.run)
        self._actor.thread = self

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        me, actor = current(), self._actor
        if me is None or actor is None or actor.ended:
            return
        me.scheduler.join(actor, None if timeout is None else me.scheduler.now + ceil(timeout * SECOND))

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.ended


class _World:
    """What `current_thread` says of an actor that is no thread of the product's."""

    name = "world"
    daemon = False


def _plain(name: str) -> str:
    """Python numbers its pools across all worlds of a process: a seed must give the same names again."""
    return "pool" if name.startswith("ThreadPoolExecutor") else name.rpartition("_")[0] or name


def _actor() -> Actor:
    me = current()
    assert me is not None
    return me


def _chosen(simulated: Any, real: Any) -> Any:
    """A maker of things: simulated ones for actors, real ones for everybody else."""

    def make(*args: Any, **kwargs: Any) -> Any:
        return (real if here.actor is None else simulated)(*args, **kwargs)

    return make


def _current_thread() -> Any:
    me = current()
    return _real_current_thread() if me is None else (me.thread or _World)


class _ThreadMeta(type):
    """`threading.Thread(…)`, also where it is subclassed while a world lives."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (Thread, _real_thread))


class _EitherThread(_real_thread, metaclass=_ThreadMeta):
    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return (_real_thread if current() is None else Thread)(*args, **kwargs)


def _steady(real: Callable[[], float]) -> Callable[[], float]:
    def read() -> float:
        me = here.actor
        return real() if me is None else me.scheduler.now / SECOND

    return read


def _steady_ns() -> int:
    me = here.actor
    return _real_monotonic_ns() if me is None else me.scheduler.now


def _wall() -> float:
    me = here.actor
    return _real_time() if me is None else (EPOCH + me.scheduler.now + me.process.clock_offset) / SECOND


def _wall_ns() -> int:
    me = here.actor
    return _real_time_ns() if me is None else EPOCH + me.scheduler.now + me.process.clock_offset


def _sleep(real: Callable[[float], None]) -> Callable[[float], None]:
    def sleep(seconds: float) -> None:
        me = current()
        if me is None:
            real(seconds)
        else:
            me.scheduler.sleep(int(seconds * SECOND))

    return sleep


def _numbered(future: Any) -> int:
    """Sets of futures are in the order in which these were made, and not in that of their addresses."""
    if not hasattr(future, "number"):
        me = current()
        future.number = id(future) if me is None else me.scheduler.number()
    number: int = future.number
    return number


_PLACES: list[tuple[Any, str, Any]] = [
    (threading, "Lock", _chosen(Lock, _real_lock)),
    (threading, "_allocate_lock", _chosen(Lock, _real_lock)),
    (threading, "RLock", _chosen(RLock, _real_rlock)),
    (threading, "Condition", _chosen(Condition, threading.Condition)),
    (threading, "Thread", _EitherThread),
    (threading, "current_thread", _current_thread),
    (threading, "_time", _steady(time.monotonic)),
    (queue, "time", _steady(time.monotonic)),
    (queue, "SimpleQueue", _chosen(SimpleQueue, queue.SimpleQueue)),
    (time, "monotonic", _steady(time.monotonic)),
    (time, "monotonic_ns", _steady_ns),
    (time, "perf_counter", _steady(time.perf_counter)),
    (time, "time", _wall),
    (time, "time_ns", _wall_ns),
    (time, "sleep", _sleep(time.sleep)),
    (futures.Future, "__hash__", _numbered),
    (futures, "id", _numbered),
    (pools, "_global_shutdown_lock", None),  # a real one would be held while an actor waits
]


def _unraisable(what: Any) -> None:
    """A generator of a killed process may be closed by nobody in particular."""
    if not issubclass(what.exc_type, Killed):
        sys.__unraisablehook__(what)


@contextmanager
def simulated() -> Iterator[None]:
    """While this lasts, actors get simulated locks, threads and clocks."""
    before = [(place, name, getattr(place, name, None)) for place, name, _ in _PLACES]
    for place, name, replacement in _PLACES:
        setattr(place, name, Lock() if replacement is None else replacement)
    unraisable, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        for place, name, original in before:
            setattr(place, name, original if name != "id" else id)
