"""The whole root against what catalogs and journals name: objects and uploads that neither names, and what is left of
segments that are recorded as deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from functools import partial

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.bridge.log import BridgeReader
from offloader.errors import ConfigError, FormatVersionError, IntegrityError
from offloader.lifecycle.bucket.names import KeyStanding, NamesInForce, ObjectKind, PlacedKey, TopicNames, placed
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.metadata.journals import Journals
from offloader.metadata.layout import ROOT, KeyKind, bridge_folder, catalog_folder, parse_topic_key
from offloader.metadata.log import READERS
from offloader.metadata.root import read_root
from offloader.metadata.state import CatalogHead
from offloader.metadata.stock_keys import parse_key
from offloader.model import Segment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog
from offloader.ports.object_store import ObjectStore, OpenUpload

_FINDINGS = {
    ObjectKind.DATA: (FindingKind.STRAY_OBJECT, "neither a catalog nor a journal names it"),
    ObjectKind.INDEX: (FindingKind.STRAY_OBJECT, "neither a catalog nor a journal names it"),
    ObjectKind.RECORD: (FindingKind.UNCOMMITTED_RECORD, "neither the catalog has it nor a journal names it"),
    ObjectKind.ABANDONED: (FindingKind.ABANDONED_OBJECT, "abandoned: {}"),
    ObjectKind.DAMAGED_CATALOG: (FindingKind.LEFT_OVER, "of a catalog that was moved away"),
    ObjectKind.OLD_MANIFEST: (FindingKind.LEFT_OVER, "{}; its records stay: their numbers are fences"),
    ObjectKind.OLD_GENERATION: (FindingKind.LEFT_OVER, "{}; its records stay: their numbers are fences"),
    ObjectKind.UNOPENED_GENERATION: (
        FindingKind.LEFT_OVER,
        "of a rebuild that was interrupted; unless one is under way it can be deleted",
    ),
    ObjectKind.PROOF: (FindingKind.LEFT_OVER, "left by an interrupted start; it can be deleted"),
}
ABSENT = (FindingKind.MISSING_OBJECT, FindingKind.MISSING_INDEX)


def read_bridges(
    store: ObjectStore, listed: Iterable[str], pool: Executor
) -> tuple[frozenset[str], tuple[Finding, ...]]:
    """The uuids of all that is bridged or being bridged, of topics that have a log among the `listed` keys, and what is
    wrong with the logs."""
    parsed = (parse_topic_key(key) for key in listed)
    topics = sorted({each.topic for each in parsed if each is not None and each.kind is KeyKind.BRIDGE})
    uuids, findings = set[str](), list[Finding]()
    for found in map_ahead(pool, partial(_read, BridgeReader(store)), topics, 2 * READERS):
        if isinstance(found, Finding):
            findings.append(found)
        else:
            uuids |= found
    return frozenset(uuids), tuple(findings)


def is_bridged(key: str, uuids: frozenset[str]) -> bool:
    """Whether a key at the bucket's root is that of an object of a bridge."""
    found = parse_key(key)
    return found is not None and found.uuid in uuids


def _read(bridges: BridgeReader, topic: TopicName) -> frozenset[str] | Finding:
    try:
        return bridges.of(topic).uuids
    except (IntegrityError, FormatVersionError) as error:
        return Finding(FindingKind.DAMAGED_RECORD, bridge_folder(topic), str(error), topic)


def may_be_absent(head: CatalogHead, segment: Segment) -> bool:
    """Whether the catalog says that the segment's objects are deleted, or just being deleted."""
    return head.removal is not None and range_of(head.removed.absent, segment.end) is not None


def not_deleted(store: ObjectStore, segment: Segment, findings: list[Finding]) -> list[Finding]:
    """The findings of a segment, without that its objects are missing if they were deleted since the catalog was
    read."""
    topic = next((f.topic for f in findings if f.kind in ABSENT), None)
    if topic is None:
        return findings
    try:
        deleted = may_be_absent(Catalogs(store, "").head(topic), segment)
    except (IntegrityError, FormatVersionError):
        return findings
    return [f for f in findings if f.kind not in ABSENT] if deleted else findings


