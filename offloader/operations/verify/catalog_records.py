"""A topic's catalog, record by record: what is readable is checked even where something is not. Each of its manifests
must say exactly what the records say, in the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise

from offloader.ahead import map_ahead, unawaited_pool
from offloader.archive.continuity import breaks, name, spans
from offloader.archive.findings import Finding, FindingKind
from offloader.archive.object_range import runs
from offloader.errors import DamagedRecordError, FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.format.crc import combine
from offloader.metadata.catalog_codec import decode_of, decode_slot, opening, plain
from offloader.metadata.compaction import objects_of
from offloader.metadata.deletions import Tombstone
from offloader.metadata.generations import Slots, found_after, newest_open
from offloader.metadata.layout import (
    MANIFESTS,
    catalog_folder,
    data_key,
    manifest_key,
    manifests_folder,
    newest_key,
    record_key,
    records_key,
    topic_folder,
)
from offloader.metadata.log import READERS, NumberedLog, read_record
from offloader.metadata.manifest import FAN, ManifestRow, before_next, leaf
from offloader.metadata.state import (
    REBUILT,
    CatalogFold,
    CatalogHead,
    Claim,
    GenerationBegun,
    GenerationEnded,
    Record,
    Said,
    TopicCatalog,
    record_uuid,
)
from offloader.model import Loss, Position, Segment, TopicName
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_to_compare


class ManifestCheck:
    """Takes all of a catalog's records in their order. `listed`: the topic's manifests, listed before the records, so
    that the records that they sum up must be there."""

    def __init__(self, store: ObjectStore, topic: TopicName, generation: int, listed: Iterable[str]) -> None:
        self._store = store
        self._topic = topic
        self._generation = generation
        folder = manifests_folder(topic, generation)
        self._unchecked = {key for key in listed if key.startswith(folder)} - {newest_key(topic, generation)}
        self._newest = max((key for key in self._unchecked if key.startswith(folder + "0-")), default="")
        self._records: list[Record] = []
        self._data: list[bytes] = []
        self._before: tuple[ManifestRow, ...] = ()
        self._leaves = 0

    def add(self, record: Record, data: bytes) -> Iterator[Finding]:
        """What is wrong with the manifests that are complete with this record."""
        self._records.append(record)
        self._data.append(data)
        if len(self._records) < FAN:
            return
        made = leaf(self._leaves, self._records, [len(each) for each in self._data], self._before)
        wanted = objects_of(self._topic, self._generation, made, self._data)
        expected = manifest_key(self._topic, self._generation, 0, self._leaves) <= self._newest
        for key, data in wanted.items():
            if key in self._unchecked or expected:
                yield from self._compare(key, data)
        self._unchecked -= wanted.keys()
        self._before, self._leaves = before_next(made), self._leaves + 1
        self._records, self._data = [], []

    def end(self) -> Iterator[Finding]:
        """Manifests of records that are not there. A leaf is written after its records' object and what is above it."""
        begun = {
            records_key(self._topic, self._generation, self._leaves),
            manifest_key(self._topic, self._generation, 1, self._leaves // FAN),
        }
        for key in sorted(self._unchecked - begun):
            message = (
                "it sums up records that are not there, the catalog has lost its end: `offloader catalog rebuild "
                f"{self._topic}` brings it back; where that has nothing to do, delete this"
            )
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, message, self._topic)

    def _compare(self, key: str, wanted: bytes) -> Iterator[Finding]:
        found = read_to_compare(self._store, key, len(wanted))
        if found is None:
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, "it is missing, though there are later ones", self._topic)
        elif found != wanted:
            message = "it does not say what the catalog's records say"
            yield Finding(FindingKind.DAMAGED_MANIFEST, key, message, self._topic)


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A readable record: its uuid, which no other has, its bytes and their SHA-256, whether it has a copy beside the
    segments."""

    key: str
    uuid: str
    size: int
    digest: bytes
    beside: bool


@dataclass(frozen=True, slots=True)
class ReadCatalog:
    """What can be read of a catalog, every claim in it, and what is wrong with its records."""

    catalog: TopicCatalog
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    records: tuple[ReadRecord, ...] = ()
    segment_records: tuple[ReadRecord, ...] = ()  # the record of each of the catalog's segments, in their order
    complete: bool = True
    unreadable: int = 0  # entries that are no messages and were copied as they are


def read_catalog(store: ObjectStore, topic: TopicName, *, slim: bool = False) -> ReadCatalog:
    """Read what can be read of the generation in force. `slim`: segments without parts, most of their bytes; `parts_of`
    reads these again. Raises only what the store raises."""
    manifests = [key for key, _ in store.list(f"{topic_folder(topic)}{MANIFESTS}/")]
    found = found_after(store, topic)
    generation = newest_open(found)
    first = CatalogHead(topic, generation=min(found, default=0) if generation is None else generation)
    read = _read_generation(store, first, found, manifests, slim=slim)
    while (following := read.catalog.head.continued_in) is not None:
        begun = 0 in found.get(following, [])
        empty = CatalogHead(topic, generation=following, next_slot=0 if begun else 1)
        read = _read_generation(store, empty, found, manifests, slim=slim)
    return read


def _read_generation(
    store: ObjectStore, empty: CatalogHead, found: Slots, listed: Iterable[str], *, slim: bool
) -> ReadCatalog:
    topic, generation = empty.topic, empty.generation
    log = NumberedLog(store, catalog_folder(topic, generation))
    fold, claims, records, segment_records = CatalogFold(TopicCatalog(empty)), [], [], []
    findings: list[Finding] = []
    unreadable, wrong = 0, list[Finding]()
    manifests = ManifestCheck(store, topic, generation, listed)
    if empty.next_slot > 0:  # a rebuild was interrupted right before its slot 0: manifests count it as there
        findings += manifests.add(GenerationBegun(), opening(topic, generation))
    slots = found.get(generation, [])
    for slot, data in zip(slots, _read(store, [log.key(slot) for slot in slots]), strict=True):
        key = log.key(slot)
        if slot != fold.head.next_slot:
            missing, message = log.key(fold.head.next_slot), f"it is missing, though {key} is there"
            findings.append(Finding(FindingKind.DAMAGED_RECORD, missing, message, topic))
            fold.head = replace(fold.head, next_slot=slot)
        before = fold.head
        try:
            if isinstance(data, DamagedRecordError):
                raise data
            recorded_head, record, token = decode_slot(topic, generation, slot, key, data)
            copy, beside = plain(data), isinstance(record, Said)
            records.append(ReadRecord(key, token, len(copy), sha256(copy).digest(), beside=beside))
            if not _is_damaged(findings) and recorded_head != before and not isinstance(record, GenerationEnded):
                message = "what it says of the records before it is not what they say"
                findings.append(Finding(FindingKind.DAMAGED_RECORD, key, message, topic))
            fold.head = replace(before, claim=_claim_for(record, before.claim, damaged=_is_damaged(findings)))
            fold.add(replace(record, parts=()) if slim and isinstance(record, Segment) else record)
        except (IntegrityError, FormatVersionError) as error:
            message = str(error).removeprefix(key).lstrip(": ")
            findings.append(Finding(FindingKind.DAMAGED_RECORD, key, message, topic))
            fold.head = replace(before, next_slot=slot + 1)
            continue
        if isinstance(record, Claim):
            claims.append(record)
        if isinstance(record, Segment):
            segment_records.append(records[-1])
            unreadable += sum(part.stats.unreadable for part in record.parts)
            objects = data_key(topic, record.uuid)
            for problem in check_segment(record):
                wrong.append(Finding(FindingKind.DAMAGED_RECORD, objects, problem, topic, position=record.start))
        if not _is_damaged(findings):
            findings += manifests.add(record, data)
    catalog = fold.catalog()
    if not findings:
        findings += manifests.end()
    begins = [] if _is_damaged(findings) else list(_check_begins(catalog))
    return ReadCatalog(
        catalog,
        tuple(claims),
        (*findings, *begins, *check_catalog(catalog), *wrong),
        tuple(records),
        tuple(segment_records),
        complete=not _is_damaged(findings),
        unreadable=unreadable,
    )


def _read(store: ObjectStore, keys: list[str]) -> Iterator[bytes | DamagedRecordError]:
    """Records, several at a time, in the order of the keys."""

    def read(key: str) -> bytes | DamagedRecordError:
        try:
            return read_record(store, key)
        except DamagedRecordError as error:
            return error

    with unawaited_pool(READERS, "record-reader") as pool:
        yield from map_ahead(pool, read, keys, 2 * READERS)


def _is_damaged(findings: Iterable[Finding]) -> bool:
    """Whether records are: manifests are only made of them."""
    return any(found.kind is not FindingKind.DAMAGED_MANIFEST for found in findings)


def _claim_for(record: Record, claim: Claim | None, *, damaged: bool) -> Claim | None:
    """Behind damage, a record of an incarnation whose claim was lost is checked as if the claim were there."""
    if not damaged or not isinstance(record, Segment | Loss):
        return claim
    if claim is not None and claim.incarnation == record.start.incarnation:
        return claim
    return Claim("", record.start.incarnation, None, record.start, 0)


def _check_begins(catalog: TopicCatalog) -> Iterator[Finding]:
    """Whether each incarnation's segments lie behind the position that it was claimed from."""
    topic, first = catalog.topic, {segment.start.incarnation: segment for segment in reversed(catalog.segments)}
    for incarnation, begin in catalog.begins.items():
        segment = first.get(incarnation)
        if segment is not None and segment.start < begin:
            message = f"{name(segment)} starts at {segment.start}, and the topic was claimed from {begin} on"
            yield Finding(FindingKind.DAMAGED_RECORD, catalog_folder(topic), message, topic, position=segment.start)


