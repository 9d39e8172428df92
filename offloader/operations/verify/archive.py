"""Everything that can be checked of an archive without Pulsar: catalogs, journals and objects against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.metadata import listing
from offloader.metadata.layout import (
    CLAIMS,
    catalog_folder,
    claim_key,
    data_key,
    journal_folder,
    parse_claim_key,
    parse_topic_key,
    topic_folder,
)
from offloader.metadata.state import REBUILT, TopicCatalog
from offloader.model import OpenSegment, Segment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog, ReadRecord, parts_of, read_catalog
from offloader.operations.verify.ends import lost_ends
from offloader.operations.verify.segment_check import check_objects
from offloader.operations.verify.segment_records import check_beside
from offloader.operations.verify.strays import Journals, Named, applications, open_uploads, read_journals, stray_objects
from offloader.ports.object_store import ObjectStore, OpenUpload

THREADS = 8
DEEP_THREADS = 2  # each holds one part in memory


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found, and how much it looked at."""

    findings: tuple[Finding, ...]
    topics: int
    segments: int
    entries: int
    bytes: int
    aborted: tuple[str, ...] = ()
    unreadable: int = 0  # of the entries, those that are no messages and were copied as they are


def verify(
    store: ObjectStore,
    topics: Iterable[TopicName] | None = None,
    *,
    quick: bool = False,
    abort_uploads: bool = False,
) -> Report:
    """Check topics, by default all of the root. `quick`: existence, sizes, indexes and continuity only, no data is
    read.

    Safe beside running applications: the listing comes before the journals and these before the catalogs, the way that
    a segment goes. `abort_uploads` ends the uploads of segments that no journal names; nothing else is ever changed.
    Raises what the store raises.
    """
    chosen = None if topics is None else sorted(set(topics))
    prefixes = [""] if chosen is None else [topic_folder(topic) for topic in chosen]
    listed = [found for prefix in prefixes for found in store.list(prefix)]
    uploads = [upload for prefix in prefixes for upload in store.list_uploads(prefix)]
    journals = read_journals(store, applications(store))
    names = sorted(listing.topics(store)) if chosen is None else chosen
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        read = {
            r.catalog.topic: r
            for r in map_ahead(pool, lambda topic: read_catalog(store, topic, slim=True), names, 2 * THREADS)
        }
    findings = [*journals.findings, *_of_records(read), *_of_journals(store, read, journals)]
    findings += _copies(chain(journals.tokens, *(_tokens(r) for r in read.values())))
    findings += _of_objects(store, read, quick=quick)
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        findings += check_beside(store, read.values(), dict(listed), pool, quick=quick)
    if chosen is None:
        findings += _check_claims(store, read, [key for key, _ in listed])
    findings += lost_ends(store, stray_objects((key for key, _ in listed), _named(read), journals), read, journals)
    unnamed = list(open_uploads(uploads, journals))
    findings += [finding for _, finding in unnamed]
    ours = (upload for upload, _ in unnamed if upload is not None)
    aborted = _abort(store, ours) if abort_uploads and journals.readable else []
    segments = [s for r in read.values() for s in r.catalog.segments]
    return Report(
        findings=tuple(findings),
        topics=len(read),
        segments=len(segments),
        entries=sum(s.entries for s in segments),
        bytes=sum(s.size for s in segments),
        aborted=tuple(aborted),
        unreadable=sum(r.unreadable for r in read.values()),
    )


def _tokens(read: ReadCatalog) -> Iterator[tuple[str, str]]:
    return ((record.key, record.uuid) for record in read.records)


def _named(read: Mapping[TopicName, ReadCatalog]) -> Named:
    return Named(
        {(topic, segment.uuid) for topic, r in read.items() for segment in r.catalog.segments},
        {(topic, record.uuid) for topic, r in read.items() for record in r.records},
        {topic: r.catalog.head.generation for topic, r in read.items()},
    )


def _of_records(read: Mapping[TopicName, ReadCatalog]) -> Iterator[Finding]:
    uuids = Counter(segment.uuid for r in read.values() for segment in r.catalog.segments)
    for topic, r in read.items():
        yield from r.findings
        for segment in r.catalog.segments:
            if uuids[segment.uuid] > 1:
                message = f"{uuids[segment.uuid]} segments have this uuid"
                yield Finding(
                    FindingKind.DUPLICATE_UUID, data_key(topic, segment.uuid), message, topic, position=segment.start
                )


def _of_journals(store: ObjectStore, read: Mapping[TopicName, ReadCatalog], journals: Journals) -> list[Finding]:
    """What journals and catalogs say against each other, and still say when the journals are read once more: an
    application may have moved on between the two."""
    found = [finding for r in read.values() for finding in _against_journals(r, journals)]
    if not found:
        return []
    again = read_journals(store, journals.states)
    confirmed = {finding for r in read.values() for finding in _against_journals(r, again)}
    return [finding for finding in found if finding in confirmed]


