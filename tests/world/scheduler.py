"""One seeded scheduler with virtual time for all threads of all processes of a simulated world.

Actors are real Python threads of which exactly one runs at a time: it hands the baton on where it parks. Time moves
only when nobody can run. What is random comes from the seed, so a seed gives the same run again. Times are nanoseconds
since the world began.
"""

from __future__ import annotations

import _thread
import heapq
import itertools
import math
import random
import sys
import threading
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

MS = 1_000_000
SECOND = 1_000 * MS
EPOCH = 1_700_000_000 * SECOND  # what the clocks of the world showed when it began
MOST_STEPS = 3_000_000
MOST_STEPS_AT_ONCE = 20_000  # without time going on: a loop that waits for nothing
PREEMPTIONS = 0.02  # how often a thread loses the processor where it takes a lock that is free
_NOT_PREEMPTED = math.log1p(-PREEMPTIONS)


class _Here(threading.local):
    actor: Actor | None = None


here = _Here()


class Killed(BaseException):
    """The process of this thread is gone. No code of the product may catch it."""


class StuckError(AssertionError):
    """Nobody can go on, or somebody goes on for ever without waiting."""


def current() -> Actor | None:
    """The actor that runs in the calling thread; None: a thread outside of all worlds."""
    return here.actor


@dataclass(eq=False)
class Process:
    """Some actors that share a fate and a clock."""

    name: str
    clock_offset: int = 0  # its wall clock may be wrong
    dead: bool = False
    paused: bool = False
    paused_at: int = 0
    stood_still: int = 0  # for how long altogether
    held: list[Actor] = field(default_factory=list)  # could run, were the process not paused
    at_end: list[Callable[[], None]] = field(default_factory=list)  # what others notice of its end


class Actor:
    """One thread of a process. `thread` is what the product knows it as."""

    def __init__(self, scheduler: Scheduler, name: str, process: Process, work: Callable[[], Any]) -> None:
        self.scheduler = scheduler
        self.name = name
        self.label = name.encode()
        self.process = process
        self.work = work
        self.thread: object = None
        self.ended = False
        self.result: Any = None
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.started = False
        self.ticket = 0
        self.parked = False
        self.woken = False
        self.ident = 0
        self.waiting: list[Actor] = []  # for its end
        self.killer: Actor | None = None


class _Carrier:
    """A thread of the operating system that carries one actor after another, of any world: starting one costs more than
    a hand-over."""

    idle: ClassVar[list[_Carrier]] = []

    def __init__(self) -> None:
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.actor: Actor | None = None
        _thread.start_new_thread(self._run, ())

    @classmethod
    def carry(cls, actor: Actor) -> None:
        """Let an actor begin."""
        carrier = cls.idle.pop() if cls.idle else cls()
        carrier.actor = actor
        carrier.baton.release()

    def _run(self) -> None:
        while True:
            self.baton.acquire()
            actor, self.actor = self.actor, None
            while actor is not None:
                after, baton = actor.scheduler._live(actor)
                if after is None:
                    self.idle.append(self)
                    baton.release()
                actor = after
            del after, baton


