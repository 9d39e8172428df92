"""How a ledger's V1 data object is put together: whole blocks of the segments that hold it, copied as they are, and
between them blocks cut anew of the entries that bookies had. Pure.

Where a ledger's blocks lie says the segment's index, what their bytes are says the catalog. They may be V2 blocks, with
a part's index behind the last one's padding, or V1 blocks. The first 128 bytes are ours: a V1 header, whose magic is a
negative number. Brokers before 3.0.14 and 4.0.7 read on from the object's begin where they open it, and take V2's magic
for the length of an entry 128. The same coverage, indexes and filled entries give the same bytes and the same index,
however they are uploaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, islice, pairwise

from crc32c import crc32c

from offloader._proto.managed_ledger_pb2 import LedgerMetadataFormat
from offloader.bookkeeper.model import DigestType, LedgerMetadata
from offloader.bridge.core.coverage import LedgerCoverage
from offloader.bridge.core.pieces import LEAST_PART, ObjectPlan, PartSizes, PlannedPiece, SourceRange, upload_parts
from offloader.errors import IntegrityError
from offloader.format.blocks import HEADER_SIZE, BlockHeader
from offloader.format.crc import combine
from offloader.format.cutter import PartCutter
from offloader.format.entry import UNREADABLE
from offloader.format.index import Index, IndexEntry
from offloader.model import V1, EntryRange, Segment, SegmentLayout
from offloader.ports.entry_source import RawEntry

MOST_INDEXED = 1 << 16  # entries of an index that brokers read whole, and keep, for each ledger that they open
_ANY_SIZE = 1 << 62
_FILLED_CUTS = SegmentLayout(part_size=_ANY_SIZE)
OWNER = "pulsar/managed-ledger"  # whose ledger it is: Pulsar's name of the topic, `tenant/ns/persistent/topic`
_OURS = {"application": b"pulsar", "component": b"managed-ledger"}


@dataclass(frozen=True, slots=True)
class SourceObject:
    """A segment's data object: its key in the archive's root, and its decoded index object."""

    key: str
    index: Index


@dataclass(frozen=True, slots=True)
class _Run:
    """Blocks that are copied, or entries that are cut anew, for entries `first` and those after it."""

    first: int
    pieces: tuple[SourceRange | bytes, ...]
    index: tuple[IndexEntry, ...]  # blocks from 1, offsets from 0
    blocks: int


def assemble(
    coverage: LedgerCoverage,
    sources: Mapping[str, SourceObject],
    filled: Iterable[RawEntry],
    *,
    copy_size: int,
    least_part: int = LEAST_PART,
    server_copies: bool = True,
) -> ObjectPlan:
    """Plan the data object. `sources`: by the uuids of the coverage's segments. `filled`: exactly the entries that it
    misses, in order. `server_copies` False: the store copies nothing by itself.

    Raises IntegrityError where index, record and filled entries do not make the whole ledger.
    """
    entries = tuple(filled)
    runs = [*_filled_runs(coverage, entries)]
    for segment, held in zip(coverage.segments, coverage.held, strict=True):
        runs += _held_runs(segment, held, sources[segment.uuid])
    runs.sort(key=lambda run: run.first)
    pieces, index = _joined(runs)
    if not _begins_with_v1(coverage):
        pieces = _with_v1_header(pieces, coverage.ledger, _first_block(index, pieces[-1].end))
    return ObjectPlan(
        upload_parts(pieces, PartSizes(copy_size, least_part, server_copies=server_copies)),
        pieces,
        thinned(index),
        pieces[-1].end,
        coverage.length + sum(len(entry.data) for entry in entries),
        len(entries),
    )


def thinned(index: tuple[IndexEntry, ...], most: int = MOST_INDEXED) -> tuple[IndexEntry, ...]:
    """An index of a very large ledger with longer steps, as far as that makes it shorter: readers need each block's
    first entry."""
    if len(index) <= most:
        return index
    step = -(-(index[-1].offset - index[0].offset) // most)
    kept = index[:1]
    found = list(kept)
    for entry, following in zip(index[1:], (*index[2:], None), strict=True):
        begins = entry.block != found[-1].block
        if begins or following is None or following.offset - found[-1].offset > step:
            found.append(entry)
    return tuple(found)


def _filled_runs(coverage: LedgerCoverage, entries: tuple[RawEntry, ...]) -> Iterator[_Run]:
    wanted = [(coverage.ledger, entry) for missing in coverage.missing for entry in missing.ids]
    if [entry[:2] for entry in entries] != wanted:
        raise IntegrityError(
            f"ledger {coverage.ledger}: {len(entries)} filled entries are not the {len(wanted)} wanted"
        )
    at = 0
    for missing in coverage.missing:
        yield _cut(missing, entries[at : at + missing.span])
        at += missing.span


def _cut(missing: EntryRange, entries: tuple[RawEntry, ...]) -> _Run:
    cutter = PartCutter(_FILLED_CUTS, first_part=1, offset=0, first_block=1, room=_ANY_SIZE)
    for ledger, entry, data in entries:
        cutter.offer(ledger, entry, data, UNREADABLE)
    part = cutter.finish()
    if part is None:
        raise IntegrityError(f"nothing fills {missing}")
    return _Run(missing.first, (part.data(),), part.index, part.blocks)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block in a segment's data object; `index`: its entries of the index object."""

    first: int
    begin: int
    end: int
    index: tuple[IndexEntry, ...]


