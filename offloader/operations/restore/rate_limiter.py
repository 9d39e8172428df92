"""No more than so many bytes a second. Pure: time is passed in, in seconds."""

from __future__ import annotations

# What may be sent at once after a pause, in seconds' worth: waits shorter than this are not worth one.
BURST = 0.05


class RateLimiter:
    """`rate` None: as fast as it goes."""

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._free_at = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next entry may go."""
        return 0.0 if self._rate is None else max(0.0, self._free_at - now)

    def spend(self, size: int, now: float) -> None:
        """So many bytes went."""
        if self._rate is not None:
            self._free_at = max(self._free_at, now - BURST) + size / self._rate