class Scheduler:
    """`rng` is for whatever in the world is left to chance; `log` is told what happened."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.steps = 0
        self.switches = 0
        self.fingerprint = 0
        self.events: list[str] = []
        self.world = Process("world")
        self._processes: list[Process] = []
        self._living: list[Actor] = []
        self._ready: list[Actor] = []
        self._timers: list[tuple[int, int, Actor, int]] = []
        self._order = itertools.count()
        self._names = itertools.count(1)
        self.free_locks = self._free_locks()  # how many are taken before somebody loses the processor
        self._steps_at_once = 0
        self._main: Actor | None = None
        self._fault: BaseException | None = None
        self._failures: list[BaseException] = []
        self._done = _thread.allocate_lock()

    # For whoever runs a world

    def run(self, main: Callable[[], Any]) -> Any:
        """Let the world live until `main`, one of its actors, has ended; then everybody else is killed."""
        actor = self._main = self.spawn("main", self.world, lambda: self._run_main(main))
        self._done.acquire()
        self._begin(actor)
        self._done.acquire()
        if self._failures:
            raise self._failures[0]
        return actor.result

    def log(self, text: str) -> None:
        """Write what happened into the world's log."""
        line = f"{self.now / SECOND:12.6f} {text}"
        self.fingerprint = zlib.crc32(line.encode(), self.fingerprint)
        self.events.append(line)

    # For actors

    def spawn(self, name: str, process: Process, work: Callable[[], Any]) -> Actor:
        """A new thread, ready to run."""
        if process.dead:
            raise Killed
        actor = Actor(self, f"{process.name}/{name}-{next(self._names)}", process, work)
        if process not in self._processes:
            self._processes.append(process)
        if self._main is not None:
            self._make_ready(actor)
        return actor

    def number(self) -> int:
        """The next one: what has no name of its own is told apart by it."""
        return next(self._names)

    def park(self, until: int | None = None) -> bool:
        """Wait until somebody wakes the calling actor (True) or the time has come (False)."""
        me = self._me()
        me.parked, me.woken = True, False
        me.ticket += 1
        if until is not None:
            heapq.heappush(self._timers, (max(until, self.now), next(self._order), me, me.ticket))
        self._hand_on(me)
        return me.woken

    def sleep(self, nanoseconds: int) -> None:
        """Let so much time go by."""
        self.park(self.now + max(nanoseconds, 0))

    def wake(self, actor: Actor) -> None:
        """Let a parked actor run again."""
        if actor.parked and not actor.process.dead:
            actor.parked, actor.woken = False, True
            self._make_ready(actor)

    def preempt(self) -> None:
        """Somebody else runs first, where anybody can."""
        self.free_locks = self._free_locks()
        if self._ready:
            me = self._me()
            self._make_ready(me)
            self._hand_on(me)

    def join(self, actor: Actor, until: int | None = None) -> bool:
        """Wait for an actor's end. Whether it came in time."""
        me = self._me()
        if not actor.ended:
            actor.waiting.append(me)
            if not self.park(until) and me in actor.waiting:
                actor.waiting.remove(me)
        return actor.ended

    # Processes

    def kill(self, process: Process) -> None:
        """As `kill -9`: nothing of the process has any effect from now on. May be called by one of its own actors,
        which then goes on."""
        me = current()
        if process.dead:
            return
        process.dead = True
        self._processes = [p for p in self._processes if p is not process]
        for actor in [a for a in self._living if a.process is process and a is not me]:
            self._unwind(actor, me)
        self._ready = [a for a in self._ready if not a.process.dead]
        process.held.clear()
        for notice in process.at_end:
            notice()

    def pause(self, process: Process) -> None:
        """None of its threads runs until `resume`: a stalled machine, SIGSTOP, a long collection of garbage."""
        process.paused, process.paused_at = True, self.now
        still: list[Actor] = []
        for actor in self._ready:
            (process.held if actor.process is process else still).append(actor)
        self._ready = still

    def resume(self, process: Process) -> None:
        """It wakes up and finds that time has gone by."""
        process.paused = False
        process.stood_still += self.now - process.paused_at
        self._ready += process.held
        process.held = []

    # Inside

    def _run_main(self, main: Callable[[], Any]) -> Any:
        try:
            return main()
        finally:
            self._fault = None
            for process in list(self._processes):
                process.at_end.clear()
            for process in sorted(self._processes, key=lambda p: p is self.world):
                self.kill(process)

    def _free_locks(self) -> int:
        """As if each time somebody threw dice."""
        return 1 + int(math.log(1.0 - self.rng.random()) / _NOT_PREEMPTED)

    def _me(self) -> Actor:
        me = here.actor
        if me is None or me.scheduler is not self:
            raise RuntimeError("only an actor of this world may wait in it")
        if me.process.dead:
            raise Killed
        return me

    def _make_ready(self, actor: Actor) -> None:
        (actor.process.held if actor.process.paused else self._ready).append(actor)

    def _hand_on(self, me: Actor) -> None:
        """The next one runs; returns when it is this actor's turn again."""
        following = self._pick()
        if following is not me:
            self._begin(following)
            me.baton.acquire()
        if me is self._main and self._fault is not None:
            raise self._fault
        if me.process.dead:
            raise Killed

    def _begin(self, actor: Actor) -> None:
        self.switches += 1
        if actor.started:
            actor.baton.release()
        else:
            _Carrier.carry(self._started(actor))

    def _started(self, actor: Actor) -> Actor:
        actor.started = True
        self._living.append(actor)
        return actor

    def _live(self, actor: Actor) -> tuple[Actor | None, Any]:
        """An actor's life. Who runs next in the same thread, or else the baton that lets the next one run."""
        here.actor = actor
        actor.ident = _thread.get_ident()
        try:
            if not actor.process.dead:
                actor.result = actor.work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 (whoever runs the world shall see it)
            self._failures.append(error)
            if actor is not self._main:
                self._fault = error
        actor.ended = True
        here.actor = None
        return self._ended(actor)

    def _ended(self, actor: Actor) -> tuple[Actor | None, Any]:
        self._living.remove(actor)
        if actor is self._main:
            return None, self._done
        for other in actor.waiting:
            self.wake(other)
        actor.work = _nothing
        killer, actor.killer = actor.killer, None
        if killer is not None:
            return None, killer.baton
        following = self._pick()
        self.switches += 1
        return (None, following.baton) if following.started else (self._started(following), None)

    def _unwind(self, actor: Actor, killer: Actor | None) -> None:
        """Let a thread of a dead process run to its end: it meets `Killed` wherever it would wait."""
        assert killer is not None
        actor.killer = killer
        actor.baton.release()
        killer.baton.acquire()

    def _pick(self) -> Actor:
        """Who runs next; time goes on where nobody can."""
        self.steps += 1
        self._steps_at_once += 1
        if self._fault is None and (self.steps > MOST_STEPS or self._steps_at_once > MOST_STEPS_AT_ONCE):
            self._fault = StuckError(
                f"no end after {self.steps} steps, {self._steps_at_once} without waiting:\n{self.stacks()}"
            )
        if self._fault is not None:
            return self._wake_main()
        if not self._ready and not self._let_time_go_on():
            self._fault = StuckError(f"nobody can go on:\n{self.stacks()}")
            return self._wake_main()
        number = int(self.rng.random() * len(self._ready)) if len(self._ready) > 1 else 0
        chosen = self._ready[number]
        self._ready[number] = self._ready[-1]
        self._ready.pop()
        self.fingerprint = zlib.crc32(chosen.label, self.fingerprint)
        return chosen

    def _wake_main(self) -> Actor:
        main = self._main
        assert main is not None
        main.parked = False
        main.ticket += 1
        self._ready = [a for a in self._ready if a is not main]
        return main

    def _let_time_go_on(self) -> bool:
        timers = self._timers
        while timers:
            at, _, actor, ticket = heapq.heappop(timers)
            if not _waits(actor, ticket):
                continue
            if at > self.now:
                self.now, self._steps_at_once = at, 0
            actor.parked = False
            self._make_ready(actor)
            while timers and timers[0][0] <= self.now:
                _, _, other, ticket = heapq.heappop(timers)
                if _waits(other, ticket):
                    other.parked = False
                    self._make_ready(other)
            if self._ready:
                return True
        return False

    def stacks(self) -> str:
        """Where everybody stands."""
        frames = sys._current_frames()
        said = []
        for actor in self._living:
            frame = frames.get(actor.ident)
            lines = traceback.format_stack(frame, limit=12)[:-2] if frame else []
            said.append(f"--- {actor.name}{' (paused)' if actor.process.paused else ''}\n{''.join(lines)}")
        return "\n".join(said)


def _waits(actor: Actor, ticket: int) -> bool:
    return actor.parked and actor.ticket == ticket and not actor.process.dead


def _nothing() -> None:
    return None
