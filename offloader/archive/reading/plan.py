"""Turns a selection of a topic into object ranges, and these into tasks: from records alone, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile

from offloader.archive.continuity import Junctions, LedgerPart, Span
from offloader.archive.findings import FindingKind
from offloader.archive.items import Missing
from offloader.archive.object_range import DataObject, ObjectRange, PlanItem, Run, SplitPoint, clipped, runs
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.selection import EVERYTHING, Selection
from offloader.archive.snapshot import OffloadedLedger, TopicSnapshot, Unreadable
from offloader.errors import DamagedRecordError
from offloader.format.blocks import ENTRY_HEADER_SIZE
from offloader.metadata.deletions import DeletedRange, range_of
from offloader.metadata.layout import INDEX, topic_folder
from offloader.model import MIB, EntryRange, Loss, Part, Position, Segment, TopicName

# Bytes of an offloaded ledger from one split point to the next.
LEDGER_STEP = 8 * MIB


def of_ledger(topic: TopicName, part: LedgerPart, first: Position, last: Position) -> Iterator[ObjectRange]:
    """The entries between two positions, with a split point about every `LEDGER_STEP` bytes (lengths are estimates)."""
    ledger = part.ledger
    for run in clipped([Run.closed(ledger.start.ledger, part.start.entry, part.end.entry)], first, last):
        per_entry = ENTRY_HEADER_SIZE + ledger.size / ledger.end.next_entry.entry
        step = max(1, int(LEDGER_STEP / per_entry))
        steps = (EntryRange(run.ledger, begin, min(begin + step, run.after)) for begin in run.ids[::step])
        points = tuple(SplitPoint(run.ledger, each.last, int(each.span * per_entry) + 1) for each in steps)
        ends = run.last == ledger.end.entry
        yield ObjectRange(topic, ledger.start.incarnation, ledger.object, (run,), points, ends_object=ends)


def of_segment(
    snapshot: TopicSnapshot, segment: Segment, first: Position, last: Position, selection: Selection
) -> Iterator[ObjectRange]:
    """Entries and gaps between two positions, without parts of other times. Raises DamagedRecordError."""
    alone = not selection.is_timed and selection.start is not None and selection.start == selection.end
    kept: list[Run] = []
    parts: list[_WantedPart] = []
    for part, run in _by_parts(segment, clipped(runs(segment), first, last)):
        if part is None:
            kept.append(run)
        elif part.stats.publish_bounds is None or selection.meets(*part.stats.publish_bounds):
            _append(kept, run)
            if not parts or parts[-1].part is not part:
                parts.append(_WantedPart(part))
            parts[-1].add(run)
    if kept:
        stored = _object_of(snapshot, segment)
        ends = bool(parts) and parts[-1].last == segment.parts[-1].last
        yield ObjectRange(
            snapshot.topic,
            segment.start.incarnation,
            stored,
            tuple(kept),
            tuple(each.split_point(alone=alone) for each in parts),
            ends_object=ends,
        )


def _object_of(snapshot: TopicSnapshot, segment: Segment) -> DataObject:
    data_key = (topic_folder(snapshot.topic) if snapshot.folder is None else snapshot.folder) + segment.uuid
    return DataObject(data_key, data_key + INDEX, segment.size)


def _append(kept: list[Run], run: Run) -> None:
    """Add a run, which may go on where the last one ended: parts need not end with a run."""
    if kept and kept[-1].gap is None and (kept[-1].ledger, kept[-1].after) == (run.ledger, run.first):
        run = replace(run, first=kept.pop().first)
    kept.append(run)


def _by_parts(segment: Segment, found: Iterable[Run]) -> Iterator[tuple[Part | None, Run]]:
    """The runs, split where a part ends, with their parts (None for gaps). Raises DamagedRecordError."""
    parts = iter(segment.parts)
    part = next(parts, None)
    for run in found:
        if run.gap is not None:
            yield None, run
            continue
        at = run.first
        while at < run.after:
            while part is not None and part.last < (run.ledger, at):
                part = next(parts, None)
            if part is None or part.first > (run.ledger, at):
                raise DamagedRecordError(f"segment {segment.uuid}: {run.ledger}:{at} is in none of its parts")
            inside = Run.closed(run.ledger, at, min(part.last, (run.ledger, run.last))[1])
            yield part, inside
            at = inside.after


@dataclass(slots=True)
class _WantedPart:
    """How much of a part is wanted."""

    part: Part
    entries: int = 0
    last: tuple[int, int] = (-1, -1)

    def add(self, run: Run) -> None:
        self.entries += run.span
        self.last = (run.ledger, run.last)

    def split_point(self, *, alone: bool) -> SplitPoint:
        """A part is read whole, so that its checksum proves it. An entry that is wanted alone has its own checksum."""
        part = self.part
        if alone and part.entries > 1 and not part.stats.unreadable:
            return SplitPoint(*self.last, size=part.size // part.entries)
        return SplitPoint(*self.last, part.size, part.offset, part.crc32c)


class Deletions:
    """Tells of each deleted range once: where the first of its records is met, of all of it that is selected."""

    def __init__(self, ranges: tuple[DeletedRange, ...]) -> None:
        self._ranges = ranges
        self._told: set[Position] = set()

    def has(self, span: Span) -> bool:
        """Whether a record is of what was deleted. What stock brokers have offloaded is never ours to delete."""
        return bool(self._ranges) and not isinstance(span, LedgerPart) and range_of(self._ranges, span.end) is not None

    def tell(self, span: Span, selection: Selection, planned_to: Position | None) -> Iterator[Missing]:
        """What is missing at a record that it has, behind what was planned before."""
        found = range_of(self._ranges, span.end)
        if found is None or found.start in self._told or not matters(found, selection):
            return
        self._told.add(found.start)
        first = found.start if selection.start is None else max(found.start, selection.start)
        last = found.end if selection.end is None else min(found.end, selection.end)
        if planned_to is not None and found.holds(planned_to):
            first = max(first, planned_to.next_entry)
        if first <= last:
            yield Missing(first, last, found.told, deleted=True)


def matters(deleted: DeletedRange, selection: Selection) -> bool:
    """Whether anything of a deleted range may be selected."""
    if selection.start is not None and deleted.end < selection.start:
        return False
    if selection.end is not None and deleted.start > selection.end:
        return False
    since = selection.published_from
    return since is None or deleted.late is None or deleted.late >= since


def plan(
    snapshot: TopicSnapshot, selection: Selection = EVERYTHING, planned_to: Position | None = None
) -> list[PlanItem]:
    """Everything that is selected, in topic order; each position once. A Missing says where nothing proves that two
    records follow on. Positions cut ranges short, times leave out whole parts. Records up to `planned_to` give no
    items, but show what the first planned one follows. What is recorded as deleted is told once for each
    range, as Missing. Raises DamagedRecordError where the records have a hole, an overlap, or contradict themselves."""
    items: list[PlanItem] = []
    junctions = Junctions(snapshot)
    before: Span | None = None
    first = snapshot.catalog.follows is None
    deleted = Deletions(snapshot.catalog.head.removed.told)
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
        items += _of_span(snapshot, span, selection)
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


def _of_span(snapshot: TopicSnapshot, span: Span, selection: Selection) -> Iterator[PlanItem]:
    first = span.start if selection.start is None else max(selection.start, span.start)
    last = span.end if selection.end is None else min(selection.end, span.end)
    match span:
        case Loss():
            yield Missing(first, last, f"lost: {span.reason} (accepted by {span.accepted_by})")
        case LedgerPart(ledger=OffloadedLedger(unreadable=Unreadable() as unreadable)):
            yield unreadable.missing(first, last)
        case LedgerPart():
            yield from of_ledger(snapshot.topic, span, first, last)
        case Segment():
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
