"""Where a task looks for the first chunks of its messages: before its items, and where a selection left ranges out."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from offloader.archive.items import Missing
from offloader.archive.messages.lookback import LOOK_BACK
from offloader.archive.object_range import ObjectRange, PlanItem, Run, size_of
from offloader.archive.reading.plan import plan, split, until
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import DamagedRecordError
from offloader.model import MIB, Position

log = logging.getLogger("offloader.archive.spark")

LOOK_BACK_STEP = 4 * MIB


def plan_for_chunks(snapshot: TopicSnapshot, first: Position, last: Position) -> list[PlanItem]:
    """Everything between two positions, and enough before it to look for chunks; nothing is left out."""
    try:
        return plan(snapshot, Selection(_far_enough_back(snapshot, first, LOOK_BACK + LOOK_BACK_STEP), last))
    except DamagedRecordError as error:  # in records before the first position, which can be read without them
        log.warning(
            "%s: chunks before %s are not looked for: %s", snapshot.topic, first, error, extra={"see": "chunks-unknown"}
        )
        return plan(snapshot, Selection(first, last))


class LookBackPlan:
    """Finds the ranges before each of a topic's splits, in the topic's `plan_for_chunks`."""

    def __init__(self, for_chunks: Iterable[PlanItem]) -> None:
        self._groups = split((item for item in for_chunks if isinstance(item, ObjectRange)), LOOK_BACK_STEP)
        self._firsts = [group[0].start for group in self._groups]

    def before(self, first: Position, max_bytes: int = LOOK_BACK) -> tuple[PlanItem, ...]:
        """The last `max_bytes` before a position or a little more, in order."""
        count = bisect_left(self._firsts, first)
        kept: list[tuple[PlanItem, ...]] = []
        left = max_bytes + LOOK_BACK_STEP  # an object has headers and padding beside its entries
        for group in reversed(self._groups[:count]):
            if left <= 0:
                break
            if group[-1].end < first:
                kept.append(group)
                left -= size_of(group)
            else:  # of its last part, which is read whole, perhaps next to nothing is wanted: it does not count
                kept.append(tuple(until(group, first.previous_entry)))
        return tuple(item for group in reversed(kept) for item in group)


def intervals(items: Iterable[PlanItem], for_chunks: Iterable[PlanItem]) -> Iterator[list[PlanItem]]:
    """The items, split where they leave out ranges that `for_chunks` has."""
    stored = (item for item in for_chunks if isinstance(item, ObjectRange))
    runs = [(item.start_of(run), item.end_of(run)) for item in stored for run in item.runs]
    successor = {last: first for (_, last), (first, _) in pairwise(runs)}
    interval: list[PlanItem] = []
    last: Position | None = None
    for item in items:
        for part in [item] if isinstance(item, Missing) else _unbroken(item, successor):
            if isinstance(part, ObjectRange):
                if last is not None and not _follows(successor, last, part.start):
                    yield interval
                    interval = []
                last = part.end
            interval.append(part)
    if interval:
        yield interval


def _follows(successor: Mapping[Position, Position], last: Position, first: Position) -> bool:
    return first == last.next_entry or successor.get(last) == first


def _unbroken(item: ObjectRange, successor: Mapping[Position, Position]) -> Iterator[ObjectRange]:
    """A range, split where a run does not follow on the one before."""
    begin = 0
    for number, (before, after) in enumerate(pairwise(item.runs), 1):
        if not _follows(successor, item.end_of(before), item.start_of(after)):
            yield _part(item, item.runs[begin:number], ends=False)
            begin = number
    yield _part(item, item.runs[begin:], ends=item.ends_object) if begin else item


def _part(item: ObjectRange, runs: tuple[Run, ...], *, ends: bool) -> ObjectRange:
    first, last = (runs[0].ledger, runs[0].first), (runs[-1].ledger, runs[-1].last)
    points = tuple(point for point in item.split_points if first <= point[:2] <= last)
    return replace(item, runs=runs, split_points=points, ends_object=ends)


def _far_enough_back(snapshot: TopicSnapshot, end: Position, max_bytes: int) -> Position | None:
    """The start of the last segment or ledger with `max_bytes` between it and `end`, else the first start."""
    left = max_bytes
    found: Position | None = None
    for start, last, size in sorted((each for each in snapshot.sized_spans if each[0] <= end), reverse=True):
        found = start
        if left <= 0:
            break
        left -= size if last <= end else 0  # of the one that `end` lies in, nobody knows how much is before it
    return found
