"""Frames of both versions of the protocol, `[u32 length][body]`: received bytes to bodies. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.errors import ProtocolError
from offloader.model import KIB, MIB

# What a bookie may put around the largest entry or the largest batch of entries that it sends.
FRAME_SLACK = 64 * KIB
_CHUNK = 1 * MIB


def frame(body: bytes) -> bytes:
    """The frame of a body."""
    return len(body).to_bytes(4) + body


class BookieFrameBuffer:
    """Collects received bytes and cuts them into bodies; holds at most one frame and one chunk.

    Received bytes go into `space()`, then `received(n)`, then `bodies()`.
    """

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body + FRAME_SLACK
        self._data = bytearray(_CHUNK)
        self._view = memoryview(self._data)
        self._begin = 0
        self._end = 0

    def space(self) -> memoryview:
        """Where the next bytes go, never empty."""
        if self._end == len(self._data) or self._begin == self._end:
            self._make_room()
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """So many bytes were put into `space()`."""
        self._end += count

    def bodies(self) -> Iterator[memoryview]:
        """The bodies that are complete, each valid until the next call of anything here. Raises ProtocolError."""
        while self._end - self._begin >= 4:
            size = self._size()
            end = self._begin + 4 + size
            if end > self._end:
                return
            begin, self._begin = self._begin + 4, end
            yield self._view[begin:end]

    @property
    def beginning(self) -> memoryview:
        """What has arrived of the body that `bodies` refused, up to 64 bytes."""
        return self._view[self._begin + 4 : min(self._end, self._begin + 4 + 64)]

    def _size(self) -> int:
        size = int.from_bytes(self._view[self._begin : self._begin + 4])
        if size > self._max_body:
            raise ProtocolError(f"the bookie announced a frame of {size} bytes, more than {self._max_body}")
        return size

    def _make_room(self) -> None:
        """Move what is left to the front; grow where a frame needs it."""
        left = self._view[self._begin : self._end].tobytes()
        needed = 4 + self._size() if len(left) >= 4 else 0
        if needed > len(self._data):
            self._data = bytearray(needed + _CHUNK)
            self._view = memoryview(self._data)
        self._view[: len(left)] = left
        self._begin, self._end = 0, len(left)
