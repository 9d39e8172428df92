"""Bridged ledgers, checked: what brokers know of them against what their bridge log says, their objects, and these
against the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

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
from offloader.bridge.core.rounds import BridgedCopy, BridgedLedgers
from offloader.errors import DamagedObjectError, FormatVersionError, IntegrityError, ObjectNotFoundError
from offloader.metadata.deletions import range_of
from offloader.metadata.layout import bridge_folder
from offloader.metadata.stock_keys import data_key
from offloader.model import Position, TopicName
from offloader.state.managed_ledger import ManagedLedger, OffloadContext

THREADS = 8
DEEP_THREADS = 2  # each holds a range of an object and an entry in memory
NO_LEDGERS = ManagedLedger()


@dataclass(frozen=True, slots=True)
class BrokersView:
    """`listed`: Pulsar's record. `reported`: the ledgers that the broker reports as offloaded; None: no broker has said
    it."""

    listed: ManagedLedger = NO_LEDGERS
    reported: frozenset[int] | None = None

    def names(self, handed: BridgedCopy) -> bool:
        """Whether brokers read a ledger from our objects."""
        found = self.listed.get(handed.ledger.ledger)
        return found is not None and found.copy.complete and found.copy.uuid == handed.ledger.uuid


def compared(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """Where the two do not agree. What is off Pulsar's list, brokers have deleted: that is their right."""
    for ledger, handed in sorted(bridged.ledgers.items()):
        found = view.listed.get(ledger)
        if found is not None and handed.incarnation == _incarnation(bridged):
            yield from _context(topic, handed, found.copy, view.listed.last_entry(found))
    yield from _stale(topic, bridged, view)
    yield from _passed(topic, bridged, view)


def _context(topic: TopicName, handed: BridgedCopy, found: OffloadContext, last: int | None) -> Iterator[Finding]:
    ledger, bucket = handed.ledger, urlsplit(handed.bucket).netloc
    key, at = data_key(ledger.uuid, ledger.ledger), Position(handed.incarnation, ledger.ledger, 0)
    if not found.uuid:
        message = f"Pulsar's record has no copy of ledger {ledger.ledger}"
        yield Finding(FindingKind.MISSING_CONTEXT, key, message, topic, position=at)
    elif found.uuid != ledger.uuid:
        message = f"Pulsar's record has the copy {found.uuid} of ledger {ledger.ledger}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)
    elif not found.complete:
        message = f"Pulsar's record does not say that this copy of ledger {ledger.ledger} is complete"
        yield Finding(FindingKind.MISSING_CONTEXT, key, message, topic, position=at)
    elif found.bucket not in ("", bucket):
        message = f"Pulsar's record says that it is in bucket {found.bucket}, and it was built in {bucket}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)
    elif last != ledger.last:
        message = f"Pulsar's record has ledger {ledger.ledger} up to entry {last}, its bridge up to {ledger.last}"
        yield Finding(FindingKind.OTHER_CONTEXT, key, message, topic, position=at)


