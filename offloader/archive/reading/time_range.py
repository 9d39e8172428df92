"""A selection by publish time, as messages need it: what lies between its ends is read too. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from offloader.archive.read_model import ObjectRange, PlanItem, Selection
from offloader.archive.runs import Run
from offloader.model import Position


def unbroken(plan: Callable[[Selection], Iterable[PlanItem]], selection: Selection) -> Iterator[PlanItem]:
    """A plan that leaves out only what lies before the first and after the last entry that may be wanted.

    A message's chunks may lie in parts that no wanted message is in. What is lost is in it, also before and after.
    """
    if not selection.is_timed:
        yield from plan(selection)
        return
    before: list[PlanItem] = []
    after: list[PlanItem] = []
    first = last = None
    for item in plan(selection):
        if isinstance(item, ObjectRange) and item.cuts:
            first, last = first or item, item
            after = []
        else:
            (before if first is None else after).append(item)
    yield from before
    if first is not None and last is not None:
        yield from _from_to(plan, first, last)
    yield from after


def _from_to(
    plan: Callable[[Selection], Iterable[PlanItem]], first: ObjectRange, last: ObjectRange
) -> Iterator[PlanItem]:
    """Everything from the first entry of one piece to the last of another, and the gaps before and after these."""
    before = tuple(_gaps(first.runs))
    after = tuple(_gaps(reversed(last.runs)))[::-1]
    begin, end = first.runs[len(before)], last.runs[len(last.runs) - len(after) - 1]
    between = Selection(
        Position(first.incarnation, begin.ledger, begin.first), Position(last.incarnation, end.ledger, end.last)
    )
    yield from _only_gaps(first, before)
    yield from plan(between)
    yield from _only_gaps(last, after)


def _gaps(runs: Iterable[Run]) -> Iterator[Run]:
    return takewhile(lambda run: run.gap is not None, runs)


def _only_gaps(piece: ObjectRange, gaps: tuple[Run, ...]) -> Iterator[ObjectRange]:
    if gaps:
        yield replace(piece, runs=gaps, cuts=(), ends_object=False)
