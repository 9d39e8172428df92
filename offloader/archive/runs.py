"""What a segment's record says its object holds, position by position. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from offloader.errors import DamagedRecordError
from offloader.model import EntryRange, Gap, GapKind, LedgerRange, Position, Segment


@dataclass(frozen=True, slots=True)
class Run(EntryRange):
    """Consecutive entries of one ledger: all in the object, or all in one gap."""

    gap: GapKind | None = None


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
    for run in found:
        inside = run.between(first.place, last.next_entry.place)
        if inside is not None:
            yield inside


def _runs_of(uuid: str, held: LedgerRange, gaps: list[Gap]) -> Iterator[Run]:
    at = held.first
    for gap in sorted(gaps, key=lambda g: g.first):
        if gap.first < at or not gap.first <= gap.last <= held.last:
            raise DamagedRecordError(
                f"segment {uuid}: the gap {gap.ledger}:{gap.first}..{gap.last} overlaps another or lies outside "
                f"{held.first}..{held.last}"
            )
        if gap.first > at:
            yield Run(held.ledger, at, gap.first)
        at = gap.after
        yield Run(held.ledger, gap.first, at, gap.kind)
    if at < held.after:
        yield Run(held.ledger, at, held.after)
