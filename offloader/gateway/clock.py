"""Whether the machine's clock was set: timers run by another one; what is due at a moment of time does not. Pure."""

from __future__ import annotations

from collections.abc import Callable

STEP = 0.5  # seconds, beyond which it was set; a clock that is slowed down or sped up goes wrong by less between looks


class SetClock:
    """`wall`: seconds since 1970; `steady`: seconds by a clock that nobody sets."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady
        self._apart = wall() - steady()

    def was_set(self) -> bool:
        """Since the last look; also where the machine has slept."""
        apart, before = self._wall() - self._steady(), self._apart
        self._apart = apart
        return abs(apart - before) > STEP
