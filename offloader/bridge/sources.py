"""What a ledger is bridged of, read and proven as far as that is possible before the first byte is written: the
catalog's records, the segments' index objects, what is known of parts of which not all is taken, and from bookies the
entries that segments do not have."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from crc32c import crc32c

from offloader.bookkeeper.api import EntryBookies, LedgerMetadataStore
from offloader.bookkeeper.model import LedgerMetadata
from offloader.bookkeeper.reading import LedgerReader
from offloader.bridge.core.assembly import SourceObject
from offloader.bridge.core.coverage import LedgerCoverage, UncommittedLedger, cover
from offloader.bridge.core.pieces import PlannedPiece, SourceRange
from offloader.bridge.core.rounds import BridgeVerdict, UnbridgedLedger
from offloader.bridge.transfer import absent, content_of
from offloader.errors import (
    DamagedObjectError,
    EntryNotFoundError,
    IntegrityError,
    LedgerNotFoundError,
    ObjectNotFoundError,
)
from offloader.format.index import Index, decode_index
from offloader.metadata import layout
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import Tombstone
from offloader.metadata.history import History, RecordCache
from offloader.metadata.state import CatalogHead
from offloader.model import MIB, Loss, Part, Position, Segment, TopicName
from offloader.ports.entry_source import RawEntry
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import naming, read_index

READ_AHEAD = 16 * MIB
MOST_FILLED = 512 * MIB  # of all ledgers that are built at a time; they are in memory until each is built
READ_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LedgerBookies:
    """Where entries are that brokers keep back."""

    metadata: LedgerMetadataStore
    bookies: EntryBookies


@dataclass(frozen=True, slots=True)
class LedgerSources:
    """Of one ledger. `etags`: of the segments' data objects, by key. `known`: BookKeeper's record; None: it is gone."""

    coverage: LedgerCoverage
    objects: Mapping[str, SourceObject]
    etags: Mapping[str, str]
    filled: tuple[RawEntry, ...]
    known: LedgerMetadata | None
    requests: int


def read_coverage(
    catalogs: Catalogs, cache: RecordCache, topic: TopicName, ledger: int, last: int
) -> LedgerCoverage | UnbridgedLedger | UncommittedLedger:
    """What the catalog says of a closed ledger now. Raises IntegrityError, and what the store raises. `cache`: what was
    read for the ledgers before it."""
    known = cache.get(head_of(topic), CatalogHead)
    history = catalogs.history(topic, known, cache)
    cache.put(head_of(topic), history.head)
    records = list(_records(history, ledger))
    segments = (each for each in records if not isinstance(each, Loss))
    losses = (each for each in records if isinstance(each, Loss))
    return cover(segments, losses, _deleted_up_to(history.head, ledger), ledger, last)


def head_of(topic: TopicName) -> str:
    """Under which name the cache has a topic's head."""
    return f"head of {topic}"


def read_sources(
    archive: ObjectStore, topic: TopicName, coverage: LedgerCoverage, bookies: LedgerBookies | None
) -> LedgerSources | UnbridgedLedger:
    """Raises IntegrityError where a segment is damaged or absent, BookieUnavailableError, MetadataUnavailableError, and
    what the store raises."""
    known = None if bookies is None else _metadata(bookies, coverage.ledger)
    filled = _filled(bookies, coverage, known)
    if isinstance(filled, UnbridgedLedger):
        return filled
    objects: dict[str, SourceObject] = {}
    etags: dict[str, str] = {}
    for segment in coverage.segments:
        key = layout.data_key(topic, segment.uuid)
        etags[key] = _etag(archive, key, segment)
        objects[segment.uuid] = SourceObject(key, _index(archive, layout.index_key(topic, segment.uuid)))
    return LedgerSources(coverage, objects, etags, filled, known, 2 * len(objects))


def with_known_sums(archive: ObjectStore, sources: LedgerSources, piece: PlannedPiece) -> PlannedPiece:
    """A piece of which the catalog knows only the whole part's sum: that part is read, and proven by its sum. Raises
    IntegrityError."""
    source = piece.source
    if piece.crc32c is not None or isinstance(source, bytes):
        return piece
    part = _part_of(sources, source)
    whole = PlannedPiece.of(SourceRange(source.key, part.offset, part.size, part.crc32c), 0)
    data = content_of(archive, whole, dict(sources.etags))
    begin = source.offset - part.offset
    return replace(piece, crc32c=crc32c(memoryview(data)[begin : begin + source.size]))


