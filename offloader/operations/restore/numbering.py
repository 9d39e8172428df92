"""Which number an archived entry has among those that were restored, and where the target has that number. Pure.

A target holds what was restored, in order, and nothing else: its last entry's number is the number of its entries.
Entries are numbered from the end, so that only those behind the lowest position of interest need to be known. Whether
that was right the target says, whose entries name their positions: one at either end proves what is between.

By these numbers a copied subscription's state is mapped to positions of the restored topic."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.cursors.core.piece_codec import encode_piece
from offloader.errors import IntegrityError
from offloader.model import EntryRange, Place, Position

EARLIEST: Place = (-1, -1)


class RestoredRun(NamedTuple):
    """Consecutive entries of one ledger, all of them restored."""

    start: Position
    length: int


class Numbering:
    """`runs`: of restored entries, in topic order, up to the last one; `last`: its number. Holds runs, not entries."""

    def __init__(self, runs: Iterable[RestoredRun], last: int) -> None:
        self._runs = list(_merged(runs))
        counts = list(accumulate((run.length for run in self._runs), initial=0))
        self._before = [last - counts[-1] + count for count in counts]  # restored ones before each run

    @property
    def last(self) -> int:
        """How many were restored."""
        return self._before[-1]

    def is_proven(self, lowest: Position, end: Position, position_of: Callable[[int], Position]) -> bool:
        """Whether these are the entries that were restored behind `lowest`, up to `end`: all of them, where they can
        only be too many, or only too few. `position_of`: asks the target where the entry of a number was."""
        before = self._before[0]
        if before < 0 or (before and position_of(before) > lowest):
            return False
        if not self._runs:
            return end <= lowest
        start, length = self._runs[-1]
        return start.at(start.entry + length - 1) == end and position_of(before + 1) == self._runs[0].start

    def up_to(self, position: Position) -> int:
        """How many restored entries are at this position or before it; no less than before the first run."""
        at = bisect_right(self._runs, position, key=lambda run: run.start)
        if not at:
            return self._before[0]
        start, count = self._runs[at - 1]
        reached = position.entry - start.entry + 1 if position[:2] == start[:2] else count
        return self._before[at - 1] + min(reached, count)

    def of_ledger(self, incarnation: int, ledger: int) -> Iterator[tuple[EntryRange, int]]:
        """Its restored entries in order, and the number of the first one of each range."""
        begin = bisect_left(self._runs, (incarnation, ledger), key=lambda run: run.start[:2])
        for at in range(begin, len(self._runs)):
            start, count = self._runs[at]
            if start[:2] != (incarnation, ledger):
                return
            yield EntryRange(ledger, start.entry, start.entry + count), self._before[at] + 1


class TargetPlaces:
    """Where a target has the entry of a number. `lengths`: its ledgers in order with their entries; None: not counted
    yet, as of an open one."""

    def __init__(self, lengths: Sequence[tuple[int, int | None]], last: int) -> None:
        self._ledgers = [ledger for ledger, _ in lengths]
        known = [count or 0 for _, count in lengths]
        rest = last - sum(known)
        if rest < 0 or (rest and (not lengths or lengths[-1][1] is not None)):
            raise IntegrityError(f"the target's ledgers have {sum(known)} entries, and {last} were restored")
        if lengths:
            known[-1] += rest
        self._ends = list(accumulate(known))

    def place(self, number: int) -> Place:
        """Of an entry; EARLIEST: of none, number 0."""
        if not number:
            return EARLIEST
        at = bisect_left(self._ends, number)
        return self._ledgers[at], number - 1 - (self._ends[at - 1] if at else 0)

    def ranges(self, number: int, count: int) -> Iterator[EntryRange]:
        """Of so many entries from one on: a range in each ledger that has some of them."""
        while count:
            at = bisect_left(self._ends, number)
            ledger, entry = self.place(number)
            here = min(count, self._ends[at] - number + 1)
            yield EntryRange(ledger, entry, entry + here)
            number, count = number + here, count - here


def _merged(runs: Iterable[RestoredRun]) -> Iterator[RestoredRun]:
    last: RestoredRun | None = None
    for run in runs:
        if not run.length:
            continue
        if last is not None and last.start.at(last.start.entry + last.length) == run.start:
            last = RestoredRun(last.start, last.length + run.length)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


@dataclass(frozen=True, slots=True)
class MappedCursor:
    """`cursor`: in the target's positions. `pending`: entries that are not acknowledged as a whole. `left_out`: entries
    and batches behind the mark-delete position that were acknowledged, as a whole or in part, and are not in the
    target."""

    cursor: CopiedCursor
    pending: int
    left_out: int


def mapped(cursor: CopiedCursor, incarnation: int, numbering: Numbering, places: TargetPlaces) -> MappedCursor:
    """`incarnation`: of the copy's positions. The mark-delete position becomes that of the last restored entry at it or
    before it. Raises DamagedRecordError."""
    acks: dict[int, LedgerAcks] = {}
    done = left_out = 0
    for ledger, one in sorted(cursor.acks().items()):
        restored = list(numbering.of_ledger(incarnation, ledger))
        kept = 0
        for number, count in _common(one.runs(), restored):
            kept += count
            done += count
            for there in places.ranges(number, count):
                acks.setdefault(there.ledger, LedgerAcks()).acknowledge(there.first, there.last)
        for entry, batch in sorted(one.batches.items()):
            for number, _ in _common([(entry, entry)], restored):
                kept += 1
                to_ledger, to_entry = places.place(number)
                acks.setdefault(to_ledger, LedgerAcks()).acknowledge_part(to_entry, *batch)
        left_out += sum(last - first + 1 for first, last in one.runs()) + len(one.batches) - kept
    before = numbering.up_to(Position(incarnation, *cursor.mark_delete))
    pieces = {ledger: encode_piece(one) for ledger, one in sorted(acks.items())}
    new = replace(cursor, mark_delete=places.place(before), pieces=pieces)
    return MappedCursor(new, numbering.last - before - done, left_out)


def _common(runs: Iterable[tuple[int, int]], restored: Iterable[tuple[EntryRange, int]]) -> Iterator[tuple[int, int]]:
    """What both have: the number of the first entry, and how many. Both are in order and do not overlap."""
    theirs = iter(restored)
    there = next(theirs, None)
    for first, last in runs:
        while there is not None and there[0].after <= first:
            there = next(theirs, None)
        while there is not None and there[0].first <= last:
            one, number = there
            begin, after = max(first, one.first), min(last + 1, one.after)
            yield number + begin - one.first, after - begin
            if one.after > last + 1:
                break
            there = next(theirs, None)
