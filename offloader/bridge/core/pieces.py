"""Of what a bridged data object is made: pieces back to back, and the parts in which it is uploaded. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from crc32c import crc32c

from offloader.format.crc import combine
from offloader.format.part_index import IndexEntry


class SourceRange(NamedTuple):
    """Bytes of a segment's data object; `key` is in the archive's root. `crc32c`: what the catalog says of exactly
    these bytes; None: it says it only of a part that has more than these."""

    key: str
    offset: int
    size: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class PlannedPiece:
    """Bytes that are copied, or that we bring (blocks cut of what bookies had). `offset`: in the bridged object.
    `crc32c`: what is known of its bytes before anybody has read them."""

    source: SourceRange | bytes
    offset: int
    crc32c: int | None

    @classmethod
    def of(cls, source: SourceRange | bytes, offset: int) -> Self:
        """With what is known of it."""
        return cls(source, offset, crc32c(source) if isinstance(source, bytes) else source.crc32c)

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.size

    @property
    def end(self) -> int:
        return self.offset + self.size

    def between(self, begin: int, end: int) -> PlannedPiece:
        """What of it lies in these offsets of the bridged object, at least one byte."""
        if begin <= self.offset and self.end <= end:
            return self
        first, after = max(begin, self.offset) - self.offset, min(end, self.end) - self.offset
        if isinstance(self.source, bytes):
            return PlannedPiece.of(self.source[first:after], self.offset + first)
        cut = SourceRange(self.source.key, self.source.offset + first, after - first, None)
        return PlannedPiece.of(cut, self.offset + first)

    def joined(self, following: PlannedPiece) -> PlannedPiece | None:
        """With the next one as one range; None: they are not side by side in one object."""
        one, other = self.source, following.source
        if isinstance(one, bytes) or isinstance(other, bytes):
            return None
        if one.key != other.key or one.offset + one.size != other.offset:
            return None
        crc = combined(self, following)
        return replace(self, source=SourceRange(one.key, one.offset, one.size + other.size, crc), crc32c=crc)


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A part of the upload, `number` from 1. `copies`: it is one range that the store may copy by itself; else the
    pieces go through us, in their order."""

    number: int
    offset: int
    size: int
    pieces: tuple[PlannedPiece, ...]
    copies: bool

    @property
    def crc32c(self) -> int | None:
        """None where it is not known of each piece."""
        return combined(*self.pieces)


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """A bridged data object. `pieces` are what is compared once it is there, `parts` how it comes there. `length`: the
    sum of its entries' lengths; `filled`: how many of them bookies gave."""

    parts: tuple[PlannedPart, ...]
    pieces: tuple[PlannedPiece, ...]
    index: tuple[IndexEntry, ...]
    size: int
    length: int
    filled: int

    @property
    def crc32c(self) -> int | None:
        """None where it is not known of each piece."""
        return combined(*self.pieces)


def combined(*pieces: PlannedPiece) -> int | None:
    """The CRC32C of pieces back to back, None where it is not known of each."""
    known = [(crc, piece.size) for piece in pieces if (crc := piece.crc32c) is not None]
    return combine(known) if len(known) == len(pieces) else None
