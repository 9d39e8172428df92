"""What must always hold: one function that every test which moves data calls at its end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from offloader.archive.continuity import spans
from offloader.archive.findings import FindingKind
from offloader.archive.items import ArchivedEntry, Item
from offloader.archive.topic import ArchivedTopic
from offloader.bridge.log import BridgeLog
from offloader.errors import OffloadError
from offloader.lifecycle.bucket.scan import BucketScanner
from offloader.metadata.catalog_codec import decode_catalog
from offloader.metadata.deletions import Deleting, DeletionBegun
from offloader.metadata.journal_reading import applications, read_journals
from offloader.metadata.journals import Journals
from offloader.metadata.layout import ROOT, parse_topic_key
from offloader.metadata.log import read_record
from offloader.model import GapKind, OpenSegment, Position, TopicName
from offloader.offload.core.evidence import pin_target
from offloader.operations.verify.catalog_records import ReadCatalog, read_catalog
from offloader.operations.verify.verify import verify
from offloader.ports.object_store import ObjectStore
from tests.truth import Truth, sha256

# Harmless leftovers: a journal names them, or readers do not see them.
HARMLESS = frozenset(
    {FindingKind.ABANDONED_OBJECT, FindingKind.LEFT_OVER, FindingKind.OPEN_UPLOAD, FindingKind.UNCOMMITTED_RECORD}
)

UNNAMED = frozenset({FindingKind.ABANDONED_OBJECT, FindingKind.STRAY_OBJECT, FindingKind.UNCOMMITTED_RECORD})

Place = tuple[int, int]


@dataclass
class PaceLog:
    """Whether one application kept its pace: its events in order. Times are in milliseconds.

    `longest_ms`: what a batch may take. `held`: until when failed topics wait, also those of an earlier start.
    """

    longest_ms: int
    held: dict[TopicName, int] = field(default_factory=dict)
    batches: int = 0
    retries: int = 0
    violations: list[str] = field(default_factory=list)

    def batch(self, took_ms: int) -> None:
        """A batch has ended."""
        self.batches += 1
        if took_ms > self.longest_ms:
            self.violations.append(f"6: a batch took {took_ms} ms of {self.longest_ms}")

    def failed(self, topic: TopicName, until: int) -> None:
        """A topic has failed and waits."""
        self.held[topic] = until

    def planned(self, topic: TopicName, at: int) -> None:
        """A slice of the topic is in a plan."""
        until = self.held.pop(topic, None)
        if until is None:
            return
        self.retries += 1
        if at < until:
            self.violations.append(f"6: {topic} was planned {until - at} ms before its back-off was over")


def check_invariants(
    store: ObjectStore,
    truths: Mapping[TopicName, Truth],
    *,
    at_rest: bool = False,
    allowed: Collection[FindingKind] = HARMLESS,
    paces: Iterable[PaceLog] = (),
) -> None:
    """Check the archive of these topics against what was produced. Raises AssertionError that lists every violation.

    1, 2, 5, 7 by `verify` and by reading everything back; 3 and 4 against pins and journals; 6 by the `paces` of
    applications; 8 by the catalogs' records of deletions. `at_rest`: everything delivered is offloaded, nothing is
    open, and each pin is acknowledged up to the end. `allowed`: findings that are no violation, for example
    `HARMLESS | {FindingKind.STRAY_OBJECT}` where the answer to a commit was lost and the object abandoned.
    """
    violations = [text for pace in paces for text in pace.violations]
    findings = verify(store).findings
    violations += [_numbered(f.kind, str(f)) for f in findings if f.kind not in allowed]
    violations += _unreported(store, {f.key for f in findings if f.kind in UNNAMED and parse_topic_key(f.key)})
    journals = read_journals(store, applications(store))
    for topic, truth in truths.items():
        read = read_catalog(store, topic)
        violations += (f"4: {topic}: {text}" for text in _unfinished(read, journals))
        left = {segment.uuid for _, segment in journals.unfinished(topic)}
        if at_rest and left:
            violations.append(f"at rest: {topic}: segment {min(left)} is not offloaded")
        violations += (f"7: {text} ({topic})" for text in _empty_records(read))
        violations += (f"{text} ({topic})" for text in _of_topic(store, read, truth, at_rest=at_rest))
        violations += (f"{text} ({topic})" for text in _deletions(store, read))
    if violations:
        raise AssertionError(f"{len(violations)} violations of what must always hold:\n" + "\n".join(violations))


def _unfinished(read: ReadCatalog, journals: Journals) -> Iterator[str]:
    """At most one segment is open. Those assigned ahead of it are history: each has a fixed end, and so has what is
    before them; they stand in their order, and none is committed before its turn."""
    topic = read.catalog.topic
    opened = {segment.uuid for _, segment in journals.open_segments(topic)}
    if len(opened) > 1:
        yield f"{len(opened)} segments are open: {sorted(opened)}"
    committed = {segment.uuid for segment in read.catalog.segments}
    for application in sorted({name for name, _ in journals.unfinished(topic)}):
        state = journals.states[application][topic]
        for before, after in pairwise(state.unfinished):
            if before.closing_end is None or after.closing_end is None:
                yield f"segment {after.uuid} is assigned while the end of {before.uuid} is open, or its own"
            elif not before.closing_end < after.start <= after.closing_end:
                yield f"segment {after.uuid} begins at {after.start}, the one before ends at {before.closing_end}"
            elif state.failure is None and not _follows(before.closing_end, after):
                yield f"segment {after.uuid} begins at {after.start}, behind a hole after {before.closing_end}"
        for ahead in state.ahead:
            if ahead.segment.uuid in committed:
                yield f"segment {ahead.segment.uuid} is committed before its turn"


def _empty_records(read: ReadCatalog) -> Iterator[str]:
    """Records that contain no position. So a topic has at most as many records as entries and ledgers."""
    ranges = [(segment.start, segment.end) for segment in read.catalog.segments]
    ranges += [(loss.start, loss.end) for loss in read.catalog.losses]
    for start, end in ranges:
        if end < start:
            yield f"the record from {start} to {end} contains no position"


def _follows(end: Position, segment: OpenSegment) -> bool:
    """Whether a segment starts right behind this end: in its ledger, or in the next one where that ends the ledger.
    (Where one ended early that is mended once the open one goes on: while it fails, there may be a hole.)"""
    start = segment.start
    former = (segment.former_ledger, segment.former_ledger_last)
    return start == end.next_entry or (start.ledger > end.ledger and start.entry == 0 and former == end.place)


def _unreported(store: ObjectStore, unnamed: Collection[str]) -> Iterator[str]:
    """What nothing names, a scan for orphans reports. (No root: no such scan.)"""
    if not unnamed or store.stat(ROOT) is None:
        return
    scanner = BucketScanner(store, lambda: 0, lambda: "invariants", 0)
    reported = {orphan.id for orphan in scanner.scan().orphans}
    told, _ = scanner.look(sorted(set(unnamed) - reported), ())  # what somebody names by now is no violation
    for key, found in told.items():
        if not isinstance(found, str):
            yield f"5: {key}: nothing names it, and no scan reports it"


def _numbered(kind: FindingKind, text: str) -> str:
    """Which of the design's invariants a finding breaks."""
    if kind in (FindingKind.HOLE, FindingKind.OVERLAP, FindingKind.UNPROVEN_END, FindingKind.WRONG_PREDECESSOR):
        return f"7: {text}"
    return f"{'5' if kind is FindingKind.STRAY_OBJECT else '2'}: {text}"


