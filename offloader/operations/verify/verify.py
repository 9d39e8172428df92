"""Everything that can be checked of an archive without Pulsar: catalogs, journals and objects against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.errors import ConfigError, FormatVersionError, IntegrityError
from offloader.metadata import listing
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.journals import Journals
from offloader.metadata.layout import (
    CLAIMS,
    catalog_folder,
    claim_key,
    data_key,
    journal_folder,
    parse_claim_key,
    parse_topic_key,
    topic_folder,
    topic_of,
)
from offloader.metadata.root import read_root
from offloader.metadata.state import REBUILT, TopicCatalog
from offloader.model import OpenSegment, Segment, TopicName
from offloader.operations.verify.beside import check_copies, lost_ends
from offloader.operations.verify.catalog_records import ReadCatalog, ReadRecord, parts_of, read_catalog
from offloader.operations.verify.segment_check import check_objects
from offloader.operations.verify.strays import (
    damaged_journals,
    left_of_deleted,
    may_be_absent,
    not_deleted,
    open_uploads,
    read_bridges,
    stray_objects,
)
from offloader.ports.object_store import ObjectStore

THREADS = 8
DEEP_THREADS = 2  # each holds one part in memory


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found, and how much it checked. `bytes` of segments; `aborted`: uploads that it ended."""

    findings: tuple[Finding, ...]
    topics: int
    segments: int
    entries: int
    bytes: int
    aborted: tuple[str, ...] = ()
    unreadable: int = 0  # of the entries, those that are no messages and were copied as they are
    deleted: int = 0  # of the segments, those that are recorded as deleted: of these, nothing has to be there


def verify(
    store: ObjectStore,
    topics: Iterable[TopicName] | None = None,
    *,
    quick: bool = False,
    abort_uploads: bool = False,
) -> Report:
    """Check topics, by default all of the root. `quick`: existence, sizes, indexes and continuity only, without data.

    Safe beside running applications: lists objects, then reads journals, then catalogs, the way that a segment goes.
    `abort_uploads` ends the uploads of segments that no journal names; nothing else is ever changed.
    Raises RemovedFeatureError, and what the stores raise.
    """
    chosen = None if topics is None else sorted(set(topics))
    prefixes = [""] if chosen is None else [topic_folder(topic) for topic in chosen]
    there = [found for prefix in prefixes for found in store.list(prefix)]
    listed = [(key, size) for key, size in there if size or not listing.is_marker(key)]
    only_markers = {topic_of(key)[0] for key, _ in there} - {topic_of(key)[0] for key, _ in listed}
    uploads = [upload for prefix in prefixes for upload in store.list_uploads(prefix)]
    journals = read_journals(store, applications(store))
    names = sorted(set(listing.topics(store)) - only_markers) if chosen is None else chosen
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        read = {
            r.catalog.topic: r
            for r in map_ahead(pool, lambda topic: read_catalog(store, topic, slim=True), names, 2 * THREADS)
        }
        bridged, of_bridges = read_bridges(store, (key for key, _ in listed), pool)
    findings = [
        *damaged_journals(journals),
        *of_bridges,
        *_check_records(read),
        *_check_journals(store, read, journals),
    ]
    tokens = ((record.key, record.uuid) for r in read.values() for record in r.records)
    findings += _check_tokens(chain(journals.tokens, tokens))
    findings += _check_objects(store, read, quick=quick)
    with ThreadPoolExecutor(THREADS, "verify") as pool:
        findings += check_copies(store, read.values(), dict(listed), pool, quick=quick)
    findings += left_of_deleted(store, (key for key, _ in listed), read)
    if chosen is None:
        findings += _check_claims(store, read, [key for key, _ in listed])
    findings += lost_ends(store, stray_objects(listed, read, journals, _cluster(store), bridged), read, journals)
    unnamed = list(open_uploads(uploads, journals, bridged))
    findings += [finding for _, finding in unnamed]
    ours = [upload.upload for upload, _ in unnamed if upload is not None]
    aborted = ours if abort_uploads and journals.readable else []
    for upload in aborted:
        store.abort(upload)
    segments = [s for r in read.values() for s in r.catalog.segments if not may_be_absent(r.catalog.head, s)]
    return Report(
        findings=tuple(findings),
        topics=len(read),
        segments=len(segments),
        entries=sum(s.entries for s in segments),
        bytes=sum(s.size for s in segments),
        aborted=tuple(aborted),
        unreadable=sum(r.unreadable for r in read.values()),
        deleted=sum(len(r.catalog.segments) for r in read.values()) - len(segments),
    )


def _cluster(store: ObjectStore) -> str:
    """Whose root it is; "" where nothing says so."""
    try:
        return read_root(store).cluster
    except (ConfigError, IntegrityError, FormatVersionError):
        return ""


def _check_records(read: Mapping[TopicName, ReadCatalog]) -> Iterator[Finding]:
    uuids = Counter(segment.uuid for r in read.values() for segment in r.catalog.segments)
    for topic, r in read.items():
        yield from r.findings
        for segment in r.catalog.segments:
            if uuids[segment.uuid] > 1:
                key, message = data_key(topic, segment.uuid), f"{uuids[segment.uuid]} segments have this uuid"
                yield Finding(FindingKind.DUPLICATE_UUID, key, message, topic, position=segment.start)


