"""Turns a selection of a topic into object ranges, and these into tasks: from records alone, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from offloader.archive.continuity import Junctions, LedgerPart, Span
from offloader.archive.findings import FindingKind
from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange, PlanItem, Run, clipped
from offloader.archive.reading.bridged_ranges import HandedOver, off_the_list
from offloader.archive.reading.deletions import Deletions
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.reading.ranges import of_ledger, of_segment
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot, Unreadable
from offloader.errors import DamagedRecordError
from offloader.metadata.deletions import Tombstone
from offloader.model import Loss, Position, Segment, TopicName


def plan(
    snapshot: TopicSnapshot, selection: Selection = EVERYTHING, planned_to: Position | None = None
) -> list[PlanItem]:
    """Everything that is selected, in topic order; each position once. A Missing says where nothing proves that two
    records follow on. Positions cut ranges short, times leave out whole parts. Records up to `planned_to` give no
    items, but show what the first planned one follows. What is recorded as deleted is told once for each
    range, as Missing; segments that were handed over to brokers are read from their objects. Raises DamagedRecordError
    where the records have a hole, an overlap, or contradict themselves."""
    items: list[PlanItem] = []
    junctions = Junctions(snapshot)
    before: Span | None = None
    first = snapshot.catalog.follows is None
    removed = snapshot.catalog.head.removed
    deleted, handed_over = Deletions(removed.withheld), HandedOver(snapshot)
    for span in distinct_spans(snapshot):
        if planned_to is not None and span.end <= planned_to:
            before = span
            continue
        if deleted.has(span):
            items += deleted.tell(span, selection, planned_to)
            before, first = (span if selection.start is None or span.end >= selection.start else None), False
            continue
        too_early = selection.start is not None and span.end < selection.start
        if too_early or (selection.end is not None and span.start > selection.end):
            first = False
            continue
        if before is not None or (first and (selection.start is None or selection.start < span.start)):
            items += _between(snapshot.topic, junctions, before, span)
        items += _of_span(snapshot, handed_over, span, selection)
        before = span
    return items


def split(items: Iterable[PlanItem], max_bytes: int) -> list[tuple[PlanItem, ...]]:
    """Tasks of at most `max_bytes` each, in order. One is larger only where no split point is near enough."""
    tasks: list[tuple[PlanItem, ...]] = []
    task: list[PlanItem] = []
    used = 0
    for item in items:
        rest: PlanItem | None = item
        while rest is not None:
            taken, rest = _taken(rest, max_bytes - used, whole=used > 0)
            if taken is not None:
                task.append(taken)
                used += 0 if isinstance(taken, Missing) else taken.size
            if rest is not None:
                tasks.append(tuple(task))
                task, used = [], 0
    if task:
        tasks.append(tuple(task))
    return tasks


def until(items: Iterable[PlanItem], end: Position) -> Iterator[ObjectRange]:
    """The ranges up to a position, which is included. Leaves out what is missing."""
    for item in items:
        if isinstance(item, ObjectRange) and item.start <= end:
            yield item if item.end <= end else _up_to(item, end)


def contiguous(planned: Callable[[Selection], Iterable[PlanItem]], selection: Selection) -> Iterator[PlanItem]:
    """The plan of a selection; with times, of everything between the first and the last entry that may match.

    A message's chunks may lie in parts that hold no wanted message. Losses are kept wherever they lie.
    """
    if not selection.is_timed:
        yield from planned(selection)
        return
    before: list[PlanItem] = []
    after: list[PlanItem] = []
    first = last = None
    for item in planned(selection):
        if isinstance(item, ObjectRange) and item.split_points:
            first, last = first or item, item
            after = []
        else:
            (before if first is None else after).append(item)
    yield from before
    if first is not None and last is not None:
        lead, tail = tuple(_gaps(first.runs)), tuple(_gaps(reversed(last.runs)))[::-1]
        begin, end = first.runs[len(lead)], last.runs[-len(tail) - 1]
        yield from _only_gaps(first, lead)
        yield from planned(Selection(first.start_of(begin), last.end_of(end)))
        yield from _only_gaps(last, tail)
    yield from after


def _gaps(runs: Iterable[Run]) -> Iterator[Run]:
    return takewhile(lambda run: run.gap is not None, runs)


def _only_gaps(item: ObjectRange, gaps: tuple[Run, ...]) -> Iterator[ObjectRange]:
    if gaps:
        yield replace(item, runs=gaps, split_points=(), ends_object=False)


def _between(topic: TopicName, junctions: Junctions, before: Span | None, after: Span) -> Iterator[Missing]:
    found = junctions.break_between(before, after)
    if found is None:
        return
    if before is None or found.kind is not FindingKind.UNPROVEN_END:
        raise DamagedRecordError(f"{topic}: {found.kind}: {found.message}")
    yield Missing(before.end, after.start, f"unproven: {found.message}")


def _of_span(snapshot: TopicSnapshot, handed_over: HandedOver, span: Span, selection: Selection) -> Iterator[PlanItem]:
    first = span.start if selection.start is None else max(selection.start, span.start)
    last = span.end if selection.end is None else min(selection.end, span.end)
    match span:
        case Loss():
            yield Missing(first, last, f"lost: {span.reason} (accepted by {span.accepted_by})")
        case LedgerPart(ledger=OffloadedLedger(unreadable=Unreadable() as unreadable)):
            yield unreadable.missing(first, last)
        case LedgerPart():
            yield from of_ledger(snapshot.topic, span, first, last)
        case Tombstone(is_handed_over=True):
            yield from handed_over.items(span, first, last, selection)
        case Segment():
            gone = off_the_list(snapshot, span.start.incarnation, span.start.ledger) if span.brokers else ""
            if gone:
                yield Missing(first, last, f"deleted by Pulsar: its own copy was archived, and {gone}", deleted=True)
            else:
                yield from of_segment(snapshot, span, first, last, selection)


def _taken(item: PlanItem, room: int, *, whole: bool) -> tuple[PlanItem | None, PlanItem | None]:
    """The part of an item that fits into `room` bytes, and the rest. Unless `whole`, at least one split point fits."""
    if isinstance(item, Missing):
        return item, None
    count, used = 0, 0
    for point in item.split_points:
        used += point.size
        if used > room and (count or whole):
            break
        count += 1
    if count == len(item.split_points):
        return item, None
    return _split_at(item, count) if count else (None, item)


def _split_at(item: ObjectRange, count: int) -> tuple[ObjectRange, ObjectRange]:
    """What lies before the split point of this number, and what lies after it."""
    behind = item.split_points[count - 1].behind
    before = tuple(run for each in item.runs if (run := each.between(after=behind)))
    after = tuple(run for each in item.runs if (run := each.between(behind)))
    return (
        replace(item, runs=before, split_points=item.split_points[:count], ends_object=False),
        replace(item, runs=after, split_points=item.split_points[count:]),
    )


def _up_to(item: ObjectRange, end: Position) -> ObjectRange:
    kept = tuple(clipped(item.runs, item.start, end))
    after = max(((run.ledger, run.after) for run in kept if run.gap is None), default=(-1, -1))
    points = tuple(point for point in item.split_points if point.behind <= after)
    if after > max((point.behind for point in points), default=(-1, -1)):  # some of what the next point ends
        point = item.split_points[len(points)]
        size = point.size
        if item.object.ledger is not None:  # an estimate, so many bytes an entry; parts are read whole
            begin = points[-1].behind[1] if points else item.runs[0].first
            size = size * (after[1] - begin) // (point.behind[1] - begin) + 1
        points += (point._replace(ledger=after[0], entry=after[1] - 1, size=size),)
    ends_object = item.ends_object and points == item.split_points
    return replace(item, runs=kept, split_points=points, ends_object=ends_object)
