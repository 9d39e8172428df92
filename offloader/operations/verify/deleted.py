"""Segments that are recorded as deleted: their objects must be absent, and what is left of them is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from offloader.archive.findings import Finding, FindingKind
from offloader.errors import FormatVersionError, IntegrityError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deletions import range_of
from offloader.metadata.layout import KeyKind, parse_topic_key
from offloader.metadata.state import CatalogHead
from offloader.model import Segment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog
from offloader.ports.object_store import ObjectStore

ABSENT = (FindingKind.MISSING_OBJECT, FindingKind.MISSING_INDEX)


def may_be_absent(head: CatalogHead, segment: Segment) -> bool:
    """Whether the catalog says that the segment's objects are deleted, or just being deleted."""
    return head.removal is not None and range_of(head.removed.absent, segment.end) is not None


def handed_over(read: ReadCatalog) -> int:
    """How many segments are read from brokers' copies."""
    told = read.catalog.head.removed.handed_over
    return sum(range_of(told, segment.end) is not None for segment in read.catalog.segments) if told else 0


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
