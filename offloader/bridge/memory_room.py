"""Memory that several threads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class MemoryRoom:
    """So many bytes for all who are at it. Thread safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._freed = threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Wait until there is room for as much, and hold it. Whoever wants more than there is gets all of it."""
        size = min(size, self._most)
        with self._freed:
            self._freed.wait_for(lambda: self._used + size <= self._most)
            self._used += size
        try:
            yield
        finally:
            with self._freed:
                self._used -= size
                self._freed.notify_all()
