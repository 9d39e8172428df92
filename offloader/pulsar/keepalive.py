"""When to ask whether the other side is still there, and when to give it up. Pure: time is passed in."""

from __future__ import annotations


class KeepAlive:
    """After `interval` seconds of silence a PING is due; after as many more without a word the connection is dead."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._heard = now
        self._asked: float | None = None

    def heard(self, now: float) -> None:
        """Anything was received."""
        self._heard = now
        self._asked = None

    def ping_due(self, now: float) -> bool:
        """True once per silence; the caller then sends a PING."""
        if self._asked is not None or now - self._heard < self._interval:
            return False
        self._asked = now
        return True

    def dead(self, now: float) -> bool:
        """Whether a PING was left unanswered for too long."""
        return self._asked is not None and now - self._asked >= self._interval

    def wait(self, now: float) -> float:
        """Seconds until something may be due."""
        since = self._heard if self._asked is None else self._asked
        return max(0.0, since + self._interval - now)
