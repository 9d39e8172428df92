"""What is read for a selection of a topic, object by object, and in which tasks: from its records alone, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from offloader.archive.continuity import BreakKind, Junctions, LedgerPart, Span
from offloader.archive.items import Missing
from offloader.archive.read_model import EVERYTHING, ObjectRange, OffloadedLedger, PlanItem, Selection, Unreadable
from offloader.archive.reading.object_range import of_ledger, of_segment
from offloader.archive.reading.overlaps import spans_once
from offloader.archive.runs import Run, clipped
from offloader.archive.view import TopicSnapshot
from offloader.errors import DamagedRecordError
from offloader.model import Loss, Position, Segment, TopicName


def plan(view: TopicSnapshot, selection: Selection = EVERYTHING, planned_to: Position | None = None) -> list[PlanItem]:
    """Everything that is selected, in topic order; each position once. What nothing proves is a Missing with its
    reason.

    Positions clip, times leave out parts. Records up to `planned_to` were planned before: they say what the others
    follow. Raises DamagedRecordError where the records have a hole, an overlap, or contradict themselves.
    """
    items: list[PlanItem] = []
    junctions = Junctions(view)
    before: Span | None = None
    first = view.catalog.follows is None
    for span in spans_once(view):
        if planned_to is not None and span.end <= planned_to:
            before = span
            continue
        if _is_outside(span, selection):
            first = False
            continue
        if before is not None or (first and (selection.start is None or selection.start < span.start)):
            items += _between(view.topic, junctions, before, span)
        items += _of_span(view.topic, span, selection)
        before = span
    return items


def split(items: Iterable[PlanItem], max_bytes: int) -> list[tuple[PlanItem, ...]]:
    """Tasks of at most `max_bytes` each, in order. One is larger only where a piece cannot be cut so finely."""
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
    """What of the objects lies up to a position, which is included."""
    for item in items:
        if not isinstance(item, ObjectRange) or item.first > end:
            continue
        yield item if item.last <= end else _up_to(item, end)


def _is_outside(span: Span, selection: Selection) -> bool:
    before = selection.start is not None and span.end < selection.start
    return before or (selection.end is not None and span.start > selection.end)


def _between(topic: TopicName, junctions: Junctions, before: Span | None, after: Span) -> Iterator[Missing]:
    found = junctions.break_between(before, after)
    if found is None:
        return
    if before is None or found.kind is not BreakKind.UNPROVEN:
        raise DamagedRecordError(f"{topic}: {found.kind}: {found.message}")
    yield Missing(before.end, after.start, f"unproven: {found.message}")


def _of_span(topic: TopicName, span: Span, selection: Selection) -> Iterator[PlanItem]:
    first = span.start if selection.start is None else max(selection.start, span.start)
    last = span.end if selection.end is None else min(selection.end, span.end)
    match span:
        case Loss():
            yield Missing(first, last, f"lost: {span.reason} (accepted by {span.accepted_by})")
        case LedgerPart(ledger=OffloadedLedger(unreadable=Unreadable() as unreadable)):
            yield unreadable.missing(first, last)
        case LedgerPart():
            yield from of_ledger(topic, span, first, last)
        case Segment():
            yield from of_segment(topic, span, first, last, selection)


def _taken(item: PlanItem, room: int, *, whole: bool) -> tuple[PlanItem | None, PlanItem | None]:
    """What fits of an item, and the rest of it. Unless `whole`, at least what comes before its first cut."""
    if isinstance(item, Missing):
        return item, None
    count, used = 0, 0
    for cut in item.cuts:
        used += cut.size
        if used > room and (count or whole):
            break
        count += 1
    if count == len(item.cuts):
        return item, None
    return (_before(item, count), _after(item, count)) if count else (None, item)


def _up_to(piece: ObjectRange, end: Position) -> ObjectRange:
    kept = tuple(clipped(piece.runs, piece.first, end))
    last = max(((run.ledger, run.last) for run in kept if run.gap is None), default=(-1, -1))
    count = sum(cut[:2] <= last for cut in piece.cuts)
    cuts = piece.cuts[:count]
    if last > max((cut[:2] for cut in cuts), default=(-1, -1)):  # some of what comes before the next cut
        cut, size = piece.cuts[count], piece.cuts[count].size
        if piece.object.ledger is not None:  # an estimate, so many bytes an entry; parts are read whole
            begin = cuts[-1].entry if cuts else piece.runs[0].first - 1
            size = size * (last[1] - begin) // (cut.entry - begin) + 1
        cuts += (cut._replace(ledger=last[0], entry=last[1], size=size),)
    return replace(piece, runs=kept, cuts=cuts, ends_object=piece.ends_object and cuts == piece.cuts)


def _before(piece: ObjectRange, count: int) -> ObjectRange:
    """Up to the cut of this number."""
    end = piece.cuts[count - 1][:2]
    kept = (
        Run(run.ledger, run.first, min(run.last, end[1]) if run.ledger == end[0] else run.last, run.gap)
        for run in piece.runs
        if (run.ledger, run.first) <= end
    )
    return replace(piece, runs=tuple(kept), cuts=piece.cuts[:count], ends_object=False)


def _after(piece: ObjectRange, count: int) -> ObjectRange:
    """What comes after the cut of this number."""
    end = piece.cuts[count - 1][:2]
    kept = (
        Run(run.ledger, max(run.first, end[1] + 1) if run.ledger == end[0] else run.first, run.last, run.gap)
        for run in piece.runs
        if (run.ledger, run.last) > end
    )
    return replace(piece, runs=tuple(kept), cuts=piece.cuts[count:])
