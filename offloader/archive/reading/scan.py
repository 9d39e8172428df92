"""Entries in fetched bytes: many at a time, without an object for each. Pure."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING

from offloader.archive.items import EntryRun
from offloader.archive.reading.sparse_index import RangeFetch, SparseIndex
from offloader.errors import DamagedObjectError
from offloader.format.blocks import ENTRY_HEADER, ENTRY_HEADER_SIZE, HEADER_SIZE, decode_header, end_fault

if TYPE_CHECKING:
    import numpy as np

ALIKE = 8  # entries of one length, after which more of it are expected


class Building:
    """The runs of entries in one buffer, which begins at `offset` of the object."""

    def __init__(self, incarnation: int, view: memoryview, offset: int) -> None:
        self.view = view
        self.offset = offset
        self.end = offset + len(view)
        self._incarnation = incarnation
        self._done: list[EntryRun] = []
        self._ledger, self._first, self._next = -1, 0, 0
        self._bounds = array("q")

    def walk(self, ledger: int, entry: int, at: int, limit: int) -> tuple[int, int]:
        """Take the whole entries from `at` of the buffer on; where they end, and the entry id that belongs there."""
        if (ledger, entry) != (self._ledger, self._next):
            self._close()
            self._ledger, self._first = ledger, entry
        at, self._next = _walk(self.view, at, limit, entry, self._bounds)
        return at, self._next

    def add(self, ledger: int, entry: int, data: bytes, offset: int) -> None:
        """An entry that began in an earlier buffer; `data` has its header too."""
        self._close()
        bounds = array("q", (ENTRY_HEADER_SIZE, len(data)))
        self._done.append(EntryRun(ledger, entry, self._incarnation, memoryview(data), bounds, offset))

    def finished(self) -> list[EntryRun]:
        """The runs since this was asked last."""
        self._close()
        done, self._done = self._done, []
        return done

    def _close(self) -> None:
        if self._bounds:
            self._done.append(
                EntryRun(self._ledger, self._first, self._incarnation, self.view, self._bounds, self.offset)
            )
            self._bounds = array("q")
        self._ledger = -1


class IndexInterval:
    """Goes over an interval's bytes. `at` is the offset of what comes next, `entry` the id that belongs there."""

    def __init__(self, index: SparseIndex, number: int) -> None:
        self.ledger = index.ledgers[number]
        self.entry = index.entries[number]
        self.at = index.offsets[number] + HEADER_SIZE
        self.end = index.begin(number + 1)
        closes = number + 1 == len(index) or index.opens(number + 1)
        self._follower = None if closes else index.entries[number + 1]
        self._begun = bytearray()  # an entry of which the rest is in later buffers
        self._padding: int | None = None  # where it begins

    def go_on(self, building: Building) -> None:
        """Take what the next buffer has. Raises DamagedObjectError."""
        if self._begun:
            self._end_begun(building)
        if not self._begun and self._padding is None and self.at <= building.end:
            self._walk(building)
        if self._padding is not None:
            self._check_padding(building, self._padding)

    def _walk(self, building: Building) -> None:
        limit = min(self.end, building.end) - building.offset
        at, self.entry = building.walk(self.ledger, self.entry, self.at - building.offset, limit)
        self.at = building.offset + at
        if self.end - self.at < ENTRY_HEADER_SIZE:
            self._padding = self.at
        elif limit - at < ENTRY_HEADER_SIZE or self._is_entry(building.view, at, self.at):
            self._begun += building.view[at:limit]
            self.at = building.offset + limit
        else:
            self._padding = self.at

    def _is_entry(self, data: memoryview | bytearray, at: int, offset: int) -> bool:
        """Whether the entry that belongs here begins in the data, and not padding. Raises DamagedObjectError."""
        length, found = ENTRY_HEADER.unpack_from(data, at)
        if length < 0:
            return False
        if found != self.entry:
            raise DamagedObjectError(f"offset {offset + 4}: entry {found} stands where {self.entry} belongs")
        if offset + ENTRY_HEADER_SIZE + length > self.end:
            raise DamagedObjectError(f"offset {offset}: entry {found} of {length} bytes is cut off")
        return True

    def _end_begun(self, building: Building) -> None:
        begun, offset = self._begun, self.at - len(self._begun)
        self._fill(building, ENTRY_HEADER_SIZE)
        if len(begun) < ENTRY_HEADER_SIZE:
            return
        if not self._is_entry(begun, 0, offset):
            self.at, self._padding = offset, offset
            self._check(memoryview(bytes(begun)), 0)
            self.at += len(begun)
            begun.clear()
            return
        size = ENTRY_HEADER_SIZE + ENTRY_HEADER.unpack_from(begun)[0]
        self._fill(building, size)
        if len(begun) == size:
            building.add(self.ledger, self.entry, bytes(begun), offset)
            self.entry += 1
            begun.clear()

    def _fill(self, building: Building, size: int) -> None:
        """Let what has begun grow to a size, as far as the buffer goes."""
        at = self.at - building.offset
        more = building.view[at : at + max(size - len(self._begun), 0)]
        self._begun += more
        self.at += len(more)

    def _check_padding(self, building: Building, begin: int) -> None:
        if self._follower is not None and (begin, self.entry) != (self.end, self._follower):
            raise DamagedObjectError(
                f"offset {begin}: the entries end here, and the index has {self._follower} at {self.end}"
            )
        padding = building.view[self.at - building.offset : self.end - building.offset]
        self._check(padding, self.at - begin)
        self.at += len(padding)

    def _check(self, data: memoryview, done: int) -> None:
        fault = end_fault(data, done)
        if fault is not None:
            raise DamagedObjectError(f"offset {self.at + fault}: neither an entry nor padding")


