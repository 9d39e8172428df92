"""Whether the application is alive (its main loop turns, its batches end) and ready (the store and Pulsar answered when last asked)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple

Service = Literal["store", "pulsar"]


class Verdict(NamedTuple):
    """The answer to a probe, and why."""

    good: bool
    text: str


class Health:
    """`timeout`: seconds without a tick after which the loop counts as stuck; `batch_timeout`: those of a batch. `clock` in seconds."""

    def __init__(self, timeout: float, batch_timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout = timeout
        self._batch_timeout = batch_timeout
        self._clock = clock
        self._batch_began: float | None = None
        self._ticked = clock()
        self._problems: dict[Service, str] = {"store": "not asked yet", "pulsar": "not asked yet"}

    def tick(self) -> None:
        """The main loop has turned."""
        self._ticked = self._clock()

    def batch_began(self) -> None:
        """A plan was given to Spark."""
        self._batch_began = self._clock()

    def batch_ended(self) -> None:
        """Its receipts are in, or it is lost."""
        self._batch_began = None

    def checked(self, service: Service, problem: str = "") -> None:
        """A service answered, or why it did not."""
        self._problems[service] = problem

    @property
    def age(self) -> float:
        """Seconds since the last tick."""
        return self._clock() - self._ticked

    @property
    def batch_age(self) -> float:
        """For how many seconds the present batch has been under way; 0 where there is none."""
        began = self._batch_began
        return 0.0 if began is None else self._clock() - began

    def alive(self) -> Verdict:
        """For `/healthz`."""
        age, batch_age = self.age, self.batch_age
        if age > self._timeout:
            return Verdict(False, f"the main loop has not turned for {age:.0f} s")
        if batch_age > self._batch_timeout:
            return Verdict(False, f"a batch has been under way for {batch_age:.0f} s")
        return Verdict(True, "ok")

    def ready(self) -> Verdict:
        """For `/readyz`."""
        problems = [f"{service}: {problem}" for service, problem in self._problems.items() if problem]
        return Verdict(not problems, "\n".join(problems) or "ok")
