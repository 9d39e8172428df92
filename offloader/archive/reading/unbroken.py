"""A selection by publish time, as messages need it: what lies between its ends is read too. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import takewhile

from offloader.archive.runs import Run
from offloader.archive.stored import Piece, PlanItem, Selection
from offloader.model import Position


def unbroken(plan: Callable[[Selection], list[PlanItem]], selection: Selection) -> list[PlanItem]:
    """A plan that leaves out only what lies before the first and after the last entry that may be wanted.

    A message's chunks may lie in parts that no wanted message is in. What is lost is in it, also before and after.
    """
    planned = plan(selection)
    if not selection.is_timed:
        return planned
    read = [number for number, item in enumerate(planned) if isinstance(item, Piece) and item.cuts]
    if not read:
        return planned
    first, last = planned[read[0]], planned[read[-1]]
    assert isinstance(first, Piece)
    assert isinstance(last, Piece)
    before = tuple(_gaps(first.runs))
    after = tuple(_gaps(reversed(last.runs)))[::-1]
    begin, end = first.runs[len(before)], last.runs[len(last.runs) - len(after) - 1]
    between = Selection(Position(first.incarnation, begin.ledger, begin.first), Position(last.incarnation, end.ledger, end.last))
    return [
        *planned[: read[0]],
        *_only_gaps(first, before),
        *plan(between),
        *_only_gaps(last, after),
        *planned[read[-1] + 1 :],
    ]


def _gaps(runs: Iterable[Run]) -> Iterator[Run]:
    return takewhile(lambda run: run.gap is not None, runs)


def _only_gaps(piece: Piece, gaps: tuple[Run, ...]) -> Iterator[Piece]:
    if gaps:
        yield replace(piece, runs=gaps, cuts=(), ends_object=False)
