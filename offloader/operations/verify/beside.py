"""What is checked beside the catalogs' segments: the records in their folders, each record of a catalog having its copy
there; and ledgers that stock brokers offloaded by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.archive.ledgers.found import FoundLedgers
from offloader.archive.ledgers.pair import LedgerPair
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.beside import is_buried
from offloader.metadata.catalog_codec import decode_of
from offloader.metadata.journals import Journals
from offloader.metadata.layout import parse_topic_key, record_key
from offloader.metadata.log import READERS, read_record
from offloader.metadata.state import record_uuid
from offloader.model import Loss, Segment, TopicName
from offloader.operations.verify.catalog_records import ReadCatalog, ReadRecord
from offloader.operations.verify.strays import may_be_absent
from offloader.ports.object_store import ObjectStore
from offloader.storage.bounded_reads import read_to_compare

THREADS = 8
DEEP_THREADS = 2  # each holds a range of an object and an entry in memory


def check_copies(
    store: ObjectStore, read: Iterable[ReadCatalog], listed: Mapping[str, int], pool: Executor, *, quick: bool
) -> Iterator[Finding]:
    """Whether each record of these catalogs has its copy, of the same bytes; `quick`: of as many. They
    are there for a rebuild. What is not `listed` may be newer and is looked for."""

    def check(work: tuple[TopicName, ReadRecord, bool]) -> Finding | None:
        topic, record, buried = work
        key = record_key(topic, record.uuid)
        size = listed.get(key)
        if size is None:
            stat = store.stat(key)
            size = None if stat is None else stat.size
        if size is None:
            return Finding(FindingKind.MISSING_RECORD, key, f"{record.key} has no copy beside the segments", topic)
        if size == record.size and (quick or _same(store, key, record)):
            return None
        if buried and is_buried(store, topic, record.uuid):
            return None
        return Finding(FindingKind.DAMAGED_RECORD, key, f"it is not what {record.key} is", topic)

    records = (
        (r.catalog.topic, record, record.uuid in buried)
        for r in read
        for buried in [_buried(r)]
        for record in r.records
        if record.beside
    )
    yield from (found for found in map_ahead(pool, check, records, 2 * READERS) if found is not None)


def _buried(read: ReadCatalog) -> frozenset[str]:
    """The segments that may have a tombstone in place of their record."""
    head = read.catalog.head
    return frozenset(s.uuid for s in read.catalog.segments if may_be_absent(head, s))


def _same(store: ObjectStore, key: str, record: ReadRecord) -> bool:
    data = read_to_compare(store, key, record.size)
    return data is not None and sha256(data).digest() == record.digest


def lost_ends(
    store: ObjectStore, findings: Iterable[Finding], read: Mapping[TopicName, ReadCatalog], journals: Journals
) -> Iterator[Finding]:
    """The findings. Those of records that follow the end of their catalog, one by one, and of their objects say so,
    unless a segment that a journal has open from there on has replaced them. Such a catalog has lost its last slots."""
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
        ends = {"" if last is None else last.uuid}
        opened = [segment for _, segment in journals.open_segments(topic)]
        for finding, record in sorted(following, key=lambda each: each[1].start):
            if record.predecessor_uuid not in ends or any(segment.start <= record.end for segment in opened):
                yield finding
                continue
            uuid = record_uuid(topic, record)
            ends.add(uuid)
            going_on.add((topic, uuid))
            message = (
                f"it goes on where the catalog ends, with {record.start}..{record.end}: the catalog has lost its end, "
                f"or this is being written; `offloader catalog rebuild {topic}` brings it back"
            )
            yield replace(finding, message=message)
    for finding in objects:
        key = parse_topic_key(finding.key)
        lost = key is not None and (key.topic, key.uuid) in going_on
        message = "its record goes on where the catalog ends: do not delete it" if lost else finding.message
        yield replace(finding, message=message)


def _span(store: ObjectStore, finding: Finding) -> Segment | Loss | None:
    if finding.kind is not FindingKind.UNCOMMITTED_RECORD or finding.topic is None:
        return None
    try:
        record = decode_of(finding.topic, finding.key, read_record(store, finding.key))[1]
    except (IntegrityError, FormatVersionError, ObjectNotFoundError):
        return None
    return record if isinstance(record, Segment | Loss) else None


def verify_ledgers(
    found: FoundLedgers, store_of: Callable[[str], ObjectStore], *, quick: bool = False
) -> list[Finding]:
    """What is wrong with a topic's ledgers, the findings of the scan included: objects are checked against their index
    and Pulsar's record, without Pulsar. `quick`: reads no data.

    `store_of` opens the store that a ledger names. Raises what the store raises.
    """

    def check(ledger: OffloadedLedger) -> LedgerPair:
        store = store_of(ledger.store)
        pair = LedgerPair(store, found.topic, ledger.uuid, ledger.start.ledger)
        stat = store.stat(pair.data_key)
        with pair.archived_is_finding(pair.index_key):
            pair.read_index()
        pair.check_size(None if stat is None else stat.size)
        pair.check_record(ledger)
        if not quick:
            with pair.archived_is_finding(pair.data_key):
                pair.check_contents()
        return pair

    readable = [ledger for ledger in found.ledgers if ledger.unreadable is None]  # the others have findings already
    with ThreadPoolExecutor(THREADS if quick else DEEP_THREADS, "verify") as pool:
        pairs = list(pool.map(check, readable))
    of_pairs = (finding for pair in pairs for finding in pair.findings)
    return list(dict.fromkeys([*found.findings, *of_pairs, *_twins(pairs)]))


def _twins(pairs: Iterable[LedgerPair]) -> Iterator[Finding]:
    """Ledgers with the same entries: one pair has replaced another. Nothing in a pair says which ledger it is of."""
    seen: dict[str, LedgerPair] = {}
    for pair in pairs:
        if pair.account is None:
            continue
        first = seen.setdefault(pair.account.digest, pair)
        if first is not pair:
            message = f"it holds exactly the entries of ledger {first.ledger}: one of the two was replaced by the other"
            yield Finding(FindingKind.WRONG_ENTRIES, pair.data_key, message, pair.topic)
