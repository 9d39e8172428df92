"""Every position of a topic once, also where it is archived in two ways. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from offloader.archive.continuity import LedgerPart, Span, closed_with
from offloader.archive.snapshot import LAST_ENTRY, OffloadedLedger, TopicSnapshot
from offloader.metadata.state import TopicCatalog
from offloader.model import EntryRange, Loss, Position, Segment


def distinct_spans(snapshot: TopicSnapshot) -> list[Span]:
    """The topic without overlaps, in order of positions: segments first; ledgers of Pulsar's own offloader without what
    segments have; losses without what those ledgers have."""
    catalog = snapshot.catalog
    taken = _taken(catalog.segments) if snapshot.ledgers else {}
    ledgers = [part for held in snapshot.ledgers for part in _parts(catalog, held, taken.get(held.start[:2], []))]
    readable = [held for held in snapshot.ledgers if held.unreadable is None]
    losses = [rest for loss in catalog.losses for rest in _lost(loss, readable)]
    return sorted((*catalog.segments, *ledgers, *losses), key=lambda span: span.start)


def located(snapshot: TopicSnapshot, position: Position) -> Position:
    """A position, in the incarnation of its ledger: a cluster's ledger ids grow, and none is used twice."""
    known = distinct_spans(snapshot)
    reached = (span.end.incarnation for span in known if reaches(span, position))
    last = known[-1].end.incarnation if known else position.incarnation
    return position._replace(incarnation=next(reached, last))


def _parts(catalog: TopicCatalog, held: OffloadedLedger, taken: Iterable[EntryRange]) -> Iterator[LedgerPart]:
    """The parts of a ledger that are read. An unreadable one ends where the catalog says, without recorded losses."""
    if held.unreadable is None:
        return _left_of(held, taken)
    known = closed_with(catalog, held.start)
    ended = held if known is None else replace(held, end=held.end.at(known))
    return _left_of(ended, [*taken, *_lost_of(catalog.losses, held.start[:2])])


def _lost_of(losses: Iterable[Loss], place: tuple[int, int]) -> Iterator[EntryRange]:
    """What is recorded as lost of the ledger (incarnation, ledger)."""
    for loss in losses:
        begin, end = loss.start[:2], loss.end[:2]
        if begin <= place <= end:
            first, last = loss.start.entry if begin == place else 0, loss.end.entry if end == place else LAST_ENTRY
            yield EntryRange.closed(place[1], first, last)


def reaches(span: Span, position: Position) -> bool:
    """A loss may end right before the first ledger of the next incarnation, and name that."""
    if isinstance(span, Loss) and span.end.ledger == position.ledger:
        return span.end.entry >= position.entry
    return span.end.ledger >= position.ledger


def _left_of(ledger: OffloadedLedger, taken: Iterable[EntryRange]) -> Iterator[LedgerPart]:
    whole = EntryRange.closed(ledger.start.ledger, ledger.start.entry, ledger.end.entry)
    for left in whole.without(taken):
        yield LedgerPart(ledger, ledger.start.at(left.first), ledger.start.at(left.last))


def _taken(segments: Iterable[Segment]) -> dict[tuple[int, int], list[EntryRange]]:
    """What segments have of ledgers, gaps included, by incarnation and ledger."""
    taken: defaultdict[tuple[int, int], list[EntryRange]] = defaultdict(list)
    for segment in segments:
        for held in segment.ledgers:
            taken[segment.start.incarnation, held.ledger].append(held)
    return taken


def _lost(loss: Loss, ledgers: Iterable[OffloadedLedger]) -> Iterator[Loss]:
    """What is lost of a loss where ledgers that are archived lie in it."""
    at = loss.start
    for ledger in sorted(ledgers, key=lambda held: held.start):
        if ledger.end < at or ledger.start > loss.end:
            continue
        before = Position(ledger.start.incarnation, ledger.start.ledger, -1)
        if before > at:
            yield replace(loss, start=at, end=before)
        at = ledger.end.next_entry
    if at <= loss.end:
        yield replace(loss, start=at)
