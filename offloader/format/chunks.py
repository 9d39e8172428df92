"""A cursor over an object's bytes that arrive in chunks of any sizes."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.errors import DamagedObjectError
from offloader.format.blocks import padding_fault


class Chunks:
    """Goes once over the chunks, holding one at a time. `position` is the offset in the object."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self.position = 0

    def at_end(self) -> bool:
        """Whether no byte is left."""
        while not self._rest:
            following = next(self._chunks, None)
            if following is None:
                return True
            self._rest = memoryview(following)
        return False

    def some(self, most: int) -> memoryview:
        """Up to `most` bytes, none only at the object's end (or where none are asked for)."""
        if not self._rest and self.at_end():
            return self._rest
        piece, self._rest = self._rest[:most], self._rest[most:]
        self.position += len(piece)
        return piece

    def take(self, count: int) -> bytes | memoryview:
        """`count` bytes, fewer only at the object's end."""
        pieces: list[memoryview] = []
        while count and not self.at_end():
            pieces.append(self.some(count))
            count -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def skip(self, count: int) -> int:
        """Go on by `count` bytes; returns how many of them the object does not have."""
        while count and not self.at_end():
            count -= len(self.some(count))
        return count

    def take_padding(self, begin: int, end: int, head: bytes | memoryview) -> None:
        """Go on to `end`; from `begin`, where `head` was taken, all is padding. Raises DamagedObjectError."""
        at, piece = begin, head
        while True:
            fault = padding_fault(piece, at - begin)
            if fault is not None:
                raise DamagedObjectError(f"offset {at + fault}: neither an entry nor padding")
            at += len(piece)
            if at == end:
                return
            piece = self.some(end - at)
            if not piece:
                raise DamagedObjectError(f"offset {at}: {end - at} bytes of padding are missing")