def _walk(view: memoryview, at: int, limit: int, entry: int, bounds: array[int]) -> tuple[int, int]:
    """The inner loop of all reading: slices and objects for entries would take several times as long."""
    unpack, add = ENTRY_HEADER.unpack_from, bounds.append
    last = limit - ENTRY_HEADER_SIZE
    length, leaping = 0, True
    while at <= last:
        begun = at
        for _ in repeat(None, ALIKE):
            if at > last:
                return at, entry
            length, found = unpack(view, at)
            begin = at + ENTRY_HEADER_SIZE
            end = begin + length
            if found != entry or length < 0 or end > limit:
                return at, entry
            add(begin)
            add(end)
            at = end
            entry += 1
        if leaping and at - begun == ALIKE * (length + ENTRY_HEADER_SIZE):
            more = _leap(view, at, limit, entry, length, bounds)
            at += more * (length + ENTRY_HEADER_SIZE)
            entry += more
            leaping = more >= ALIKE
    return at, entry


def _leap(view: memoryview, at: int, limit: int, entry: int, length: int, bounds: array[int]) -> int:
    """Take the entries that are as long as those before them, and say how many: a producer's messages often are."""
    import numpy as np  # takes 0.1 s, and commands that read no entries do without

    stride = length + ENTRY_HEADER_SIZE
    most = (limit - at) // stride
    headers = np.ndarray((most,), _header(), view, at, (stride,))
    alike = (headers["length"] == length) & (headers["entry"] == np.arange(entry, entry + most))
    count = most if alike.all() else int(alike.argmin())
    ends = np.arange(1, count + 1, dtype=np.int64) * stride + at
    bounds.frombytes(np.column_stack((ends - length, ends)).tobytes())
    return count


@cache
def _header() -> np.dtype[np.void]:
    import numpy as np

    return np.dtype([("length", ">i4"), ("entry", ">i8")])


@dataclass(frozen=True, slots=True)
class BrokenEntry:
    """Where entry `ledger`:`entry` belongs, bytes are not what they must be; `why` names the offset."""

    ledger: int
    entry: int
    why: str


class Scanner:
    """Goes over the fetches of one object, in order. `headers` counts those that were right.

    After a fault it goes on at the next interval, after a wrong header at the next block. From one fetch to the next it
    holds the beginning of one entry.
    """

    def __init__(self, index: SparseIndex, incarnation: int) -> None:
        self.headers = 0
        self._index = index
        self._incarnation = incarnation
        self._bad_block = -1
        self._interval: IndexInterval | None = None  # None: nothing more can be read of it

    def scan(self, fetch: RangeFetch, data: bytes) -> list[EntryRun | BrokenEntry]:
        """The entries in a fetch's bytes. They are fewer than asked for only at the object's end."""
        building = Building(self._incarnation, memoryview(data), fetch.begin)
        found: list[EntryRun | BrokenEntry] = []
        for number in range(fetch.first, fetch.after):
            try:
                if not fetch.continues:
                    self._interval = self._begin(number, building)
                if self._interval is not None:
                    self._interval.go_on(building)
                    if building.end < min(self._interval.end, fetch.end):
                        missing = self._index.data_length - building.end
                        raise DamagedObjectError(
                            f"offset {building.end}: the object ends here, {missing} bytes are missing"
                        )
            except DamagedObjectError as error:
                found += building.finished()
                found.append(self._fault(number, error))
        found += building.finished()
        return found

    def check_header(self, number: int, header: bytes | memoryview) -> None:
        """Whether a point's block has this header: only that says whose the block is. Raises DamagedObjectError."""
        first, after = self._index.block_of(number)
        begin, end = self._index.offsets[first], self._index.begin(after)
        said = decode_header(header, begin)
        ledger, entry = self._index.ledgers[first], self._index.entries[first]
        # A V1 header names no ledger.
        if (said.ledger in (ledger, None), said.first_entry, begin + said.length) != (True, entry, end):
            self._bad_block = self._index.blocks[number]
            raise DamagedObjectError(
                f"offset {begin}: a block of {said.ledger}:{said.first_entry} up to offset {begin + said.length}, "
                f"where the index has {ledger}:{entry} up to {end}"
            )
        self.headers += 1

    def _begin(self, number: int, building: Building) -> IndexInterval | None:
        if self._index.blocks[number] == self._bad_block:
            return None
        if self._index.opens(number):
            self._interval = None
            at = self._index.offsets[number] - building.offset
            self.check_header(number, building.view[at : at + HEADER_SIZE])
        return IndexInterval(self._index, number)

    def _fault(self, number: int, error: DamagedObjectError) -> BrokenEntry:
        interval, self._interval = self._interval, None
        entry = self._index.entries[number] if interval is None else interval.entry
        return BrokenEntry(self._index.ledgers[number], entry, str(error))
