"""A segment's two objects against its record: quickly (there, of the right size, a readable index), or byte for
byte."""

from __future__ import annotations

from collections.abc import Callable

from offloader.archive.findings import Finding, FindingKind, offset_in
from offloader.archive.ledgers.pair import LedgerPair
from offloader.errors import DamagedObjectError, ObjectNotFoundError
from offloader.format.index import Index, decode_index
from offloader.format.strict import account, check_ledger_infos
from offloader.metadata.layout import data_key, index_key
from offloader.model import Segment, TopicName
from offloader.operations.verify.part_check import PartStream
from offloader.ports.object_store import ObjectStore, Stat
from offloader.storage.bounded_reads import naming, read_index

# The one key that Pulsar's readers look for in an object's metadata.
VERSION_KEY = "s3managedledgeroffloaderformatversion"


OpenBucket = Callable[[str], ObjectStore]


def check_objects(
    store: ObjectStore, topic: TopicName, segment: Segment, *, quick: bool, open_bucket: OpenBucket | None = None
) -> list[Finding]:
    """What is wrong with a segment's objects; a segment without entries has none. `quick` needs no parts.
    `open_bucket`: of brokers' objects that a catalog names where they are; None: these are not looked at. Raises what
    the stores raise."""
    if not (segment.size if quick else segment.parts):
        return []
    if segment.brokers is not None:
        theirs = None if open_bucket is None else open_bucket(segment.brokers.bucket)
        return [] if theirs is None else _check_brokers(theirs, topic, segment, segment.brokers.uuid, quick=quick)
    checks = _SegmentCheck(store, topic, segment)
    there = checks.data_is_there()
    index = checks.index()
    if there and index is not None and not quick:
        checks.contents(index)
    return checks.findings


def _check_brokers(store: ObjectStore, topic: TopicName, segment: Segment, uuid: str, *, quick: bool) -> list[Finding]:
    """Of an object that brokers own: where it is not there any more, they have deleted it."""
    pair = LedgerPair(store, topic, uuid, segment.start.ledger)
    stat = store.stat(pair.data_key)
    if stat is None or store.stat(pair.index_key) is None:
        return []  # deleted by Pulsar, which takes both
    pair.read_index()
    pair.check_size(stat.size)
    if stat.size != segment.size and pair.sound:
        pair.add(FindingKind.WRONG_SIZE, pair.data_key, f"it has {stat.size} bytes, the catalog says {segment.size}")
    if quick or not pair.sound:
        return pair.findings
    stream = PartStream(store, topic, segment, pair.data_key)
    for _ in stream:
        pass
    stream.finish()
    return [*pair.findings, *stream.findings]


class _SegmentCheck:
    def __init__(self, store: ObjectStore, topic: TopicName, segment: Segment) -> None:
        self.findings: list[Finding] = []
        self._store = store
        self._topic = topic
        self._segment = segment
        self._data_key = data_key(topic, segment.uuid)
        self._index_key = index_key(topic, segment.uuid)

    def data_is_there(self) -> bool:
        """Whether the data object is there as a whole."""
        key, segment = self._data_key, self._segment
        stat = self._store.stat(key)
        if stat is None:
            self._add(FindingKind.MISSING_OBJECT, key, f"the catalog's segment {segment.uuid} has no data object")
            return False
        self._check_metadata(key, stat)
        if stat.size != segment.size:
            self._add(FindingKind.WRONG_SIZE, key, f"it has {stat.size} bytes, the catalog says {segment.size}")
        return stat.size == segment.size

    def index(self) -> Index | None:
        """The index, where it is there and sound."""
        key, segment = self._index_key, self._segment
        try:
            data, stat = read_index(self._store, key)
            index = decode_index(data)
            with_entries = [ledger for ledger in segment.ledgers if ledger.count]
            check_ledger_infos(index, with_entries, segment.offloaded_at)
        except ObjectNotFoundError:
            self._add(FindingKind.MISSING_INDEX, key, f"the catalog's segment {segment.uuid} has no index object")
            return None
        except DamagedObjectError as error:
            self._add(FindingKind.DAMAGED_INDEX, key, str(error))
            return None
        self._check_metadata(key, stat)
        if index.data_length != segment.size:
            message = f"it is of an object of {index.data_length} bytes, the catalog's has {segment.size}"
            self._add(FindingKind.DAMAGED_INDEX, key, message)
            return None
        return index

    def contents(self, index: Index) -> None:
        """Every byte, in one pass."""
        stream = PartStream(self._store, self._topic, self._segment, self._data_key)
        damage: DamagedObjectError | None = None
        parts = iter(stream)
        try:
            with naming(self._data_key):
                account(parts, index, own=True, v1_ledger=self._segment.v1_ledger)
        except DamagedObjectError as error:
            damage = error
        for _ in parts:  # the other parts' checks
            pass
        stream.finish()
        self.findings += stream.findings
        if damage is not None and not stream.damaged:
            # The parts are those that were recorded, block by block: then the index is of something else.
            self._add(FindingKind.DAMAGED_INDEX, self._index_key, str(damage))

    def _check_metadata(self, key: str, stat: Stat) -> None:
        # Stock readers read from S3; a folder may be unable to keep metadata.
        if self._store.url.startswith("s3://") and VERSION_KEY not in stat.meta:
            self._add(FindingKind.WRONG_METADATA, key, f"it has no metadata {VERSION_KEY}")

    def _add(self, kind: FindingKind, key: str, message: str) -> None:
        text = message.removeprefix(f"{key}: ")
        self.findings.append(Finding(kind, key, text, self._topic, offset_in(text), self._segment.start))
