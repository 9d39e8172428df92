"""Where a selection by time leaves something out, what is read falls into stretches: a message's chunks may lie between
them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from offloader.archive.read_model import ObjectRange, PlanItem
from offloader.archive.runs import Run

Place = tuple[int, int, int]


class Succession:
    """Which runs follow on, by a plan that leaves nothing out."""

    def __init__(self, whole: Iterable[PlanItem]) -> None:
        runs = [(piece.incarnation, run) for piece in whole if isinstance(piece, ObjectRange) for run in piece.runs]
        self._next: dict[Place, Place] = {
            (before, ended.ledger, ended.last): (after, begun.ledger, begun.first)
            for (before, ended), (after, begun) in pairwise(runs)
        }

    def follows(self, last: Place, first: Place) -> bool:
        return first == (*last[:2], last[2] + 1) or self._next.get(last) == first


def stretches(items: Iterable[PlanItem], whole: Iterable[PlanItem]) -> Iterator[list[PlanItem]]:
    """The items, cut where they leave out what the plan `whole` has."""
    succession = Succession(whole)
    stretch: list[PlanItem] = []
    last: Place | None = None
    for item in items:
        for part in [item] if not isinstance(item, ObjectRange) else _cut(item, succession):
            if isinstance(part, ObjectRange):
                first = (part.incarnation, part.runs[0].ledger, part.runs[0].first)
                if last is not None and not succession.follows(last, first):
                    yield stretch
                    stretch = []
                last = (part.incarnation, part.runs[-1].ledger, part.runs[-1].last)
            stretch.append(part)
    if stretch:
        yield stretch


def _cut(piece: ObjectRange, succession: Succession) -> Iterator[ObjectRange]:
    """A piece, cut where a run does not follow on the one before."""
    begin = 0
    for number, (before, after) in enumerate(pairwise(piece.runs), 1):
        if not succession.follows(
            (piece.incarnation, before.ledger, before.last), (piece.incarnation, after.ledger, after.first)
        ):
            yield _part(piece, piece.runs[begin:number], ends=False)
            begin = number
    yield _part(piece, piece.runs[begin:], ends=piece.ends_object) if begin else piece


def _part(piece: ObjectRange, runs: tuple[Run, ...], *, ends: bool) -> ObjectRange:
    first, last = (runs[0].ledger, runs[0].first), (runs[-1].ledger, runs[-1].last)
    return replace(piece, runs=runs, cuts=tuple(c for c in piece.cuts if first <= c[:2] <= last), ends_object=ends)
