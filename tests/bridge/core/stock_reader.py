"""How brokers read a V1 object, as far as its bytes matter: they go by the index alone, and never look at a header.

Both ways of Pulsar's BlobStoreBackedReadHandleImpl: from 3.0.14 and 4.0.7 on each read seeks first; before, it goes on
where the last one ended, from the object's begin at first.
"""

from __future__ import annotations

from bisect import bisect_right
from io import BytesIO
from struct import unpack, unpack_from


class StockReaderError(Exception):
    """The broker gives up, and so does its client."""


class StockReader:
    """One read handle. `skipped`: the most bytes that a read went over before it came to its first entry."""

    def __init__(self, data: bytes, index: bytes, last: int, *, seeks_first: bool = True) -> None:
        self._stream = BytesIO(data)
        self._length = unpack_from(">q", index, 8)[0]
        header, count, metadata = unpack_from(">qii", index, 16)
        at = 32 + metadata
        rows = [unpack_from(">qiq", index, at + 20 * number) for number in range(count)]
        places = {entry: offset + header for entry, _, offset in rows}
        self._entries = sorted(places)
        self._offsets = [places[entry] for entry in self._entries]
        self._last = last
        self._seeks_first = seeks_first
        self.skipped = 0

    def read(self, first: int, last: int) -> list[bytes]:
        """The entries. Raises StockReaderError."""
        if not 0 <= first <= last <= self._last:
            raise StockReaderError("no such entries")
        try:
            return self._read_seeking(first, last) if self._seeks_first else self._read_on(first, last)
        except EOFError as error:
            raise StockReaderError("the object ends") from error

    def _read_seeking(self, first: int, last: int) -> list[bytes]:
        found: list[bytes] = []
        self._seek_to_entry(first)
        tries = 1
        lost = -1
        while len(found) <= last - first:
            length = self._int()
            if length < 0:
                lost = self._going_round(lost, len(found))
                self._seek_to_entry(first + len(found))
                continue
            entry = self._long()
            if entry == first + len(found):
                found.append(self._bytes(length))
                continue
            if tries > max(3, last - first + 1 >> 2):
                raise StockReaderError(f"entry {entry} stands where {first + len(found)} belongs")
            self._seek_to_entry(first + len(found))
            tries += 1
        return found

    def _seek_to_entry(self, entry: int) -> None:
        """To the entry itself: over those behind the index entry."""
        number = self._floor(entry)
        begin = self._offsets[number]
        self._stream.seek(begin)
        for skipped in range(self._entries[number], entry):
            length = self._int()
            if length < 0:
                raise StockReaderError(f"padding stands where entry {skipped} belongs")
            if self._long() != skipped:
                raise StockReaderError(f"another entry stands where {skipped} belongs")
            self._bytes(length)
        self.skipped = max(self.skipped, self._stream.tell() - begin)

    def _read_on(self, first: int, last: int) -> list[bytes]:
        found: list[bytes] = []
        sought, lost = False, -1
        if self._length - self._stream.tell() < 12:
            self._stream.seek(self._offsets[self._floor(first)])
        while len(found) <= last - first:
            expected = first + len(found)
            length = self._int()
            if length < 0:
                lost = self._going_round(lost, expected)
                self._stream.seek(self._offsets[self._floor(expected)])
                continue
            entry = self._long()
            if entry == expected:
                found.append(self._bytes(length))
            elif expected < entry < last or (entry < expected and self._floor(entry) != self._floor(expected)):
                self._stream.seek(self._offsets[self._floor(expected)])
            elif entry > last:
                if sought:
                    raise StockReaderError(f"entry {entry} stands where {expected} belongs")
                self._stream.seek(self._offsets[self._floor(expected)])
                sought = True
            else:
                self._bytes(length)
        return found

    @staticmethod
    def _going_round(lost: int, at: int) -> int:
        if lost == at:
            raise StockReaderError("it seeks for ever: the index leads to padding again and again")
        return at

    def _floor(self, entry: int) -> int:
        number = bisect_right(self._entries, entry) - 1
        if number < 0:
            raise StockReaderError(f"the index has nothing at or before entry {entry}")
        return number

    def _int(self) -> int:
        return int(unpack(">i", self._bytes(4))[0])

    def _long(self) -> int:
        return int(unpack(">q", self._bytes(8))[0])

    def _bytes(self, count: int) -> bytes:
        found = self._stream.read(count)
        if len(found) < count:
            raise EOFError
        return found
