"""Bridged ledgers, checked: Pulsar's record, what brokers report, the objects, and these against the archive."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from offloader.ahead import map_ahead
from offloader.archive.archive import Archive
from offloader.archive.findings import Finding, FindingKind, offset_in
from offloader.archive.items import ArchivedEntry, EntryRun
from offloader.archive.ledgers.pair import LedgerPair
from offloader.archive.object_range import ObjectRange, Run, SplitPoint
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.reader import PlannedReader
from offloader.archive.selection import Selection
from offloader.archive.snapshot import OffloadedLedger
from offloader.errors import DamagedObjectError, FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.bridged import BridgedLedgers, HandedLedger
from offloader.metadata.bridges import BridgedLedger
from offloader.metadata.deletions import Tombstone, range_of
from offloader.metadata.layout import bridge_folder
from offloader.model import TopicName
from offloader.operations.verify.brokers_view import BrokersView, compared

THREADS = 8
DEEP_THREADS = 2  # each holds some MiB of an object and of its segments


@dataclass(frozen=True, slots=True)
class BridgeReport:
    """What a check of bridges found. `ledgers`: that are bridged; `off_list`: of these, those that Pulsar has deleted.
    `under_way`: of a round that is not finished."""

    findings: tuple[Finding, ...] = ()
    topics: int = 0
    ledgers: int = 0
    bytes: int = 0
    off_list: int = 0
    under_way: int = 0

    def __add__(self, other: BridgeReport) -> BridgeReport:
        return BridgeReport(
            self.findings + other.findings,
            self.topics + other.topics,
            self.ledgers + other.ledgers,
            self.bytes + other.bytes,
            self.off_list + other.off_list,
            self.under_way + other.under_way,
        )


@dataclass(frozen=True)
class BridgeCheck:
    """`view_of`: what brokers know of a topic; None: Pulsar has no such topic (any more). `quick`: no data is read.
    Raises what the stores and Pulsar raise."""

    archive: OpenArchive
    view_of: Callable[[TopicName], BrokersView | None]
    quick: bool = False

    def topic(self, topic: TopicName) -> BridgeReport:
        """Of one topic; nothing where it was never bridged."""
        try:
            bridged = self.archive.catalogs.bridged(topic)
        except (IntegrityError, FormatVersionError) as error:
            damaged = Finding(FindingKind.DAMAGED_RECORD, bridge_folder(topic), str(error), topic)
            return BridgeReport((damaged,), 1)
        told = {each.ledger.ledger: each for each in self._of_tombstones(topic)}
        read = frozenset(each.ledger.uuid for each in told.values())
        told |= bridged.ledgers
        if bridged.state is None and not told:
            return BridgeReport()
        view = self.view_of(topic) or BrokersView({})
        handed = [told[ledger] for ledger in sorted(told)]
        unnamed = sum(not each.by_brokers for each in told.values()) - len(bridged.ledgers)
        with ThreadPoolExecutor(THREADS if self.quick else DEEP_THREADS, "verify") as pool:
            of_objects = map_ahead(pool, partial(self._objects, topic, view, read), handed, 2 * THREADS)
            found = dict(zip((each.ledger.ledger for each in handed), of_objects, strict=True))
        findings = tuple(compared(topic, bridged, view))
        if findings or any(found.values()):  # brokers delete, and a round goes on, while this reads for hours
            again = self.view_of(topic) or BrokersView({})
            still = set(compared(topic, self.archive.catalogs.bridged(topic), again))
            findings = tuple(each for each in findings if each in still)
            left = (each for each in handed if view.names(each) and not again.names(each))
            found |= {each.ledger.ledger: [] for each in left}
        return BridgeReport(
            (*_lost(topic, unnamed), *findings, *(finding for each in found.values() for finding in each)),
            1,
            len(handed),
            sum(each.ledger.size for each in handed),
            sum(not _is_listed(each, bridged, view) for each in handed),
            len(bridged.under_way),
        )

    def _of_tombstones(self, topic: TopicName) -> Iterator[HandedLedger]:
        """What the archive reads of brokers' copies, whatever the bridge log says; without their sums."""
        records = self.archive.catalogs.records(topic)
        for each in records.whole.catalog.segments if records.head.removed.handed_over else ():
            for copy in each.copies if isinstance(each, Tombstone) else ():
                ledger = BridgedLedger(copy.ledger, copy.last, copy.length, copy.uuid)
                yield HandedLedger(each.start.incarnation, ledger, copy.bucket, copy.by_brokers)

    def _objects(
        self, topic: TopicName, view: BrokersView, read: Container[str], handed: HandedLedger
    ) -> list[Finding]:
        ledger, store = handed.ledger, self.archive.stores.open(handed.bucket).store
        pair = LedgerPair(store, topic, ledger.uuid, ledger.ledger)
        data, index = store.stat(pair.data_key), store.stat(pair.index_key)
        if not view.names(handed):
            for key in (pair.data_key if data else "", pair.index_key if index else ""):
                if key:
                    unnamed = f"no record of Pulsar's names this copy of ledger {ledger.ledger}"
                    more = "the archive reads it: do not delete it"
                    if ledger.uuid not in read:
                        more = "`offloader orphans scan --stock` tells more"
                    pair.add(FindingKind.UNNAMED_COPY, key, f"{unnamed}; {more}")
            return pair.findings
        pair.read_index()
        pair.check_size(None if data is None else data.size)
        pair.check_record(OffloadedLedger.of(handed.incarnation, handed.copy))
        if data is not None and ledger.size and data.size != ledger.size and not _has(pair, FindingKind.WRONG_SIZE):
            message = f"it has {data.size} bytes, and had {ledger.size} when it was built"
            pair.add(FindingKind.WRONG_SIZE, pair.data_key, message)
        if not self.quick and pair.sound:
            pair.check_contents(ledger.crc32c if ledger.size else None)
            for message in self._other_entries(topic, handed) if pair.sound else ():
                pair.add(FindingKind.WRONG_ENTRIES, pair.data_key, message)
        return pair.findings

    def _other_entries(self, topic: TopicName, handed: HandedLedger) -> Iterator[str]:
        """Where the archive's segments have other bytes than the brokers' copy. What is wrong with segments, `verify`
        without --bridged tells."""
        whole = OffloadedLedger.of(handed.incarnation, handed.copy)
        told = self.archive.catalogs.records(topic).head.removed.told
        if range_of(told, whole.start) is not None and range_of(told, whole.end) is not None:
            return
        ours = (item for item in self._of_segments(topic, whole) if range_of(told, item.position) is None)
        theirs = self._of_brokers(topic, whole)
        try:
            for entry in ours:
                other = next((each for each in theirs if each.position >= entry.position), None)
                if other is None or other != entry:
                    yield f"entry {entry.position} is not what its segment has"
                    return
        except (DamagedObjectError, ObjectNotFoundError) as error:
            if offset_in(str(error)) is not None and whole.object.data_key in str(error):
                yield str(error)

    def _of_segments(self, topic: TopicName, whole: OffloadedLedger) -> Iterator[ArchivedEntry]:
        found = Archive(OpenArchive(self.archive.stores, catalogs=self.archive.catalogs)).find(topic)
        return iter(()) if found is None else found.entries(Selection(whole.start, whole.end))

    def _of_brokers(self, topic: TopicName, whole: OffloadedLedger) -> Iterator[ArchivedEntry]:
        run = Run.closed(whole.start.ledger, 0, whole.end.entry)
        points = (SplitPoint(run.ledger, run.last, whole.size),)
        wanted = ObjectRange(topic, whole.start.incarnation, whole.object, (run,), points)
        for item in PlannedReader(self.archive.stores).read([wanted]):
            if isinstance(item, EntryRun):
                yield from item.entries()


def _lost(topic: TopicName, ledgers: int) -> Iterator[Finding]:
    if ledgers:
        message = f"it does not have {ledgers} ledgers that the archive reads from brokers' copies"
        yield Finding(FindingKind.DAMAGED_RECORD, bridge_folder(topic), message, topic)


def _is_listed(handed: HandedLedger, bridged: BridgedLedgers, view: BrokersView) -> bool:
    present = bridged.state is not None and handed.incarnation == bridged.state.incarnation
    return present and handed.ledger.ledger in view.contexts


def _has(pair: LedgerPair, kind: FindingKind) -> bool:
    return any(finding.kind is kind for finding in pair.findings)