def _held_runs(segment: Segment, held: tuple[EntryRange, ...], source: SourceObject) -> Iterator[_Run]:
    """A run for what lies between two gaps."""
    blocks = list(_blocks(segment, source, held[0].ledger))
    parts = _Parts(segment, source.key)
    at = 0
    for each in held:
        begin, at = at, bisect_left(blocks, each.after, lo=at, key=lambda block: block.first)
        if begin == at or blocks[begin].first != each.first:
            raise IntegrityError(
                f"segment {segment.uuid}: its record has entries from {each.first} to {each.last} without a gap, its "
                "index has no block that begins with them"
            )
        yield _run(parts, blocks[begin:at])
    if at < len(blocks):
        raise IntegrityError(f"segment {segment.uuid}: its index has a block from entry {blocks[at].first} on")


def _run(parts: _Parts, blocks: list[_Block]) -> _Run:
    begin, end = blocks[0].begin, blocks[-1].end
    if any(after.begin != before.end for before, after in pairwise(blocks)):
        raise IntegrityError(f"segment {parts.segment.uuid}: other blocks lie between those of one ledger")
    index = tuple(
        IndexEntry(entry.ledger, entry.entry, number, entry.offset - begin)
        for number, block in enumerate(blocks, 1)
        for entry in block.index
    )
    return _Run(blocks[0].first, tuple(parts.between(begin, end)), index, len(blocks))


def _blocks(segment: Segment, source: SourceObject, ledger: int) -> Iterator[_Block]:
    """The ledger's blocks, in order: each ends where the next one of the object begins."""
    length = source.index.data_length
    if length != segment.size:
        raise IntegrityError(f"segment {segment.uuid} has {segment.size} bytes, and {length} as its index says")
    entries = sorted(source.index.entries(), key=lambda entry: entry.offset)
    grouped = [tuple(group) for _, group in groupby(entries, key=lambda entry: (entry.ledger, entry.block))]
    ends = [*(group[0].offset for group in grouped[1:]), length]
    for group, end in zip(grouped, ends, strict=True):
        if group[0].ledger == ledger:
            yield _Block(group[0].entry, group[0].offset, end, group)


class _Parts:
    """A segment's data object as the catalog has it, part by part, with their sums."""

    def __init__(self, segment: Segment, key: str) -> None:
        self.segment = segment
        self._key = key
        self._begins = [part.offset for part in segment.parts]

    def between(self, begin: int, end: int) -> Iterator[SourceRange]:
        at, number = begin, bisect_right(self._begins, begin) - 1
        for part in islice(self.segment.parts, max(number, 0), None):
            after = min(part.offset + part.size, end)
            if not part.offset <= at < after:
                break
            whole = after - at == part.size
            yield SourceRange(self._key, at, after - at, part.crc32c if whole else None)
            at = after
        if at != end:
            raise IntegrityError(f"segment {self.segment.uuid}: its parts do not hold what is from {at} to {end}")