def _stale(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """But for those of a round that is under way: the record and the report are read one after the other."""
    if view.reported is None:
        return
    state = bridged.state
    rounds = () if state is None else (each for each in (state.round, state.leaving) if each is not None)
    changing = {ledger.ledger for each in rounds for ledger in each.ledgers}
    complete = {each.ledger for each in view.listed.ledgers if each.copy.complete}
    reported = view.reported & {each.ledger for each in view.listed.ledgers}
    for ledger in sorted((complete ^ reported) - changing):
        knows, says = ("reports", "has none") if ledger in view.reported else ("does not report", "has one")
        message = f"the broker {knows} a copy of ledger {ledger}, Pulsar's record {says}"
        yield Finding(FindingKind.STALE_BROKER, bridge_folder(topic), message, topic)


def _passed(topic: TopicName, bridged: BridgedLedgers, view: BrokersView) -> Iterator[Finding]:
    """Ledgers that clients would miss once BookKeeper has let go of them."""
    state = bridged.state
    if state is None:
        return
    if state.blocked is not None:
        at = Position(state.incarnation, state.blocked.ledger, 0)
        message = f"ledger {state.blocked.ledger} cannot be bridged: {state.blocked.verdict}: {state.blocked.why}"
        yield Finding(FindingKind.NOT_BRIDGED, bridge_folder(topic), message, topic, position=at)
    for found in view.listed.ledgers:
        ledger, last = found.ledger, view.listed.last_entry(found)
        done = state.up_to is not None and last is not None and ledger <= state.up_to.ledger
        known = found.copy.complete or ledger in bridged.ledgers or ledger in bridged.let_go
        if done and not known and last != -1:
            at = Position(state.incarnation, ledger, 0)
            message = f"the bridge reaches up to {state.up_to}, and no broker has a copy of ledger {ledger}"
            yield Finding(FindingKind.NOT_BRIDGED, bridge_folder(topic), message, topic, position=at)


def _incarnation(bridged: BridgedLedgers) -> int:
    return -1 if bridged.state is None else bridged.state.incarnation


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
        if bridged.state is None:
            return BridgeReport()
        view = self.view_of(topic) or BrokersView()
        handed = [each for _, each in sorted(bridged.ledgers.items())]
        with ThreadPoolExecutor(THREADS if self.quick else DEEP_THREADS, "verify") as pool:
            of_objects = map_ahead(pool, partial(self._objects, topic, view), handed, 2 * THREADS)
            found = dict(zip((each.ledger.ledger for each in handed), of_objects, strict=True))
        findings = tuple(compared(topic, bridged, view))
        if findings or any(found.values()):  # brokers delete, and a round goes on, while this reads for hours
            again = self.view_of(topic) or BrokersView()
            still = set(compared(topic, self.archive.catalogs.bridged(topic), again))
            findings = tuple(each for each in findings if each in still)
            left = (each for each in handed if view.names(each) and not again.names(each))
            found |= {each.ledger.ledger: [] for each in left}
        return BridgeReport(
            (*findings, *(finding for each in found.values() for finding in each)),
            1,
            len(handed),
            sum(each.ledger.size for each in handed),
            sum(not _is_listed(each, bridged, view) for each in handed),
            len(bridged.under_way),
        )

    def _objects(self, topic: TopicName, view: BrokersView, handed: BridgedCopy) -> list[Finding]:
        ledger, store = handed.ledger, self.archive.stores.open(handed.bucket).store
        pair = LedgerPair(store, topic, ledger.uuid, ledger.ledger)
        data, index = store.stat(pair.data_key), store.stat(pair.index_key)
        if not view.names(handed):
            for key in (pair.data_key if data else "", pair.index_key if index else ""):
                if key:
                    unnamed = f"no record of Pulsar's names this copy of ledger {ledger.ledger}"
                    more = "`offloader orphans scan --stock` tells more"
                    pair.add(FindingKind.UNNAMED_COPY, key, f"{unnamed}; {more}")
            return pair.findings
        with pair.archived_is_finding(pair.index_key):
            pair.read_index()
        pair.check_size(None if data is None else data.size)
        pair.check_record(OffloadedLedger.of(handed))
        if data is not None and data.size != ledger.size and not _has(pair, FindingKind.WRONG_SIZE):
            message = f"it has {data.size} bytes, and had {ledger.size} when it was built"
            pair.add(FindingKind.WRONG_SIZE, pair.data_key, message)
        if not self.quick and pair.sound:
            with pair.archived_is_finding(pair.data_key):
                pair.check_contents(ledger.crc32c)
                for message in self._other_entries(topic, handed) if pair.sound else ():
                    pair.add(FindingKind.WRONG_ENTRIES, pair.data_key, message)
        return pair.findings

    def _other_entries(self, topic: TopicName, handed: BridgedCopy) -> Iterator[str]:
        """Where the archive's segments have other bytes than the brokers' copy. What is wrong with segments, `verify`
        without --bridged tells."""
        whole = OffloadedLedger.of(handed)
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


def _is_listed(handed: BridgedCopy, bridged: BridgedLedgers, view: BrokersView) -> bool:
    present = bridged.state is not None and handed.incarnation == bridged.state.incarnation
    return present and view.listed.get(handed.ledger.ledger) is not None


def _has(pair: LedgerPair, kind: FindingKind) -> bool:
    return any(finding.kind is kind for finding in pair.findings)
