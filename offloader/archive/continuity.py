"""Whether what is recorded of a topic follows on without a hole: proven from the records alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from offloader.archive.findings import FindingKind
from offloader.archive.snapshot import LAST_ENTRY, OffloadedLedger, TopicSnapshot
from offloader.metadata.state import TopicCatalog
from offloader.model import Loss, Position, Segment


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """The entries of an offloaded ledger that are read from it: those that no segment has."""

    ledger: OffloadedLedger
    start: Position
    end: Position


Span = Segment | Loss | LedgerPart
Fault = tuple[FindingKind, str]


@dataclass(frozen=True, slots=True)
class Break:
    """Two neighbours that do not follow on: a hole, an overlap, or an end that nothing records.

    `before` None: `after` is the first one, and does not begin where the topic does.
    """

    kind: FindingKind
    before: Span | None
    after: Span
    message: str


def spans(catalog: TopicCatalog) -> list[Segment | Loss]:
    """Segments and losses in the order of their positions."""
    return sorted((*catalog.segments, *catalog.losses), key=lambda s: s.start)


def breaks(catalog: TopicCatalog) -> Iterator[Break]:
    """Every place where what is recorded does not follow on."""
    junctions = Junctions(TopicSnapshot.of(catalog))
    for before, after in pairwise((None, *spans(catalog))):
        found = None if after is None else junctions.break_between(before, after)
        if found is not None:
            yield found


class Junctions:
    """Whether neighbours among a topic's spans follow on."""

    def __init__(self, snapshot: TopicSnapshot) -> None:
        self._snapshot = snapshot

    def break_between(self, before: Span | None, after: Span) -> Break | None:
        """What is wrong between two neighbours; None where `after` begins at the successor of `before`'s end, or where
        its incarnation begins. `before` None: nothing is recorded before `after`."""
        fault = self._fault(before, after)
        return None if fault is None else Break(fault[0], before, after, fault[1])

    def _fault(self, before: Span | None, after: Span) -> Fault | None:
        if before is None or before.end.incarnation != after.start.incarnation:
            return _without_predecessor(before, after) or self._at_begin(after)
        end, start = before.end, after.start
        if start <= end:
            return FindingKind.OVERLAP, f"{name(after)} starts at {start}, {name(before)} ends at {end}"
        if start.ledger != end.ledger:
            return _without_predecessor(before, after) or self._across_ledgers(before, after)
        if start == end.next_entry:
            return None
        return FindingKind.HOLE, f"{end.next_entry}..{start.previous_entry.entry} is in no segment"

    def _at_begin(self, after: Span) -> Fault | None:
        """What follows a claim's begin may be in a later ledger: Pulsar replaces empty ones when it loads a topic."""
        begin, start = self._snapshot.catalog.begins.get(after.start.incarnation), after.start
        if begin is None or begin >= start or (begin.ledger < start.ledger and start.entry <= 0):
            return None
        gone = f"{begin}..{start.previous_entry.entry}" if begin.ledger == start.ledger else f"{begin} up to {start}"
        return FindingKind.HOLE, f"{gone} is in no record: what was claimed begins there, {name(after)} after it"

    def _across_ledgers(self, before: Span, after: Span) -> Fault | None:
        end, start = before.end, after.start
        unproven = (
            FindingKind.UNPROVEN_END,
            f"nothing proves that no ledger is missing between {end.ledger} and {start.ledger}",
        )
        if end.entry == LAST_ENTRY:  # of a ledger that cannot be read, all is told of as missing
            return unproven
        closed = self._ends.get((end.incarnation, end.ledger))
        if closed is None:
            unrecorded = f"nothing records that ledger {end.ledger} ended with {end.entry}"
            return FindingKind.UNPROVEN_END, f"{name(after)} starts at {start}, and {unrecorded}"
        if closed > end.entry:
            return FindingKind.HOLE, f"{end.next_entry}..{closed} is in no segment"
        if closed < end.entry:
            return FindingKind.OVERLAP, f"{name(before)} ends at {end}, but its ledger was closed with {closed}"
        if start.entry > 0:
            return FindingKind.HOLE, f"{start.at(0)}..{start.previous_entry.entry} is in no segment"
        # That segments follow on, their own records prove.
        beside_brokers = isinstance(before, LedgerPart) or isinstance(after, LedgerPart)
        return unproven if beside_brokers and not self._listed(end.ledger, start.ledger) else None

    def _listed(self, ledger: int, following: int) -> bool:
        """Whether Pulsar's list has the two one after the other."""
        listed = self._snapshot.listed
        return listed is not None and ledger in listed and listed.next_ledger(ledger) == following

    @cached_property
    def _ends(self) -> dict[tuple[int, int], int]:
        """The last entries of closed ledgers, by incarnation and ledger."""
        readable = (held for held in self._snapshot.ledgers if held.unreadable is None)
        ends = {(held.start.incarnation, held.start.ledger): held.end.entry for held in readable}
        for segment in self._snapshot.catalog.segments:
            for held in segment.ledgers:
                if held.closed_with is not None:
                    ends[segment.start.incarnation, held.ledger] = held.closed_with
        return ends | self._snapshot.catalog.closed


def _without_predecessor(before: Span | None, after: Span) -> Fault | None:
    """A record says up to where the one before it reached: so far, something must be recorded."""
    if isinstance(after, LedgerPart) or after.predecessor_end is None:
        return None
    reached = after.predecessor_end
    if before is not None and before.end >= reached:
        return None
    return FindingKind.HOLE, f"{name(after)} follows {after.predecessor_uuid} up to {reached}, which is not recorded"


def closed_with(catalog: TopicCatalog, position: Position) -> int | None:
    """The last entry that the ledger of a position was closed with, as far as any record of the catalog says."""
    recorded = catalog.closed.get((position.incarnation, position.ledger))
    if recorded is not None:
        return recorded
    said = (
        held.closed_with
        for segment in reversed(catalog.segments)
        if segment.start.incarnation == position.incarnation
        for held in segment.ledgers
        if held.ledger == position.ledger and held.closed_with is not None
    )
    return next(said, None)


def name(span: Span) -> str:
    """How a span is called in messages."""
    match span:
        case Segment():
            return f"segment {span.uuid}"
        case LedgerPart():
            return f"ledger {span.start.ledger} ({span.ledger.object.data_key})"
        case Loss():
            return f"the loss {span.start}..{span.end}"
