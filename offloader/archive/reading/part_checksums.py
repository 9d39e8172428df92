"""The CRC32C of the parts that are read whole: where it is right, nothing in them need be checked. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto

from crc32c import crc32c

from offloader.archive.read_model import SplitPoint


class Proof(Enum):
    """What a part's checksum says of the bytes that were fetched of it."""

    NONE = auto()  # there is none, or something before them is missing
    OPEN = auto()  # the part goes on
    RIGHT = auto()
    WRONG = auto()


class PartSums:
    """Goes over fetched bytes in their order; each fetch has bytes of one part only, where that is read whole.

    `ended`: the part that ended last, and its bytes' CRC32C.
    """

    def __init__(self, cuts: Iterable[SplitPoint]) -> None:
        self.ended = SplitPoint(0, 0, 0), 0
        self._parts = deque(cut for cut in cuts if cut.crc32c is not None)
        self._at = -1  # where what comes next of the part in use begins
        self._crc = 0

    @property
    def is_open(self) -> bool:
        """Whether a part has begun that is not whole yet."""
        return self._at >= 0

    def goes_on(self, begin: int) -> bool:
        """Whether what stands at `begin` comes next in a part that is not whole yet."""
        return begin == self._at

    def add(self, begin: int, data: bytes) -> Proof:
        """Take what stands at `begin`."""
        while self._parts and _end(self._parts[0]) <= begin:
            self._parts.popleft()
        if not self._parts or begin not in (self._at, self._parts[0].begin):
            self._at = -1
            return Proof.NONE
        part = self._parts[0]
        self._crc = crc32c(data, 0 if begin == part.begin else self._crc)
        self._at = begin + len(data)
        if self._at < _end(part):
            return Proof.OPEN
        self.ended, self._at = (part, self._crc), -1
        return Proof.RIGHT if self._crc == part.crc32c else Proof.WRONG


def _end(part: SplitPoint) -> int:
    return part.begin + part.size
