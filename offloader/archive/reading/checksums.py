"""CRC32C of entries, and of the parts that are read whole: where a part's is right, its entries need no check. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from struct import Struct

from crc32c import crc32c

from offloader.archive.object_range import SplitPoint
from offloader.format.entry import MAGIC_BROKER_METADATA, MAGIC_CHECKSUM, crc_ok

_HEAD = Struct(">HI")
_CHECKSUM = int.from_bytes(MAGIC_CHECKSUM)
_BROKER_METADATA = int.from_bytes(MAGIC_BROKER_METADATA)


def damaged_entries(data: memoryview, bounds: Sequence[int]) -> list[int]:
    """The numbers, from 0, of the entries that do not have the checksum that they say."""
    head, size = _HEAD.unpack_from, _HEAD.size
    found = []
    places = iter(bounds)
    for number, (begin, end) in enumerate(zip(places, places, strict=True)):
        at = begin + size
        if at <= end:
            magic, value = head(data, begin)
            if magic == _BROKER_METADATA and at + value + size <= end:
                at += value + size
                magic, value = head(data, at - size)
                if magic != _CHECKSUM:
                    continue
            if magic == _CHECKSUM and crc32c(data[at:end]) == value:
                continue
            if magic not in (_CHECKSUM, _BROKER_METADATA):
                continue
        if not crc_ok(bytes(data[begin:end])):  # which knows all cases
            found.append(number)
    return found


def uncovered_entries(data: memoryview, bounds: Sequence[int]) -> list[int]:
    """The numbers, from 0, of entries whose checksum does not cover all: with broker metadata, and opaque ones."""
    places = iter(bounds)
    pairs = enumerate(zip(places, places, strict=True))
    return [
        number
        for number, (begin, end) in pairs
        if end - begin < _HEAD.size or data[begin : begin + 2] != MAGIC_CHECKSUM
    ]


class Proof(Enum):
    """What a part's checksum says of the bytes that were fetched of it."""

    NONE = auto()  # there is none, or something before them is missing
    OPEN = auto()  # the part goes on
    RIGHT = auto()
    WRONG = auto()


class PartChecksums:
    """Goes over fetched bytes in their order; each fetch has bytes of one part only, where that is read whole.

    `ended`: the part that ended last, and its bytes' CRC32C.
    """

    def __init__(self, split_points: Iterable[SplitPoint]) -> None:
        self.ended = SplitPoint(0, 0, 0), 0
        self._parts = deque(point for point in split_points if point.crc32c is not None)
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
