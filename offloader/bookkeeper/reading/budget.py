"""What a reader may hold and ask for: bytes not handed out yet, bytes under way, the size of entries to come."""

from __future__ import annotations

import threading

from offloader.bookkeeper.model import LedgerMetadata
from offloader.model import KIB

_UNKNOWN = 64 * KIB
_OVERHEAD = 64  # a stored entry's header, digest and length
_WEIGHT = 0.1  # of what was just seen, against what was seen before


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
        """`size` bytes came where `expected` were. False: drop them, they are more than can be held.

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


class Sizes:
    """Begins with the ledger's average where the ledger is closed, and follows what is seen."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        entries = metadata.last_entry + 1
        self._mean = metadata.length / entries if metadata.closed and entries > 0 else _UNKNOWN

    def saw(self, size: int, entries: int) -> None:
        """So many bytes in so many entries."""
        self._mean += _WEIGHT * (size / entries - self._mean)

    @property
    def expected(self) -> int:
        """What one entry will probably not exceed, header included."""
        return int(self._mean * 1.25) + _OVERHEAD