def parts_of(store: ObjectStore, topic: TopicName, record: ReadRecord) -> Segment | None:
    """A segment with its parts, from its record; None where that has changed since the catalog was read."""
    try:
        data = plain(read_record(store, record.key))
    except (ObjectNotFoundError, DamagedRecordError):
        return None
    if sha256(data).digest() != record.digest:
        return None
    _, read = decode_of(topic, record.key, data)
    return read if isinstance(read, Segment) else None


def check_catalog(catalog: TopicCatalog) -> Iterator[Finding]:
    """Whether the records agree with each other."""
    topic = catalog.topic
    for broken in breaks(catalog):
        yield Finding(broken.kind, catalog_folder(topic), broken.message, topic, position=broken.after.start)
    for before, after in pairwise((None, *spans(catalog))):
        if after is not None:
            yield from _check_predecessor(topic, before, after)


def _check_predecessor(topic: TopicName, before: Segment | Loss | None, after: Segment | Loss) -> Iterator[Finding]:
    there: tuple[str, Position | None] = ("", None) if before is None else (record_uuid(topic, before), before.end)
    recorded = (after.predecessor_uuid, after.predecessor_end)
    rebuilt = isinstance(before, Loss) and before.accepted_by == REBUILT and recorded[1] == before.end
    if recorded != there and not rebuilt:
        names = ["none" if end is None else f"{uuid} up to {end}" for uuid, end in (there, recorded)]
        message = f"the predecessor of {name(after)} is {names[0]}, it says {names[1]}"
        key = record_key(topic, record_uuid(topic, after))
        yield Finding(FindingKind.WRONG_PREDECESSOR, key, message, topic, position=after.start)


