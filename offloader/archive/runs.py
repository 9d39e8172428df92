"""What a segment's record says its object holds, position by position. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from offloader.errors import DamagedRecordError
from offloader.model import Gap, GapKind, LedgerRange, Position, Segment


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive entries of one ledger: all in the object, or all in one gap."""

    ledger: int
    first: int
    last: int
    gap: GapKind | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def runs(segment: Segment) -> list[Run]:
    """The segment from start to end. Raises DamagedRecordError where gaps overlap or lie outside its ledgers."""
    by_ledger: dict[int, list[Gap]] = {}
    for gap in segment.gaps:
        by_ledger.setdefault(gap.ledger, []).append(gap)
    found = [run for held in segment.ledgers for run in _runs_of(segment.uuid, held, by_ledger.pop(held.ledger, []))]
    if by_ledger:
        raise DamagedRecordError(f"segment {segment.uuid}: gaps in ledger {min(by_ledger)}, of which it holds nothing")
    return found


def clipped(found: Iterable[Run], first: Position, last: Position) -> Iterator[Run]:
    """The runs' parts between two positions, both included."""
    lowest, highest = (first.ledger, first.entry), (last.ledger, last.entry)
    for run in found:
        begin = max((run.ledger, run.first), lowest)
        end = min((run.ledger, run.last), highest)
        if begin <= end and begin[0] == end[0] == run.ledger:
            yield replace(run, first=begin[1], last=end[1])


def _runs_of(uuid: str, held: LedgerRange, gaps: list[Gap]) -> Iterator[Run]:
    at = held.first
    for gap in sorted(gaps, key=lambda g: g.first):
        if gap.first < at or not gap.first <= gap.last <= held.last:
            raise DamagedRecordError(
                f"segment {uuid}: the gap {gap.ledger}:{gap.first}..{gap.last} overlaps another or lies outside {held.first}..{held.last}"
            )
        if gap.first > at:
            yield Run(held.ledger, at, gap.first - 1)
        yield Run(held.ledger, gap.first, gap.last, gap.kind)
        at = gap.last + 1
    if at <= held.last:
        yield Run(held.ledger, at, held.last)
