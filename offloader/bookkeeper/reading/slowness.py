"""Which bookies were slow or gone lately, so that they are asked last. Thread safe: readers may share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

_SECONDS = 10.0


class Slowness:
    """Remembers a bookie for a while. `clock` is in seconds."""

    def __init__(self, seconds: float = _SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, bookie: str) -> None:
        """It did not answer as fast as it should."""
        self._until[bookie] = self._clock() + self._seconds

    def quickest(self, bookies: Sequence[str]) -> str | None:
        """The first one that was not slow lately, or else the one whose trouble is longest ago; None of none."""
        if not self._until and bookies:
            return bookies[0]
        now = self._clock()
        return min(bookies, key=lambda bookie: max(self._until.get(bookie, now) - now, 0.0), default=None)