def _of_topic(store: ObjectStore, read: ReadCatalog, truth: Truth, *, at_rest: bool) -> Iterator[str]:
    archived = _Archived()
    try:
        for item in ArchivedTopic.of(store, read.catalog).items():
            archived.add(item)
    except OffloadError as error:
        yield f"1: reading back: {error}"
        return
    yield from archived.twice
    yield from _contents(archived, truth, _windows(read))
    bridged = _bridged(store, read) if truth.readable else None
    yield from _pin(truth, read, bridged, at_rest=at_rest)


def _deletions(store: ObjectStore, read: ReadCatalog) -> Iterator[str]:
    """Whether each deletion was recorded before it began, and began no earlier than it had said."""
    if read.catalog.head.removal is None:
        return
    said: dict[int, int] = {}
    for key in (record.key for record in read.records):
        record = decode_catalog(key, read_record(store, key))
        if isinstance(record, Deleting):
            said[record.number] = record.not_before
        elif isinstance(record, DeletionBegun) and said.get(record.number, record.at + 1) > record.at:
            yield f"8: deletion {record.number} began at {record.at}, it may not before {said.get(record.number)}"


class _Archived:
    """What reading back gave, by (ledger, entry): Pulsar never uses a ledger id twice."""

    def __init__(self) -> None:
        self.entries: dict[Place, str] = {}
        self.gaps: dict[Place, GapKind] = {}
        self.losses: list[tuple[Place, Place]] = []
        self.twice: list[str] = []

    def add(self, item: Item) -> None:
        if isinstance(item, ArchivedEntry):
            self._once(item.position.place)
            self.entries[item.position.place] = sha256(item.data)
        elif item.kind is None:
            self.losses.append((item.start.place, item.end.place))
        else:
            for entry in item.entries.ids:
                self._once((item.start.ledger, entry))
                self.gaps[item.start.ledger, entry] = item.kind

    def lost(self, place: Place) -> bool:
        return any(first <= place <= last for first, last in self.losses)

    def _once(self, place: Place) -> None:
        if place in self.entries or place in self.gaps:
            self.twice.append(f"1: {_text(place)} is archived twice")


