"""What happened lately, kept in memory for people: the last hour by minutes, and the last segments. Bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from offloader.model import RollReason, TopicName

MINUTES = 60
SEGMENTS = 12


class Minute(NamedTuple):
    """What was uploaded in one minute."""

    size: int = 0
    entries: int = 0


class CommittedSegment(NamedTuple):
    """A segment, and how many seconds ago it was committed."""

    topic: TopicName
    reason: RollReason
    size: int
    age: float


class Recent:
    """One thread counts, any may ask. `clock` in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._minutes: deque[tuple[int, Minute]] = deque(maxlen=MINUTES)
        self._segments: deque[tuple[float, TopicName, RollReason, int]] = deque(maxlen=SEGMENTS)

    def uploaded(self, size: int, entries: int) -> None:
        """The journal took a part."""
        now = self._minute()
        with self._lock:
            before = self._minutes.pop()[1] if self._minutes and self._minutes[-1][0] == now else Minute()
            self._minutes.append((now, Minute(before.size + size, before.entries + entries)))

    def committed(self, topic: TopicName, reason: RollReason, size: int) -> None:
        """A segment is part of the archive."""
        with self._lock:
            self._segments.append((self._clock(), topic, reason, size))

    def minutes(self) -> list[Minute]:
        """The last hour, the present minute last."""
        now = self._minute()
        with self._lock:
            known = dict(self._minutes)
        return [known.get(minute, Minute()) for minute in range(now - MINUTES + 1, now + 1)]

    def segments(self) -> list[CommittedSegment]:
        """The newest first."""
        now = self._clock()
        with self._lock:
            known = list(self._segments)
        return [CommittedSegment(topic, reason, size, now - at) for at, topic, reason, size in reversed(known)]

    def _minute(self) -> int:
        return int(self._clock() // 60)