def _joined(runs: list[_Run]) -> tuple[tuple[PlannedPiece, ...], tuple[IndexEntry, ...]]:
    """The pieces and index entries of runs behind each other, where they are in the whole."""
    pieces: list[PlannedPiece] = []
    index: list[IndexEntry] = []
    at = blocks = 0
    for run in runs:
        index += (IndexEntry(e.ledger, e.entry, blocks + e.block, at + e.offset) for e in run.index)
        blocks += run.blocks
        for source in run.pieces:
            pieces.append(PlannedPiece.of(source, at))
            at = pieces[-1].end
    return tuple(pieces), tuple(index)


def _begins_with_v1(coverage: LedgerCoverage) -> bool:
    """Whether entry 0 is in a block that brokers' own offloader wrote."""
    first = coverage.segments[0] if coverage.segments and coverage.held[0][0].first == 0 else None
    return first is not None and first.cuts.version == V1


def _first_block(index: tuple[IndexEntry, ...], size: int) -> int:
    """The length of the object's first block."""
    return next((entry.offset for entry in index if entry.block == 2), size)


def _with_v1_header(pieces: tuple[PlannedPiece, ...], ledger: int, length: int) -> tuple[PlannedPiece, ...]:
    """With V1's header in the place of the first V2 header, which is known: so is the sum of what follows it."""
    header = PlannedPiece.of(BlockHeader(1, length, 0, None).encode(), 0)
    former = crc32c(BlockHeader(2, length, 0, ledger).encode())
    whole = pieces[0]
    rest = whole.between(HEADER_SIZE, whole.end)
    if isinstance(rest.source, SourceRange) and whole.crc32c is not None:
        without = whole.crc32c ^ combine([(former, HEADER_SIZE), (0, rest.size)])
        rest = PlannedPiece.of(rest.source._replace(crc32c=without), rest.offset)
    return header, rest, *pieces[1:]


def index_metadata(last: int, length: int, managed_ledger: str, created_ms: int, known: LedgerMetadata | None) -> bytes:
    """The encoded LedgerMetadataFormat of a closed ledger with entries 0 to `last`, together `length` bytes.

    `known`: BookKeeper's metadata of it, None where they are gone; they are kept but for what nobody needs to read
    what is offloaded (password, token). `created_ms` counts where they say none. Raises IntegrityError where
    BookKeeper says that the ledger has another end or length: what we hold then is not all of it.
    """
    if known is not None and known.closed and (known.last_entry, known.length) != (last, length):
        raise IntegrityError(
            f"BookKeeper's ledger ends with entry {known.last_entry} and has {known.length} bytes, the archive's with "
            f"entry {last} and {length}"
        )
    message = _shape(known)
    message.length, message.lastEntryId, message.state = length, last, LedgerMetadataFormat.CLOSED
    created = None if known is None else known.created_ms
    message.ctime = created_ms if created is None else created
    custom = {} if known is None else dict(known.custom)
    for key, value in sorted(({**_OURS, OWNER: managed_ledger.encode()} | custom).items()):
        message.customMetadata.add(key=key, value=value)
    return message.SerializeToString(deterministic=True)


def _shape(known: LedgerMetadata | None) -> LedgerMetadataFormat:
    if known is None:
        return LedgerMetadataFormat(
            quorumSize=1, ensembleSize=1, ackQuorumSize=1, digestType=LedgerMetadataFormat.DigestType.CRC32C
        )
    message = LedgerMetadataFormat(
        quorumSize=known.write_quorum,
        ensembleSize=known.ensemble_size,
        ackQuorumSize=known.ack_quorum,
        digestType=DigestType(known.digest).name,
    )
    for fragment in known.fragments:
        message.segment.add(ensembleMember=fragment.ensemble, firstEntryId=fragment.first_entry)
    return message
