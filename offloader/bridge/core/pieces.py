"""Of what a bridged data object is made, pieces back to back, and in which parts it is uploaded: ranges that the store
copies by itself, and what is too small for that merged with its neighbour through us. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, Self

from crc32c import crc32c

from offloader.format.crc import combine
from offloader.format.index import IndexEntry
from offloader.model import GIB, MIB

MOST_PARTS = 10_000
MOST_COPIED = 5 * GIB  # S3's limit of one copy, and of one part
LEAST_PART = 5 * MIB
STREAMED_PART = 16 * MIB  # what goes through us is held in memory


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


@dataclass(frozen=True, slots=True)
class PartSizes:
    """`least`: of every part but the last. `copied`, `streamed`: at most, of one kind and the other. `most`: parts."""

    copied: int
    least: int = LEAST_PART
    streamed: int = STREAMED_PART
    server_copies: bool = True
    most: int = MOST_PARTS

    def grown(self) -> PartSizes:
        """Of twice the size."""
        return replace(self, copied=self.copied * 2, least=self.least * 2, streamed=self.streamed * 2)

    def workable(self) -> PartSizes:
        """A copy of less than two least parts could leave a rest that is too small for a part."""
        least = max(self.least, 1)
        copied = max(min(self.copied, MOST_COPIED), 2 * least)
        return replace(self, least=least, copied=copied, streamed=max(self.streamed, least))


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Offsets of the bridged object. `copyable`: one range of one object, with no range beside it."""

    begin: int
    end: int
    copyable: bool


def upload_parts(pieces: Sequence[PlannedPiece], sizes: PartSizes) -> tuple[PlannedPart, ...]:
    """The parts of an object of these pieces. The same pieces and sizes give the same parts."""
    while True:
        parts = tuple(islice(_Cutting(pieces, sizes.workable()).parts(), sizes.most + 1))
        if len(parts) <= sizes.most:
            return parts
        sizes = sizes.grown()


class _Cutting:
    def __init__(self, pieces: Sequence[PlannedPiece], sizes: PartSizes) -> None:
        self._pieces = pieces
        self._begins = [piece.offset for piece in pieces]
        self._sizes = sizes
        self._total = pieces[-1].end
        self._stretches = list(_stretches(pieces, sizes))
        self._stretch_begins = [stretch.begin for stretch in self._stretches]
        self._copied_behind = self._copies_behind()

    def parts(self) -> Iterator[PlannedPart]:
        at = 0
        number = 1
        while at < self._total:
            here = self._stretch_at(at)
            copies = here.copyable and (here.end - at >= self._sizes.least or here.end == self._total)
            end = self._end_of_copy(at, here.end) if copies else self._end_of_streamed(at)
            yield self._part(number, at, end, copies=copies)
            at = end
            number += 1

    def _end_of_copy(self, at: int, stretch_end: int) -> int:
        """As far as one copy goes, if possible to a piece's end: its sum is known then."""
        if stretch_end - at <= self._sizes.copied:
            return stretch_end
        most = min(at + self._sizes.copied, stretch_end - self._sizes.least)
        aligned = self._begins[bisect_right(self._begins, most) - 1]
        return aligned if aligned >= at + self._sizes.least else most

    def _end_of_streamed(self, at: int) -> int:
        """The least part, or a larger one where all of it has to go through us; and no rest that is none itself."""
        end = min(at + self._sizes.least, self._total)
        through_us = self._copied_behind[bisect_right(self._stretch_begins, at) - 1]
        if through_us > end:
            most = min(at + self._sizes.streamed, through_us)
            aligned = self._begins[bisect_right(self._begins, most) - 1] if most < self._total else most
            end = aligned if aligned >= end else most
        rest = self._stretch_at(end - 1).end - end
        return end + rest if rest < self._sizes.least else end

    def _copies_behind(self) -> list[int]:
        """For each stretch, where the next one behind it begins that copies can bring."""
        behind = [self._total] * len(self._stretches)
        for number in range(len(self._stretches) - 2, -1, -1):
            following = self._stretches[number + 1]
            large = following.copyable and following.end - following.begin >= self._sizes.least
            behind[number] = following.begin if large else behind[number + 1]
        return behind

    def _stretch_at(self, at: int) -> _Stretch:
        return self._stretches[bisect_right(self._stretch_begins, at) - 1]

    def _part(self, number: int, begin: int, end: int, *, copies: bool) -> PlannedPart:
        first = bisect_right(self._begins, begin) - 1
        after = bisect_right(self._begins, end - 1)
        pieces = tuple(piece.between(begin, end) for piece in self._pieces[first:after])
        if copies:
            pieces = tuple(_side_by_side(pieces))
        return PlannedPart(number, begin, end - begin, pieces, copies)


def _stretches(pieces: Sequence[PlannedPiece], sizes: PartSizes) -> Iterator[_Stretch]:
    for piece in _side_by_side(pieces):
        yield _Stretch(piece.offset, piece.end, sizes.server_copies and not isinstance(piece.source, bytes))


def _side_by_side(pieces: Sequence[PlannedPiece]) -> Iterator[PlannedPiece]:
    """Those that lie side by side in one object as one."""
    before: PlannedPiece | None = None
    for piece in pieces:
        joined = None if before is None else before.joined(piece)
        if joined is None and before is not None:
            yield before
        before = joined or piece
    if before is not None:
        yield before