def _part_of(sources: LedgerSources, source: SourceRange) -> Part:
    for segment in sources.coverage.segments:
        if sources.objects[segment.uuid].key != source.key:
            continue
        for part in segment.parts:
            if part.offset <= source.offset and source.offset + source.size <= part.offset + part.size:
                return part
    raise IntegrityError(f"{source.key}: no part has what is from {source.offset} on")


def _records(history: History, ledger: int) -> Iterable[Segment | Loss | Tombstone]:
    """Those that touch the ledger, and one behind it."""
    numbers: list[int] = []
    for number, row in history.slots(lambda row: row.max_ledger >= ledger):
        numbers.append(number)
        if row.start is not None and row.start.ledger > ledger:
            break
    for written in history.read(numbers):
        if isinstance(written.record, Segment | Loss | Tombstone):
            yield written.record


def _deleted_up_to(head: CatalogHead, ledger: int) -> Position | None:
    """Ledger ids are used once: whichever incarnation it is of, it is not behind what begins behind it."""
    told = [each.end for each in head.removed.told if each.start.ledger <= ledger]
    return max(told, default=None)


def _metadata(bookies: LedgerBookies, ledger: int) -> LedgerMetadata | None:
    try:
        return bookies.metadata.read(ledger).metadata
    except LedgerNotFoundError:
        return None


def _etag(archive: ObjectStore, key: str, segment: Segment) -> str:
    found = archive.stat(key)
    if found is None:
        raise absent(key)
    if found.size != segment.size:
        raise DamagedObjectError(f"{key}: it has {found.size} bytes, the catalog says {segment.size}")
    return found.etag


def _index(archive: ObjectStore, key: str) -> Index:
    with naming(key):
        try:
            return decode_index(read_index(archive, key)[0])
        except ObjectNotFoundError as error:
            raise absent(key) from error


def _filled(
    bookies: LedgerBookies | None, coverage: LedgerCoverage, known: LedgerMetadata | None
) -> tuple[RawEntry, ...] | UnbridgedLedger:
    if not coverage.missing:
        return ()
    if bookies is None:
        return _unfilled(coverage, "pulsar.metadataServiceUri is not set")
    if known is None:
        return _unfilled(coverage, "BookKeeper has deleted the ledger")
    if known.closed and (lacks := known.length - coverage.length) > MOST_FILLED:
        why = f"{lacks // MIB} MiB, and no more than {MOST_FILLED // MIB} MiB are held in memory"
        return _unfilled(coverage, why, "are more than is filled")
    found: list[RawEntry] = []
    held = 0
    try:
        for missing in coverage.missing:
            with closing(LedgerReader(bookies.bookies, missing, known, max_bytes=READ_AHEAD)) as reader:
                while not reader.finished:
                    arrived = reader.read(READ_SECONDS)
                    found += arrived
                    held += sum(len(entry.data) for entry in arrived)
                    if held > MOST_FILLED:
                        return _unfilled(coverage, f"they have more than {MOST_FILLED // MIB} MiB")
    except (EntryNotFoundError, LedgerNotFoundError, IntegrityError) as error:
        return _unfilled(coverage, str(error))
    return tuple(found)


def _unfilled(coverage: LedgerCoverage, why: str, what: str = "bookies cannot give them") -> UnbridgedLedger:
    first = coverage.missing[0]
    count = sum(missing.span for missing in coverage.missing)
    text = f"{count} entries from {first.first} on are in no segment, and {what}: {why}"
    return UnbridgedLedger(coverage.ledger, coverage.last, BridgeVerdict.GAPS, text)


class MemoryRoom:
    """So many bytes for all who are at it. Thread safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._freed = threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Wait until there is room for as much, and hold it. Whoever wants more than there is gets all of it."""
        size = min(size, self._most)
        with self._freed:
            self._freed.wait_for(lambda: self._used + size <= self._most)
            self._used += size
        try:
            yield
        finally:
            with self._freed:
                self._used -= size
                self._freed.notify_all()