def left_of_deleted(
    store: ObjectStore, keys: Iterable[str], read: Mapping[TopicName, ReadCatalog]
) -> Iterator[Finding]:
    """Objects that are still there of what is recorded as deleted. Looks again: they may have gone since `keys` were
    listed."""
    gone = {
        (topic, segment.uuid)
        for topic, r in read.items()
        if r.catalog.head.removal is not None
        for segment in r.catalog.segments
        if range_of(r.catalog.head.removed.ranges, segment.end) is not None
    }
    for key in keys if gone else ():
        parsed = parse_topic_key(key)
        objects = parsed is not None and parsed.kind in (KeyKind.DATA, KeyKind.INDEX)
        if parsed is not None and objects and (parsed.topic, parsed.uuid) in gone and store.stat(key) is not None:
            message = "its segment is recorded as deleted; it can be deleted"
            yield Finding(FindingKind.LEFT_OVER, key, message, parsed.topic)


def damaged_journals(journals: Journals) -> list[Finding]:
    """Those that cannot be read."""
    return [Finding(FindingKind.DAMAGED_RECORD, each.key, each.why) for each in journals.damaged]


def check_root(store: ObjectStore) -> Iterator[Finding]:
    """Whether `_root` can be read, which says whose root this is. Raises ConfigError where nothing is offloaded yet."""
    try:
        read_root(store)
    except ConfigError:
        if not any(parse_topic_key(key) for key, _ in store.list()):
            raise
        yield Finding(FindingKind.DAMAGED_RECORD, ROOT, "it is not there, though there are topics")
    except (IntegrityError, FormatVersionError) as error:
        yield Finding(FindingKind.DAMAGED_RECORD, ROOT, str(error).removeprefix(ROOT).lstrip(": "))


def stray_objects(
    listed: Iterable[tuple[str, int]],
    read: Mapping[TopicName, ReadCatalog],
    journals: Journals,
    cluster: str,
    bridged: frozenset[str] = frozenset(),
) -> Iterator[Finding]:
    """Objects that neither a catalog nor a journal names. They were `listed`, with their sizes, before both were read.
    `cluster`: whose root it is. `bridged`: the uuids of brokers' copies, which may be in the same bucket."""
    names = NamesInForce(journals, cluster, {topic: _names(r) for topic, r in read.items()})
    generations: set[str] = set()
    for key, size in listed:
        place = placed(key, size, names)
        if place.standing is KeyStanding.FOREIGN and not is_bridged(key, bridged):
            yield Finding(FindingKind.STRAY_OBJECT, key, place.by)
        elif place.standing is KeyStanding.UNNAMED and place.kind in _FINDINGS:
            key = _generation_of(place) or key
            if key not in generations:
                generations.add(key)
                kind, message = _FINDINGS[place.kind]
                yield Finding(kind, key, message.format(place.by), place.topic)


def _names(read: ReadCatalog) -> TopicNames:
    """As far as it can be read."""
    head = read.catalog.head
    segments = frozenset(segment.uuid for segment in read.catalog.segments)
    records = frozenset(record.uuid for record in read.records)
    return TopicNames(head.topic, head.generation, head.next_slot, segments, records)


def _generation_of(place: PlacedKey) -> str:
    """The folder of the generation that a key is of: one finding for all of it."""
    parsed = place.parsed
    if parsed is None or parsed.kind not in (KeyKind.CATALOG, KeyKind.MANIFEST):
        return ""
    return catalog_folder(parsed.topic, parsed.generation)


def open_uploads(
    uploads: Iterable[OpenUpload], journals: Journals, bridged: frozenset[str] = frozenset()
) -> Iterator[tuple[OpenUpload | None, Finding]]:
    """Uploads that no journal and no bridge names; None in place of one that is not ours to end. `uploads` are listed
    before the journals are read, which know one that has just begun by its uuid."""
    for upload in uploads:
        parsed = parse_topic_key(upload.key)
        if is_bridged(upload.key, bridged):
            continue
        if parsed is None or parsed.kind is not KeyKind.DATA:  # nothing else of ours is uploaded in parts
            why = "its key is none that the offloader uploads to; it is left alone"
            message = f"another product's upload {upload.upload}: {why}"
            yield None, Finding(FindingKind.OPEN_UPLOAD, upload.key, message)
        elif not journals.names_upload(parsed.topic, parsed.uuid, upload.upload):
            message = f"no journal names the upload {upload.upload}"
            yield upload, Finding(FindingKind.OPEN_UPLOAD, upload.key, message, parsed.topic)
