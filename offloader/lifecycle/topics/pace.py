"""When the next visit may begin. Pure."""

from __future__ import annotations

from collections.abc import Callable


class VisitPace:
    """At most `a_minute`, evenly spread: a minute's visits at once would be a storm for the metadata service."""

    def __init__(self, a_minute: int) -> None:
        self._apart_ms = 60_000 / a_minute
        self._next_ms = 0.0

    def wait_ms(self, now_ms: int) -> float:
        """How long the next one has to wait; it counts as begun then."""
        begin = max(self._next_ms, float(now_ms))
        if begin - now_ms > self._apart_ms:  # the clock was put back
            begin = now_ms + self._apart_ms
        self._next_ms = begin + self._apart_ms
        return begin - now_ms


def pacing(a_minute: int, now_ms: Callable[[], int], sleep: Callable[[float], object]) -> Callable[[], None]:
    """Waits until the next one may begin. `sleep`: takes seconds. One thread calls it."""
    pace = VisitPace(a_minute)

    def wait() -> None:
        wait_ms = pace.wait_ms(now_ms())
        if wait_ms > 0:
            sleep(wait_ms / 1000)

    return wait