def _check_journals(store: ObjectStore, read: Mapping[TopicName, ReadCatalog], journals: Journals) -> list[Finding]:
    """What journals and catalogs say against each other, and still say when the journals are read again: an application
    may have moved on between the two."""
    found = [finding for r in read.values() for finding in _against_journals(r, journals)]
    if not found:
        return []
    again = read_journals(store, journals.states)
    confirmed = {finding for r in read.values() for finding in _against_journals(r, again)}
    return [finding for finding in found if finding in confirmed]


def _against_journals(read: ReadCatalog, journals: Journals) -> Iterator[Finding]:
    """An open segment must continue its catalog, and its application must be the one that has claimed the topic."""
    catalog, topic = read.catalog, read.catalog.topic
    owner = catalog.claim.application if catalog.claim is not None else ""
    for application, segment in journals.open_segments(topic):
        if application != owner and read.complete:
            claimed = f"the topic is claimed by {owner or 'nobody'}"
            message = f"the journal of {application} has segment {segment.uuid} open, {claimed}"
            yield Finding(FindingKind.NOT_CLAIMED, journal_folder(application), message, topic, position=segment.start)
        if any(s.uuid == segment.uuid for s in catalog.segments):
            continue
        if catalog.end is not None and segment.start <= catalog.end:
            message = f"the open segment {segment.uuid} starts at {segment.start}, the catalog ends at {catalog.end}"
            yield Finding(FindingKind.OVERLAP, catalog_folder(topic), message, topic, position=segment.start)
        else:
            yield from _check_follows(catalog, segment)


def _check_follows(catalog: TopicCatalog, segment: OpenSegment) -> Iterator[Finding]:
    """The open segment names what the catalog ended with when it was assigned."""
    topic, key = catalog.topic, catalog_folder(catalog.topic)
    last = catalog.head.last.uuid if catalog.head.last is not None else ""
    # A rebuild may have recorded a loss in place of what the segment follows.
    rebuilt = any(loss.accepted_by == REBUILT and loss.end == segment.predecessor_end for loss in catalog.losses[-1:])
    if segment.predecessor_uuid != last and not rebuilt:
        followed = segment.predecessor_uuid or "none"
        message = f"it ends with {last or 'none'}, the open segment {segment.uuid} follows {followed}"
        yield Finding(FindingKind.WRONG_PREDECESSOR, key, message, topic, position=segment.start)
    end = catalog.end
    if end is not None and end.ledger == segment.start.ledger and end.next_entry < segment.start:
        message = f"it ends with {end}, the open segment {segment.uuid} starts at {segment.start}"
        yield Finding(FindingKind.HOLE, key, message, topic, position=segment.start)


def _check_tokens(tokens: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """Of records given as (key, token), those whose token another one has: every write has one of its own. Nobody can
    tell which of them is the copy. (A catalog's record says itself where it belongs.)"""
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
    """Whether the list of claims has all claims of the catalogs, and none that is over. Looks again at what differs: it
    may have changed since."""
    claims = ((topic, r.catalog.claim) for topic, r in read.items())
    owned = {claim_key(claim.application, topic): topic for topic, claim in claims if claim and claim.application}
    for key in sorted(owned.keys() - set(listed)):
        if store.stat(key) is None:
            yield Finding(FindingKind.MISSING_CLAIM, key, "the topic is claimed, and this does not say so", owned[key])
    damaged = {topic for topic, r in read.items() if not r.complete}
    message = "its topic is not claimed by this application, which looks into it at its next start"
    for key in listed:
        if key.startswith(f"{CLAIMS}/") and key not in owned:
            parsed = parse_claim_key(key)
            if (parsed is None or parsed[1] not in damaged) and store.stat(key) is not None:
                yield Finding(FindingKind.LEFT_OVER, key, message)


def _check_objects(store: ObjectStore, read: Mapping[TopicName, ReadCatalog], *, quick: bool) -> Iterator[Finding]:
    def check(work: tuple[TopicName, Segment, ReadRecord]) -> list[Finding]:
        topic, slim, record = work
        segment = slim if quick else parts_of(store, topic, record)
        if segment is not None:
            found = check_objects(store, topic, segment, quick=quick)
            return not_deleted(store, segment, found)
        message = "it is another one now than when this check began"
        return [Finding(FindingKind.DAMAGED_RECORD, record.key, message, topic, position=slim.start)]

    work = (
        (topic, segment, record)
        for topic, r in read.items()
        for segment, record in zip(r.catalog.segments, r.segment_records, strict=True)
        if segment.size and not may_be_absent(r.catalog.head, segment)
    )
    with ThreadPoolExecutor(THREADS if quick else DEEP_THREADS, "verify") as pool:
        yield from chain.from_iterable(map_ahead(pool, check, work, 2 * THREADS))