def _against_journals(read: ReadCatalog, journals: Journals) -> Iterator[Finding]:
    """An open segment must continue its catalog, and its application must be the one that has claimed the topic."""
    catalog = read.catalog
    owner = catalog.claim.application if catalog.claim is not None else ""
    for application, segment in journals.open_segments(catalog.topic):
        if application != owner and read.complete:
            message = (
                f"the journal of {application} has segment {segment.uuid} open, the topic is claimed by "
                f"{owner or 'nobody'}"
            )
            yield Finding(
                FindingKind.NOT_CLAIMED, journal_folder(application), message, catalog.topic, position=segment.start
            )
        committed = any(s.uuid == segment.uuid for s in catalog.segments)
        if not committed and catalog.end is not None and segment.start <= catalog.end:
            message = f"the open segment {segment.uuid} starts at {segment.start}, the catalog ends at {catalog.end}"
            yield Finding(
                FindingKind.OVERLAP, catalog_folder(catalog.topic), message, catalog.topic, position=segment.start
            )
        elif not committed:
            yield from _check_follows(catalog, segment)


def _stands_for(catalog: TopicCatalog, segment: OpenSegment) -> bool:
    """Whether the catalog ends with a loss that a rebuild has recorded in place of what the segment follows."""
    last = catalog.losses[-1] if catalog.losses else None
    return last is not None and last.accepted_by == REBUILT and last.end == segment.predecessor_end


def _check_follows(catalog: TopicCatalog, segment: OpenSegment) -> Iterator[Finding]:
    """The open segment names what the catalog ended with when it was assigned."""
    topic, key = catalog.topic, catalog_folder(catalog.topic)
    last = catalog.head.last.uuid if catalog.head.last is not None else ""
    if segment.predecessor_uuid != last and not _stands_for(catalog, segment):
        message = (
            f"it ends with {last or 'none'}, the open segment {segment.uuid} follows "
            f"{segment.predecessor_uuid or 'none'}"
        )
        yield Finding(FindingKind.WRONG_PREDECESSOR, key, message, topic, position=segment.start)
    end = catalog.end
    if end is not None and end.ledger == segment.start.ledger and end.next_entry < segment.start:
        message = f"it ends with {end}, the open segment {segment.uuid} starts at {segment.start}"
        yield Finding(FindingKind.HOLE, key, message, topic, position=segment.start)


def _copies(tokens: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Of records given as (key, token), those whose token another one has: every write has one of its own.

    Which of the two is the copy nobody can tell. (A catalog's record says itself where it belongs.)
    """
    keys: dict[str, list[str]] = {}
    for key, token in tokens:
        keys.setdefault(token, []).append(key)
    for same in keys.values():
        for key in same if len(same) > 1 else ():
            parsed = parse_topic_key(key)
            others = ", ".join(other for other in same if other != key)
            topic = None if parsed is None else parsed.topic
            yield Finding(FindingKind.DAMAGED_RECORD, key, f"the same record as {others}: one of them is a copy", topic)


def _check_claims(
    store: ObjectStore, read: Mapping[TopicName, ReadCatalog], listed: Collection[str]
) -> Iterator[Finding]:
    """Whether the list of claims has all claims of the catalogs, and none that is over. What differs is looked at once
    more: it may have changed since."""
    claims = {topic: r.catalog.claim for topic, r in read.items()}
    owned = {
        claim_key(claim.application, topic): topic
        for topic, claim in claims.items()
        if claim is not None and claim.application
    }
    for key in sorted(owned.keys() - set(listed)):
        if store.stat(key) is None:
            yield Finding(FindingKind.MISSING_CLAIM, key, "the topic is claimed, and this does not say so", owned[key])
    damaged = {topic for topic, r in read.items() if not r.complete}
    for key in listed:
        said = parse_claim_key(key)
        if (
            key.startswith(f"{CLAIMS}/")
            and key not in owned
            and (said is None or said[1] not in damaged)
            and store.stat(key) is not None
        ):
            yield Finding(
                FindingKind.LEFT_OVER,
                key,
                "its topic is not claimed by this application, which looks into it at its next start",
            )


def _of_objects(store: ObjectStore, read: Mapping[TopicName, ReadCatalog], *, quick: bool) -> Iterator[Finding]:
    def check(work: tuple[TopicName, Segment, ReadRecord]) -> list[Finding]:
        topic, slim, record = work
        segment = slim if quick else parts_of(store, topic, record)
        if segment is not None:
            return check_objects(store, topic, segment, quick=quick)
        return [
            Finding(
                FindingKind.DAMAGED_RECORD,
                record.key,
                "it is another one now than when this check began",
                topic,
                position=slim.start,
            )
        ]

    with ThreadPoolExecutor(THREADS if quick else DEEP_THREADS, "verify") as pool:
        for found in map_ahead(pool, check, _with_objects(read), 2 * THREADS):
            yield from found


def _with_objects(read: Mapping[TopicName, ReadCatalog]) -> Iterator[tuple[TopicName, Segment, ReadRecord]]:
    for topic, r in read.items():
        pairs = zip(r.catalog.segments, r.of_segments, strict=True)
        yield from ((topic, segment, record) for segment, record in pairs if segment.size)


def _abort(store: ObjectStore, uploads: Iterable[OpenUpload]) -> Iterator[str]:
    for upload in uploads:
        store.abort(upload.upload)
        yield upload.upload
