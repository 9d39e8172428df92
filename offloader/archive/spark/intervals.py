"""Splits a plan by time where it leaves something out, which may be a message's chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from offloader.archive.items import Missing
from offloader.archive.object_range import ObjectRange, PlanItem
from offloader.archive.runs import Run
from offloader.model import Position


def intervals(items: Iterable[PlanItem], whole: Iterable[PlanItem]) -> Iterator[list[PlanItem]]:
    """The items, split where they leave out what the plan `whole` has."""
    stored = (item for item in whole if isinstance(item, ObjectRange))
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
