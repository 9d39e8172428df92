"""Whether the application is alive (its main loop turns, or waits within bounds; its batches end) and ready (the store
and Pulsar answered when last asked)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from offloader.model import Lane

Service = Literal["store", "pulsar"]

START = "the start"
LONGEST_EXPIRED = 600.0  # seconds without a call that succeeds: a new process may be given other credentials
LONGEST_START = 600.0  # seconds: it waits for Spark, and reads the journal, however slow the store is


class ProbeAnswer(NamedTuple):
    """The answer to a probe, and why."""

    good: bool
    text: str


class Health:
    """All in seconds. `timeout`: a loop without a tick for longer is stuck, unless it waits; `batch_timeout`: so is a
    batch, beyond the time of its slices. `services`: those that it needs. `start`: the first tick may take so long."""

    def __init__(
        self,
        timeout: float,
        batch_timeout: float,
        clock: Callable[[], float] = time.monotonic,
        services: Iterable[Service] = ("store", "pulsar"),
        start: float = 0.0,
    ) -> None:
        self._timeout = timeout
        self._batch_timeout = batch_timeout
        self._clock = clock
        self._batches: dict[Lane, tuple[float, float]] = {}  # when it began, and what its slices may take
        self._ticked = clock()
        self._waits = {START: clock() + start}  # what the loop waits for, and until when that may last
        self._waits_lock = threading.Lock()
        self._expired_since: float | None = None
        self._problems: dict[Service, str] = dict.fromkeys(services, "not asked yet")

    def tick(self) -> None:
        """The main loop has turned."""
        self._no_longer(START)

    @contextmanager
    def waiting(self, what: str, longest: float) -> Iterator[None]:
        """The main loop waits for something that ends within `longest` seconds: until then it is not stuck."""
        with self._waits_lock:
            self._waits = self._waits | {what: self._clock() + longest}
        try:
            yield
        finally:
            self._no_longer(what)

    def _no_longer(self, what: str) -> None:
        with self._waits_lock:
            self._waits = {other: until for other, until in self._waits.items() if other != what}
        self._ticked = self._clock()

    def batch_began(self, lane: Lane, longest: float) -> None:
        """Spark got a plan, whose longest slice may take `longest` seconds."""
        self._batches = self._batches | {lane: (self._clock(), longest)}

    def batch_ended(self, lane: Lane) -> None:
        """Its receipts are in, or it is lost."""
        self._batches = {other: batch for other, batch in self._batches.items() if other is not lane}

    def checked(self, service: Service, problem: str = "") -> None:
        """A service answered, or why it did not."""
        self._problems[service] = problem

    def credentials(self, *, expired: bool) -> None:
        """The store took our credentials, or said that they have expired."""
        if not expired:
            self._expired_since = None
        elif self._expired_since is None:
            self._expired_since = self._clock()

    @property
    def age(self) -> float:
        """Seconds since the last tick."""
        return self._clock() - self._ticked

    def batch_age(self, lane: Lane) -> float:
        """Seconds since the lane's present batch began; 0 without one."""
        batch = self._batches.get(lane)
        return 0.0 if batch is None else self._clock() - batch[0]

    def alive(self) -> ProbeAnswer:
        """For `/healthz`."""
        age, now = self.age, self._clock()
        if now - max([self._ticked, *self._waits.values()]) > self._timeout:
            return ProbeAnswer(False, f"the main loop has not turned for {age:.0f} s")
        for lane, (began, longest) in self._batches.items():
            if now - began > longest + self._batch_timeout:
                return ProbeAnswer(False, f"a batch of the {lane} lane has been under way for {now - began:.0f} s")
        since = self._expired_since
        if since is not None and now - since > LONGEST_EXPIRED:
            return ProbeAnswer(False, f"the store's credentials expired {now - since:.0f} s ago and were not renewed")
        return ProbeAnswer(True, "ok")

    def ready(self) -> ProbeAnswer:
        """For `/readyz`."""
        problems = [f"{service}: {problem}" for service, problem in self._problems.items() if problem]
        return ProbeAnswer(not problems, "\n".join(problems) or "ok")
