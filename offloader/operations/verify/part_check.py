"""One pass over a data object, part by part: CRC32C, entries against the record, their own checksums, statistics."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from offloader.archive.findings import Finding, FindingKind, offset_in
from offloader.archive.object_range import runs
from offloader.errors import DamagedObjectError, DamagedRecordError
from offloader.format.entry import fault, inspect
from offloader.format.reader import Block, BlockEntry, entries, read_blocks
from offloader.format.stats import StatsBuilder
from offloader.model import Part, Position, Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_ranges


class PartStream:
    """The parts' bytes, one part in memory at a time, checked on the way. `damaged`: a part is not as recorded."""

    def __init__(self, store: ObjectStore, topic: TopicName, segment: Segment, key: str) -> None:
        self.findings: list[Finding] = []
        self.damaged = False
        self._store = store
        self._topic = topic
        self._segment = segment
        self._key = key
        self._expected = _positions(segment)
        self._wrong_entries = False

    def __iter__(self) -> Iterator[bytes]:
        for part in self._segment.parts:
            data = b"".join(read_ranges(self._store, self._key, part.offset, part.offset + part.size))
            found = crc32c(data)
            if found != part.crc32c:
                self.damaged = True
                recorded = f"the catalog says {part.crc32c:08x}"
                message = f"part {part.number} of {part.size} bytes has CRC32C {found:08x}, {recorded}"
                self._add(FindingKind.DAMAGED_PART, message, part.offset)
            elif not self.damaged:
                self._check_entries(part, data)
            yield data

    def finish(self) -> None:
        """After the last part: nothing that the record names may be left."""
        left = next(self._expected, None)
        if left is not None and not self.damaged and not self._wrong_entries:
            self._add(FindingKind.WRONG_ENTRIES, f"{left[0]}:{left[1]} is missing at the end", None, left)

    def _check_entries(self, part: Part, data: bytes) -> None:
        stats = StatsBuilder()
        try:
            for block in read_blocks(data, part.offset):
                for stored in entries(block):
                    self._check_entry(part, block, stored, stats)
        except DamagedObjectError as error:
            self._add(FindingKind.UNACCOUNTED_BYTES, str(error), offset_in(str(error)))
            self.damaged = True
            return
        if stats.build() != part.stats:
            message = f"part {part.number} has {stats.build()}, the catalog says {part.stats}"
            self._add(FindingKind.WRONG_STATISTICS, message, part.offset)

    def _check_entry(self, part: Part, block: Block, stored: BlockEntry, stats: StatsBuilder) -> None:
        ledger = self._segment.v1_ledger if block.header.ledger is None else block.header.ledger
        found = (ledger, stored.entry)
        expected = next(self._expected, None)
        if found != expected and not self._wrong_entries:
            self._wrong_entries = True  # everything after it is shifted
            belongs = "nothing" if expected is None else f"{expected[0]}:{expected[1]}"
            message = f"{found[0]}:{found[1]} stands where {belongs} belongs"
            self._add(FindingKind.WRONG_ENTRIES, message, stored.offset, expected)
        facts = inspect(stored.data)
        stats.add(facts)
        if facts.unreadable and not part.stats.unreadable:
            message = f"{found[0]}:{found[1]}: {fault(stored.data) or 'it is no message'}"
            self._add(FindingKind.DAMAGED_ENTRY, message, stored.offset, (found[0] or 0, found[1]))

    def _add(self, kind: FindingKind, message: str, offset: int | None, at: tuple[int, int] | None = None) -> None:
        position = None if at is None else Position(self._segment.start.incarnation, *at)
        self.findings.append(Finding(kind, self._key, message, self._topic, offset, position))


def _positions(segment: Segment) -> Iterator[tuple[int, int]]:
    """What the object must hold, in order; nothing, of a record that contradicts itself (a finding of its own)."""
    try:
        found = runs(segment)
    except DamagedRecordError:
        return
    for run in found:
        if run.gap is None:
            yield from ((run.ledger, entry) for entry in run.ids)
