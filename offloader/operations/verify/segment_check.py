"""A segment's two objects against its record: quickly (there, of the right size, a readable index), or byte for
byte: one pass over the data object, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from offloader.archive.findings import Finding, FindingKind, offset_in
from offloader.archive.object_range import runs
from offloader.errors import DamagedObjectError, DamagedRecordError, ObjectArchivedError, ObjectNotFoundError
from offloader.format.blocks import Block, BlockEntry, entries, read_blocks
from offloader.format.entry import fault, inspect
from offloader.format.index import Index, decode_index
from offloader.format.many import StatsBuilder
from offloader.format.strict import account, check_ledger_infos
from offloader.metadata.layout import data_key, index_key
from offloader.model import V3, Part, Position, Segment, TopicName
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.bounded_reads import naming, read_index, read_ranges

# The one key that Pulsar's readers look for in an object's metadata.
VERSION_KEY = "s3managedledgeroffloaderformatversion"


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


def check_objects(store: ObjectStore, topic: TopicName, segment: Segment, *, quick: bool) -> list[Finding]:
    """What is wrong with a segment's objects; a segment without entries has none. `quick` needs no parts. Raises what
    the stores raise."""
    if not (segment.size if quick else segment.parts):
        return []
    checks = _SegmentCheck(store, topic, segment)
    there = checks.data_is_there()
    index = checks.index()
    if there and index is not None and not quick:
        checks.contents(index)
    return checks.findings


class _SegmentCheck:
    def __init__(self, store: ObjectStore, topic: TopicName, segment: Segment) -> None:
        self.findings: list[Finding] = []
        self._store = store
        self._topic = topic
        self._segment = segment
        self._data_key = data_key(topic, segment.uuid)
        self._index_key = index_key(topic, segment.uuid)

    def data_is_there(self) -> bool:
        """Whether the data object is there as a whole."""
        key, segment = self._data_key, self._segment
        stat = self._store.stat(key)
        if stat is None:
            self._add(FindingKind.MISSING_OBJECT, key, f"the catalog's segment {segment.uuid} has no data object")
            return False
        self._check_metadata(key, stat)
        if stat.size != segment.size:
            self._add(FindingKind.WRONG_SIZE, key, f"it has {stat.size} bytes, the catalog says {segment.size}")
        return stat.size == segment.size

    def index(self) -> Index | None:
        """The index, where it is there and sound."""
        key, segment = self._index_key, self._segment
        try:
            data, stat = read_index(self._store, key)
            index = decode_index(data)
            with_entries = [ledger for ledger in segment.ledgers if ledger.count]
            check_ledger_infos(index, with_entries, segment.offloaded_at)
        except ObjectNotFoundError:
            self._add(FindingKind.MISSING_INDEX, key, f"the catalog's segment {segment.uuid} has no index object")
            return None
        except ObjectArchivedError as error:
            self._add(FindingKind.ARCHIVED_OBJECT, key, str(error))
            return None
        except DamagedObjectError as error:
            self._add(FindingKind.DAMAGED_INDEX, key, str(error))
            return None
        self._check_metadata(key, stat)
        if index.data_length != segment.size:
            message = f"it is of an object of {index.data_length} bytes, the catalog's has {segment.size}"
            self._add(FindingKind.DAMAGED_INDEX, key, message)
            return None
        return index

    def contents(self, index: Index) -> None:
        """Every byte, in one pass."""
        try:
            self._contents(index)
        except ObjectArchivedError as error:
            self._add(FindingKind.ARCHIVED_OBJECT, self._data_key, str(error))

    def _contents(self, index: Index) -> None:
        stream = PartStream(self._store, self._topic, self._segment, self._data_key)
        damage: DamagedObjectError | None = None
        parts = iter(stream)
        try:
            with naming(self._data_key):
                account(
                    parts,
                    index,
                    own=True,
                    equal_parts=self._segment.cuts.version == V3,
                    v1_ledger=self._segment.v1_ledger,
                )
        except DamagedObjectError as error:
            damage = error
        for _ in parts:  # the other parts' checks
            pass
        stream.finish()
        self.findings += stream.findings
        if damage is not None and not stream.damaged:
            # The parts are those that were recorded, block by block: then the index is of something else.
            self._add(FindingKind.DAMAGED_INDEX, self._index_key, str(damage))

    def _check_metadata(self, key: str, stat: Stat) -> None:
        # Stock readers read from S3; a folder may be unable to keep metadata.
        if self._store.url.startswith("s3://") and VERSION_KEY not in stat.meta:
            self._add(FindingKind.WRONG_METADATA, key, f"it has no metadata {VERSION_KEY}")

    def _add(self, kind: FindingKind, key: str, message: str) -> None:
        text = message.removeprefix(f"{key}: ")
        self.findings.append(Finding(kind, key, text, self._topic, offset_in(text), self._segment.start))
