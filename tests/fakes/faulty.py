"""A store around another one that fails on purpose: in a fixed order, or at random from a seed."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from offloader.errors import OutcomeUnknownError, StoreUnavailableError
from offloader.ports.object_store import ObjectStore
from offloader.storage.forwarding import ForwardingStore, Verb

T = TypeVar("T")


class Effect(Enum):
    """What becomes of a call that a fault concerns."""

    BEFORE = "before"  # nothing happens, the error is raised
    LOST = "lost"  # it happens, its answer is lost: OutcomeUnknownError
    REPEATED = "repeated"  # it happens, its answer is lost, and it is sent again, as a client does by itself
    HOOK = "hook"  # only the hook runs, for example to wait or to let another process act


def unavailable() -> Exception:
    """The usual error of a store that does not answer."""
    return StoreUnavailableError("the store is unavailable (a fault of the test)")


@dataclass
class StoreFault:
    """One planned fault: `after` calls that match pass first, then it concerns `times` calls.

    `call` is a method's name, or `*` for all; `key` says which keys (None: all). The hook runs before the call, `then`
    after it.
    """

    call: str
    effect: Effect = Effect.BEFORE
    error: Callable[[], Exception] = unavailable
    key: Callable[[str], bool] | None = None
    times: int = 1
    after: int = 0
    hook: Callable[[], None] | None = None
    then: Callable[[], None] | None = None

    def matches(self, call: str, key: str) -> bool:
        """Whether it concerns the call."""
        return self.times > 0 and self.call in ("*", call) and (self.key is None or self.key(key))


class StoreFaults:
    """What goes wrong, and how often each call was made (`calls`). May be shared by several stores and threads."""

    def __init__(self, planned: Iterable[StoreFault] = (), *, seed: int = 0) -> None:
        self.calls: Counter[str] = Counter()
        self._planned = list(planned)
        self._random: list[tuple[float, StoreFault]] = []
        self._rng = random.Random(seed)
        self._lock = threading.Lock()

    def add(self, fault: StoreFault) -> StoreFault:
        """Plan one more; its `times` counts down as it is used."""
        with self._lock:
            self._planned.append(fault)
        return fault

    @contextmanager
    def no_random(self) -> Iterator[None]:
        """Only planned faults meanwhile."""
        random, self._random = self._random, []
        try:
            yield
        finally:
            self._random = random

    def at_random(self, rate: float, *faults: StoreFault) -> None:
        """Let each of these happen to that share of the calls that it matches (`times` and `after` do not count)."""
        with self._lock:
            self._random += [(rate, fault) for fault in faults]

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._lock:
            self._planned.clear()
            self._random.clear()

    def next(self, call: str, key: str) -> StoreFault | None:
        """Count the call; the fault that concerns it."""
        with self._lock:
            self.calls[call] += 1
            return self._next_planned(call, key) or self._next_random(call, key)

    def _next_planned(self, call: str, key: str) -> StoreFault | None:
        for fault in self._planned:
            if not fault.matches(call, key):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault
        return None

    def _next_random(self, call: str, key: str) -> StoreFault | None:
        for rate, fault in self._random:
            if fault.matches(call, key) and self._rng.random() < rate:
                return fault
        return None


class FaultyStore(ForwardingStore):
    """`ObjectStore` that asks `faults` before each call. Listings fail when they are asked for."""

    def __init__(self, store: ObjectStore, faults: StoreFaults) -> None:
        super().__init__(store)
        self.faults = faults

    def _call(self, verb: Verb, key: str, work: Callable[[], T]) -> T:
        fault = self.faults.next(verb, key)
        if fault is None:
            return work()
        if fault.hook is not None:
            fault.hook()
        if fault.effect is Effect.BEFORE:
            raise fault.error()
        answer = work()
        if fault.then is not None:
            fault.then()
        if fault.effect is Effect.LOST:
            raise OutcomeUnknownError(f"{verb} {key}: the answer was lost (a fault of the test)")
        return work() if fault.effect is Effect.REPEATED else answer
