"""Segments that were handed over to brokers, read from the objects of their ledgers: from tombstones alone.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from offloader.archive.items import DAMAGED, Missing
from offloader.archive.object_range import ObjectRange, PlanItem, Run, SplitPoint, clipped, runs
from offloader.archive.reading.ranges import LEDGER_STEP, append, by_parts
from offloader.archive.selection import Selection
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.metadata.deletions import Tombstone, day
from offloader.metadata.layout import record_key
from offloader.model import EntryRange, Position, Segment


class HandedOver:
    """What becomes of a segment whose ledgers brokers have. Its tombstone says where these are, which entries there
    are, and which gaps: so readers see the same as before."""

    def __init__(self, snapshot: TopicSnapshot) -> None:
        self._snapshot = snapshot

    def items(self, stone: Tombstone, first: Position, last: Position, selection: Selection) -> Iterator[PlanItem]:
        """What is selected of it between two positions. A ledger that Pulsar has deleted is missing; one that nothing
        tells of is damage."""
        told = f"deleted by {stone.policy} on {day(stone.deleted_at)}"
        copies = {each.ledger: each for each in stone.copies}
        for ledger, kept in groupby(_kept(stone, first, last, selection), lambda run: run.ledger):
            wanted, copy = tuple(kept), copies.get(ledger)
            start = stone.start._replace(ledger=ledger)
            begin, end = start.at(wanted[0].first), start.at(wanted[-1].last)
            if gone := off_the_list(self._snapshot, start.incarnation, ledger):
                yield Missing(begin, end, f"deleted by Pulsar: {told}, and {gone}", deleted=True)
            elif copy is None or copy.last < end.entry:
                key = record_key(self._snapshot.topic, stone.uuid)
                why = f"{key}: {told}, and this tombstone does not say where brokers have ledger {ledger}"
                yield Missing(begin, end, DAMAGED + why, damaged=key)
            else:
                yield self._range_of(OffloadedLedger.of(start.incarnation, copy), wanted)

    def _range_of(self, bridged: OffloadedLedger, wanted: tuple[Run, ...]) -> ObjectRange:
        per_entry = ENTRY_HEADER_SIZE + bridged.size / bridged.end.next_entry.entry
        points = tuple(_points([run for run in wanted if run.gap is None], per_entry))
        ends = bool(points) and points[-1].entry == bridged.end.entry
        topic, incarnation = self._snapshot.topic, bridged.start.incarnation
        return ObjectRange(topic, incarnation, bridged.object, wanted, points, ends_object=ends)


def off_the_list(snapshot: TopicSnapshot, incarnation: int, ledger: int) -> str:
    """In words since when Pulsar does not have a ledger any more, also with a whole former incarnation; "": not that
    anybody saw."""
    trimmed = snapshot.catalog.head.removed.trimmed
    if trimmed is None or (trimmed.incarnation, trimmed.first) <= (incarnation, ledger):
        return ""
    return f"Pulsar had no ledger {ledger} any more on {day(trimmed.at)}"


def _kept(segment: Segment, first: Position, last: Position, selection: Selection) -> list[Run]:
    """As of a segment that is there: gaps, and the entries of parts that may match. Without parts, all."""
    found = clipped(runs(segment), first, last)
    if not segment.parts:
        return list(found)
    kept: list[Run] = []
    for part, run in by_parts(segment, found):
        if part is None:
            kept.append(run)
        elif part.stats.publish_bounds is None or selection.meets(*part.stats.publish_bounds):
            append(kept, run)
    return kept


def _points(wanted: list[Run], per_entry: float) -> Iterator[SplitPoint]:
    """One about every `LEDGER_STEP` bytes, and at the end; lengths are estimates."""
    step = max(1, int(LEDGER_STEP / per_entry))
    count = 0
    for run in wanted:
        for begin in run.ids[::step]:
            each = EntryRange(run.ledger, begin, min(begin + step, run.after))
            count += each.span
            if count >= step or each.last == wanted[-1].last:
                yield SplitPoint(run.ledger, each.last, int(count * per_entry) + 1)
                count = 0
