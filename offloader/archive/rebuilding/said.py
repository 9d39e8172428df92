"""What the records that are left say of objects without one, looked up many times. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from offloader.archive.rebuilding.found import Evidence
from offloader.metadata.state import Claim, LedgerClosed
from offloader.model import Loss, OpenSegment, Position, Segment

_LAST = 2**63  # no incarnation is as high


class Said:
    """Of one topic's evidence. `followers`: the ends of segments, as those that came after them say."""

    def __init__(self, evidence: Evidence) -> None:
        segments: list[Segment | OpenSegment] = [*evidence.segments, *(segment for _, segment in evidence.open)]
        self.followers = {s.predecessor_uuid: s.predecessor_end for s in segments if s.predecessor_end is not None}
        self._spans = sorted((r for r in evidence.records.values() if isinstance(r, Segment | Loss)), key=lambda r: r.start)
        self._ends = [span.end for span in self._spans]
        self._marks = sorted((p.ledger, p.incarnation) for p in _positions(evidence))
        begins = [(r.begin.ledger, r.incarnation) for r in evidence.records.values() if isinstance(r, Claim)]
        self._later_begins = sorted(begin for begin in begins if begin[1] > 0)
        self._known = sorted([*self._marks, *begins])

    def overlapping(self, start: Position, end: Position) -> Segment | Loss | None:
        """The first record of positions among these."""
        number = bisect_left(self._ends, start)
        return self._spans[number] if number < len(self._spans) and self._spans[number].start <= end else None

    def incarnation(self, ledger: int, default: int) -> tuple[int, bool]:
        """That of a ledger, as the records around it say (ledger ids grow with the incarnations), and whether they leave no doubt."""
        number = bisect_right(self._known, (ledger, _LAST))
        before = self._known[number - 1] if number else None
        after, begin = _next(self._marks, ledger), _next(self._later_begins, ledger)
        if begin is not None and (after is None or begin <= after):
            after = (begin[0], begin[1] - 1)  # a later one began there
        if before is None:
            return (default, False) if after is None else (after[1], after[1] == 0)
        return before[1], before[0] == ledger or (after is not None and after[1] == before[1])


def _next(marks: list[tuple[int, int]], ledger: int) -> tuple[int, int] | None:
    """The first one behind a ledger."""
    number = bisect_right(marks, (ledger, _LAST))
    return marks[number] if number < len(marks) else None


def _positions(evidence: Evidence) -> Iterable[Position]:
    for record in evidence.records.values():
        if isinstance(record, Segment | Loss):
            yield from (record.start, record.end)
        elif isinstance(record, LedgerClosed):
            yield Position(record.incarnation, record.ledger, record.last)
    segments: list[Segment | OpenSegment] = [*evidence.segments, *(segment for _, segment in evidence.open)]
    for each in segments:
        yield each.start
        if each.predecessor_end is not None:
            yield each.predecessor_end
