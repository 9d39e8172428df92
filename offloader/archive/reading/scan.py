"""Entries in fetched bytes: many at a time, without an object for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.read_model import EntryRun
from offloader.archive.reading.fetches import RangeFetch
from offloader.archive.reading.index_interval import Building, IndexInterval
from offloader.archive.reading.sparse_index import SparseIndex
from offloader.errors import DamagedObjectError
from offloader.format.blocks import HEADER_SIZE, decode_header


@dataclass(frozen=True, slots=True)
class BrokenEntry:
    """Where entry `ledger`:`entry` belongs, bytes are not what they must be; `why` names the offset."""

    ledger: int
    entry: int
    why: str


class Scanner:
    """Goes over the fetches of one object, in their order.

    After a fault it goes on at the next stretch; at the next block where a block's header is wrong. What it holds from
    one fetch to the next is the beginning of one entry. `headers` counts those that were right.
    """

    def __init__(self, points: SparseIndex, incarnation: int) -> None:
        self.headers = 0
        self._points = points
        self._incarnation = incarnation
        self._bad_block = -1
        self._stretch: IndexInterval | None = None  # None: nothing more can be read of it

    def scan(self, fetch: RangeFetch, data: bytes) -> list[EntryRun | BrokenEntry]:
        """The entries in a fetch's bytes. They are fewer than asked for only at the object's end."""
        building = Building(self._incarnation, memoryview(data), fetch.begin)
        found: list[EntryRun | BrokenEntry] = []
        for number in range(fetch.first, fetch.after):
            try:
                if not fetch.continues:
                    self._stretch = self._begin(number, building)
                if self._stretch is not None:
                    self._stretch.go_on(building)
                    self._check_length(self._stretch, building, fetch)
            except DamagedObjectError as error:
                found += building.finished()
                found.append(self._fault(number, error))
        found += building.finished()
        return found

    def check_header(self, number: int, header: bytes | memoryview) -> None:
        """Whether the block of a point has this header: nothing else in a block says whose it is. Raises
        DamagedObjectError."""
        first, after = self._points.block_of(number)
        begin, end = self._points.offsets[first], self._points.begin(after)
        said = decode_header(header, begin)
        ledger, entry = self._points.ledgers[first], self._points.entries[first]
        # A V1 header names no ledger.
        if (said.ledger in (ledger, None), said.first_entry, begin + said.length) != (True, entry, end):
            self._bad_block = self._points.blocks[number]
            raise DamagedObjectError(
                f"offset {begin}: a block of {said.ledger}:{said.first_entry} up to offset {begin + said.length}, "
                f"where the index has {ledger}:{entry} up to {end}"
            )
        self.headers += 1

    def _begin(self, number: int, building: Building) -> IndexInterval | None:
        if self._points.blocks[number] == self._bad_block:
            return None
        if self._points.opens(number):
            self._stretch = None
            at = self._points.offsets[number] - building.offset
            self.check_header(number, building.view[at : at + HEADER_SIZE])
        return IndexInterval(self._points, number)

    def _check_length(self, stretch: IndexInterval, building: Building, fetch: RangeFetch) -> None:
        if building.end < min(stretch.end, fetch.end):
            missing = self._points.data_length - building.end
            raise DamagedObjectError(f"offset {building.end}: the object ends here, {missing} bytes are missing")

    def _fault(self, number: int, error: DamagedObjectError) -> BrokenEntry:
        stretch, self._stretch = self._stretch, None
        entry = self._points.entries[number] if stretch is None else stretch.entry
        return BrokenEntry(self._points.ledgers[number], entry, str(error))
