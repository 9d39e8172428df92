"""Records beside the segments that go on where a catalog ends: where its last slots are lost, nothing in it tells of
them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from offloader.archive.findings import Finding, FindingKind
from offloader.errors import FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.catalog_codec import decode_of
from offloader.metadata.layout import parse_topic_key
from offloader.metadata.log import read_record
from offloader.metadata.state import record_uuid
from offloader.model import Loss, Segment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog
from offloader.operations.verify.strays import Journals
from offloader.ports.object_store import ObjectStore


def lost_ends(
    store: ObjectStore, findings: Iterable[Finding], read: Mapping[TopicName, ReadCatalog], journals: Journals
) -> Iterator[Finding]:
    """The findings; those of records that follow the end of their catalog, one by one, and of their objects say so. A
    segment that is open in a journal from there on has replaced them."""
    objects: list[Finding] = []
    going_on: set[tuple[TopicName, str]] = set()
    beside: dict[TopicName, list[tuple[Finding, Segment | Loss]]] = {}
    for finding in findings:
        if finding.kind is FindingKind.STRAY_OBJECT:
            objects.append(finding)
            continue
        record = _span(store, finding)
        if finding.topic is None or finding.topic not in read or record is None:
            yield finding
        else:
            beside.setdefault(finding.topic, []).append((finding, record))
    for topic, following in beside.items():
        last = read[topic].catalog.head.last
        known = {"" if last is None else last.uuid}
        opened = [segment for _, segment in journals.open_segments(topic)]
        for finding, record in sorted(following, key=lambda each: each[1].start):
            goes_on = record.predecessor_uuid in known and not any(segment.start <= record.end for segment in opened)
            if goes_on:
                uuid = record_uuid(topic, record)
                known.add(uuid)
                going_on.add((topic, uuid))
            yield replace(finding, message=_says(topic, record)) if goes_on else finding
    for finding in objects:
        key = parse_topic_key(finding.key)
        lost = key is not None and (key.topic, key.uuid) in going_on
        yield (
            replace(finding, message="its record goes on where the catalog ends: do not delete it") if lost else finding
        )


def _says(topic: TopicName, record: Segment | Loss) -> str:
    return (
        f"it goes on where the catalog ends, with {record.start}..{record.end}: the catalog has lost its end, or this "
        f"is being written; `offloader catalog rebuild {topic}` brings it back"
    )


def _span(store: ObjectStore, finding: Finding) -> Segment | Loss | None:
    if finding.kind is not FindingKind.UNCOMMITTED_RECORD or finding.topic is None:
        return None
    try:
        record = decode_of(finding.topic, finding.key, read_record(store, finding.key))[1]
    except (IntegrityError, FormatVersionError, ObjectNotFoundError):
        return None
    return record if isinstance(record, Segment | Loss) else None
