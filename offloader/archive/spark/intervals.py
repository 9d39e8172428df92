"""Where a selection by time leaves something out, what is read falls into stretches: a message's chunks may lie between
them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from offloader.archive.read_model import ObjectRange, PlanItem
from offloader.archive.runs import Run
from offloader.model import Position


class Succession:
    """Which runs follow on, by a plan that leaves nothing out."""

    def __init__(self, whole: Iterable[PlanItem]) -> None:
        runs = [_ends(piece, run) for piece in whole if isinstance(piece, ObjectRange) for run in piece.runs]
        self._next = {last: first for (_, last), (first, _) in pairwise(runs)}

    def follows(self, last: Position, first: Position) -> bool:
        return first == last.next_entry or self._next.get(last) == first


def stretches(items: Iterable[PlanItem], whole: Iterable[PlanItem]) -> Iterator[list[PlanItem]]:
    """The items, cut where they leave out what the plan `whole` has."""
    succession = Succession(whole)
    stretch: list[PlanItem] = []
    last: Position | None = None
    for item in items:
        for part in [item] if not isinstance(item, ObjectRange) else _cut(item, succession):
            if isinstance(part, ObjectRange):
                if last is not None and not succession.follows(last, part.first):
                    yield stretch
                    stretch = []
                last = part.last
            stretch.append(part)
    if stretch:
        yield stretch


def _cut(piece: ObjectRange, succession: Succession) -> Iterator[ObjectRange]:
    """A piece, cut where a run does not follow on the one before."""
    begin = 0
    for number, (before, after) in enumerate(pairwise(piece.runs), 1):
        if not succession.follows(_ends(piece, before)[1], _ends(piece, after)[0]):
            yield _part(piece, piece.runs[begin:number], ends=False)
            begin = number
    yield _part(piece, piece.runs[begin:], ends=piece.ends_object) if begin else piece


def _ends(piece: ObjectRange, run: Run) -> tuple[Position, Position]:
    """The run's first and last position."""
    return Position(piece.incarnation, run.ledger, run.first), Position(piece.incarnation, run.ledger, run.last)


def _part(piece: ObjectRange, runs: tuple[Run, ...], *, ends: bool) -> ObjectRange:
    first, last = (runs[0].ledger, runs[0].first), (runs[-1].ledger, runs[-1].last)
    return replace(piece, runs=runs, cuts=tuple(c for c in piece.cuts if first <= c[:2] <= last), ends_object=ends)
