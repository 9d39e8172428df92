"""The CRC32C of the parts that are read whole: it covers what the entries' own checksums do not. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from crc32c import crc32c

from offloader.archive.stored import Cut


class PartSums:
    """Goes over fetched bytes in their order. A part of which something was not fetched is passed over."""

    def __init__(self, cuts: Iterable[Cut]) -> None:
        self._parts = deque(cut for cut in cuts if cut.crc32c is not None)
        self._at = self._parts[0].begin if self._parts else 0
        self._crc = 0

    def add(self, begin: int, data: bytes) -> Iterator[tuple[Cut, int]]:
        """Take what stands at `begin`; the parts that end in it and do not have their CRC32C, with what they have."""
        view, end = memoryview(data), begin + len(data)
        while self._parts and self._parts[0].begin < end:
            part = self._parts[0]
            part_end = part.begin + part.size
            if begin <= self._at:
                self._crc = crc32c(view[self._at - begin : part_end - begin], self._crc)
                self._at = min(part_end, end)
            elif part_end > end:
                return  # its beginning was not fetched
            if part_end > end:
                return
            found, whole = self._crc, self._at == part_end
            self._next()
            if whole and found != part.crc32c:
                yield part, found

    @property
    def amid(self) -> bool:
        """Whether a part was begun and is not whole yet: nothing has proven what was fetched of it."""
        return bool(self._parts) and self._at > self._parts[0].begin

    def _next(self) -> None:
        self._parts.popleft()
        self._crc = 0
        self._at = self._parts[0].begin if self._parts else 0
