"""How much a reader holds and may ask for: bytes in answers not handed out yet, and bytes that are under way."""

from __future__ import annotations

import threading


class Budget:
    """Bounds a reader to `max_bytes`. Answers arrive on another thread than the one that asks."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._expected = 0
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes that have arrived and were not handed out yet."""
        return self._held

    def room(self, size: int) -> bool:
        """Whether so many bytes may be asked for now."""
        return self._held + self._expected + size <= self.max_bytes

    def expect(self, size: int) -> None:
        """So many bytes were asked for."""
        with self._lock:
            self._expected += size

    def arrived(self, expected: int, size: int, *, needed: bool) -> bool:
        """`size` bytes came where `expected` were; False: they are more than can be held, and must be dropped.

        `needed`: the reader cannot go on without them. Only those may exceed the bound.
        """
        with self._lock:
            self._expected -= expected
            if not needed and self._held + size > self.max_bytes:
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """So many bytes were handed out, or dropped after all."""
        with self._lock:
            self._held -= size