def check_segment(segment: Segment) -> Iterator[str]:
    """What a segment's record says twice must agree."""
    if not segment.ledgers:
        yield "it names no ledger"
        return
    first, last = segment.ledgers[0], segment.ledgers[-1]
    if (first.ledger, first.first) != (segment.start.ledger, segment.start.entry):
        yield f"it starts at {segment.start}, its ledgers at {first.ledger}:{first.first}"
    if (last.ledger, last.last) != (segment.end.ledger, segment.end.entry):
        yield f"it ends at {segment.end}, its ledgers at {last.ledger}:{last.last}"
    yield from _check_ledgers(segment)
    if isinstance(segment, Tombstone):
        return
    yield from _check_counts(segment)
    yield from _check_parts(segment)


def _check_ledgers(segment: Segment) -> Iterator[str]:
    for before, after in pairwise(segment.ledgers):
        if before.ledger >= after.ledger:
            yield f"ledger {after.ledger} stands after ledger {before.ledger}"
        if before.closed_with != before.last:
            closed = "nothing" if before.closed_with is None else before.closed_with
            yield f"it goes on after {before.ledger}:{before.last}, and {closed} is recorded as that ledger's end"
        if after.first != 0:
            yield f"it goes on in ledger {after.ledger} with entry {after.first}"
    for held in segment.ledgers:
        if held.closed_with is not None and held.closed_with < held.last:
            yield f"it holds {held.ledger}:{held.last} of a ledger that was closed with {held.closed_with}"


def _check_counts(segment: Segment) -> Iterator[str]:
    try:
        found = runs(segment)
    except DamagedRecordError as error:
        yield str(error)
        return
    for held in segment.ledgers:
        count = sum(run.span for run in found if run.ledger == held.ledger and run.gap is None)
        if count != held.count:
            listed = f"{held.count} entries in {held.first}..{held.last}"
            yield f"ledger {held.ledger} has {listed}, where {count} are in no gap"


def _check_parts(segment: Segment) -> Iterator[str]:
    offset = 0
    for number, part in enumerate(segment.parts, 1):
        if (part.number, part.offset) != (number, offset):
            yield f"part {part.number} at {part.offset} stands where part {number} at {offset} belongs"
        offset += part.size
    if offset != segment.size:
        yield f"its parts have {offset} bytes, it has {segment.size}"
    if combine((part.crc32c, part.size) for part in segment.parts) != segment.crc32c:
        yield "its parts' CRC32C do not combine to its own"
    for held in segment.ledgers:
        of_parts = [r for part in segment.parts for r in part.ledgers if r.ledger == held.ledger]
        count, size = sum(r.count for r in of_parts), sum(r.size for r in of_parts)
        if (count, size) != (held.count, held.size):
            whole = f"{held.count} entries of {held.size} bytes"
            yield f"ledger {held.ledger} has {whole}, in its parts {count} of {size}"
