"""The application's clock."""

from __future__ import annotations

import time


class SteadyClock:
    """Milliseconds since the epoch. The wall clock is read once: whoever sets it afterwards, back or forward, changes
    no wait."""

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def __call__(self) -> int:
        return (self._epoch_ns + time.monotonic_ns()) // 1_000_000
