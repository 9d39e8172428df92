"""Whether the application is alive (its main loop turns) and ready (the store and Pulsar answered when last asked)."""

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
    """`timeout`: seconds without a tick after which the loop counts as stuck. `clock` in seconds."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout = timeout
        self._clock = clock
        self._ticked = clock()
        self._problems: dict[Service, str] = {"store": "not asked yet", "pulsar": "not asked yet"}

    def tick(self) -> None:
        """The main loop has turned."""
        self._ticked = self._clock()

    def checked(self, service: Service, problem: str = "") -> None:
        """A service answered, or why it did not."""
        self._problems[service] = problem

    @property
    def age(self) -> float:
        """Seconds since the last tick."""
        return self._clock() - self._ticked

    def alive(self) -> Verdict:
        """For `/healthz`."""
        age = self.age
        if age > self._timeout:
            return Verdict(False, f"the main loop has not turned for {age:.0f} s")
        return Verdict(True, "ok")

    def ready(self) -> Verdict:
        """For `/readyz`."""
        problems = [f"{service}: {problem}" for service, problem in self._problems.items() if problem]
        return Verdict(not problems, "\n".join(problems) or "ok")