def _contents(archived: _Archived, truth: Truth, windows: list[tuple[Place, Place]]) -> Iterator[str]:
    for place, true in truth.entries.items():
        in_window = any(first <= place <= last for first, last in windows)
        if place in archived.entries:
            if true.sha256 not in (None, archived.entries[place]):
                yield f"1: {_text(place)} is not archived byte for byte"
            if archived.lost(place):
                yield f"1: {_text(place)} is archived and recorded as lost"
        elif place in archived.gaps:
            if archived.gaps[place] not in true.gaps:
                yield f"1: {_text(place)} is recorded as {archived.gaps[place]}, which it is not"
        elif in_window and not archived.lost(place):
            yield f"1: {_text(place)} is in no segment, gap or loss"
    if truth.complete:
        for place in sorted((archived.entries.keys() | archived.gaps.keys()) - truth.entries.keys()):
            yield f"1: {_text(place)} is archived, but was never written"


def _bridged(store: ObjectStore, read: ReadCatalog) -> Position | None:
    """Up to where stock brokers read what the topic's pin has let go of."""
    head, claim = read.catalog.head, read.catalog.claim
    if claim is None:
        return None
    state = BridgeLog(store, lambda: "invariants").load(head.topic).state
    of_this = state is not None and state.incarnation == claim.incarnation
    if state is not None and of_this and state.up_to is not None:
        return state.up_to
    before = [loss.end for loss in read.catalog.losses if loss.start == claim.begin]  # that had our subscription
    return max([claim.begin.previous_entry, *before])


def _pin(truth: Truth, read: ReadCatalog, bridged: Position | None, *, at_rest: bool) -> Iterator[str]:
    begin, end, mark = _begin(read), read.catalog.end, truth.mark_delete
    if begin is None:
        return
    if bridged is not None and mark is not None and mark > bridged.place:
        let_go = [place for place in sorted(truth.entries) if bridged.place < place <= mark]
        if let_go:
            yield f"3: the pin is acknowledged up to {_text(mark)}, past {_text(let_go[0])}, which is not bridged"
    before = begin.previous_entry.place
    last = before if end is None else end.place
    following = sorted(place for place in truth.entries if place > last)
    if mark is not None and following and following[0] <= mark:
        yield f"3: the pin is acknowledged up to {_text(mark)}, past {_text(following[0])}, which is not offloaded"
    if not at_rest:
        return
    left = [place for place in following if not truth.entries[place].gaps]
    if left:
        yield f"at rest: {len(left)} entries from {_text(left[0])} on are not offloaded"
    if mark is not None and end is not None:
        wanted = (pin_target(read.catalog.head, bridged) or end).place
        behind = [place for place in sorted(truth.entries) if max(mark, before) < place <= wanted]
        if behind:
            yield f"3: at rest the pin stands at {_text(mark)}, {len(behind)} entries before {_text(wanted)}"


def _windows(read: ReadCatalog) -> list[tuple[Place, Place]]:
    """From the first to the last offloaded position of each incarnation."""
    recorded = spans(read.catalog)
    found = []
    for incarnation in sorted({s.start.incarnation for s in recorded}):
        mine = [s for s in recorded if s.start.incarnation == incarnation]
        begins = [c.begin for c in read.claims if c.incarnation == incarnation]
        first = min([*(s.start for s in mine), *begins[:1]])
        found.append((first.place, max(s.end for s in mine).place))
    return found


def _begin(read: ReadCatalog) -> Position | None:
    """Where the present incarnation begins."""
    claim = read.catalog.claim
    first = next((c for c in read.claims if claim is not None and c.incarnation == claim.incarnation), None)
    return None if first is None else first.begin


def _text(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
