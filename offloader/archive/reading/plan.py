"""What is read for a selection of a topic, object by object, and in which tasks: from its records alone, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from offloader.archive.continuity import Junctions, LedgerPart, Span
from offloader.archive.findings import FindingKind
from offloader.archive.items import Missing
from offloader.archive.read_model import EVERYTHING, ObjectRange, OffloadedLedger, PlanItem, Selection, Unreadable
from offloader.archive.reading.object_range import of_ledger, of_segment
from offloader.archive.reading.overlaps import spans_once
from offloader.archive.runs import clipped
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
    if before is None or found.kind is not FindingKind.UNPROVEN_END:
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
    after = max(((run.ledger, run.after) for run in kept if run.gap is None), default=(-1, -1))
    cuts = tuple(cut for cut in piece.cuts if cut.behind <= after)
    if after > max((cut.behind for cut in cuts), default=(-1, -1)):  # some of what comes before the next cut
        cut = piece.cuts[len(cuts)]
        size = cut.size
        if piece.object.ledger is not None:  # an estimate, so many bytes an entry; parts are read whole
            begin = cuts[-1].behind[1] if cuts else piece.runs[0].first
            size = size * (after[1] - begin) // (cut.behind[1] - begin) + 1
        cuts += (cut._replace(ledger=after[0], entry=after[1] - 1, size=size),)
    return replace(piece, runs=kept, cuts=cuts, ends_object=piece.ends_object and cuts == piece.cuts)


def _before(piece: ObjectRange, count: int) -> ObjectRange:
    """Up to the cut of this number."""
    behind = piece.cuts[count - 1].behind
    kept = (run.between(after=behind) for run in piece.runs)
    return replace(piece, runs=tuple(run for run in kept if run), cuts=piece.cuts[:count], ends_object=False)


def _after(piece: ObjectRange, count: int) -> ObjectRange:
    """What comes after the cut of this number."""
    behind = piece.cuts[count - 1].behind
    kept = (run.between(behind) for run in piece.runs)
    return replace(piece, runs=tuple(run for run in kept if run), cuts=piece.cuts[count:])
