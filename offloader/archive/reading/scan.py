"""Entries in fetched bytes: many at a time, without an object for each. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from offloader.archive.items import EntryRun
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
