"""A copied subscription's state in a restored topic's own positions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from offloader.cursors.copies import CopiedCursor
from offloader.cursors.core.ledger_acks import LedgerAcks
from offloader.cursors.core.piece_codec import encode_piece
from offloader.model import EntryRange, Position
from offloader.operations.restore.numbering import Numbering, TargetPlaces


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
