"""The objects of records beside the segments, against the catalog's: a rebuild has nothing else to go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from hashlib import sha256

from offloader.ahead import map_ahead
from offloader.archive.findings import Finding, FindingKind
from offloader.metadata.layout import record_key
from offloader.metadata.log import READERS
from offloader.model import TopicName
from offloader.operations.verify.catalog_records import ReadCatalog, ReadRecord
from offloader.ports.object_store import ObjectStore
from offloader.storage.objects import read_to_compare


def check_beside(
    store: ObjectStore, read: Iterable[ReadCatalog], listed: Mapping[str, int], pool: Executor, *, quick: bool
) -> Iterator[Finding]:
    """Whether each record of these catalogs has its object, and the same bytes there; `quick`: as many. What was not
    `listed` is looked for: it may be newer."""

    def check(work: tuple[TopicName, ReadRecord]) -> list[Finding]:
        return list(_check(store, *work, listed, quick=quick))

    records = ((r.catalog.topic, record) for r in read for record in r.records if record.beside)
    for found in map_ahead(pool, check, records, 2 * READERS):
        yield from found


def _check(
    store: ObjectStore, topic: TopicName, record: ReadRecord, listed: Mapping[str, int], *, quick: bool
) -> Iterator[Finding]:
    key = record_key(topic, record.uuid)
    size = listed.get(key)
    if size is None:
        stat = store.stat(key)
        size = None if stat is None else stat.size
    if size is None:
        yield Finding(FindingKind.MISSING_RECORD, key, f"{record.key} has no copy beside the segments", topic)
    elif size != record.size or not (quick or _same(store, key, record)):
        yield Finding(FindingKind.DAMAGED_RECORD, key, f"it is not what {record.key} is", topic)


def _same(store: ObjectStore, key: str, record: ReadRecord) -> bool:
    found = read_to_compare(store, key, record.size)
    return found is not None and sha256(found).digest() == record.digest
