"""What lies between two neighbours, and where a segment ended whose record is lost. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.found import Evidence
from offloader.metadata.state import LedgerClosed
from offloader.model import LedgerRange, Loss, OpenSegment, Position, Segment

Before = Draft | Segment | Loss
After = Before | OpenSegment


@dataclass(frozen=True, slots=True)
class Hole:
    """Positions that existed, and are neither in `before` nor in `after`. `turn`: where those of two ledgers, the last entry id of the
    first one."""

    first: Position
    last: Position
    before: Before
    after: After
    turn: int | None = None


def settled(evidence: Evidence, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with their ends, where what follows each says whether its index speaks of a gap at its end or of a closed ledger."""
    records = [r for r in evidence.records.values() if isinstance(r, Segment | Loss)]
    spans: list[After] = [*records, *drafts, *(segment for _, segment in evidence.open)]
    spans.sort(key=lambda span: span.start)
    followed = zip(spans, [*spans[1:], None], strict=False)
    return [_with_end(span, after) for span, after in followed if isinstance(span, Draft)]


def closings(evidence: Evidence, drafts: Sequence[Draft]) -> Mapping[tuple[int, int], int]:
    """What ledgers were closed with, by incarnation and ledger, as far as anything says it."""
    closed = {(r.incarnation, r.ledger): r.last for r in evidence.records.values() if isinstance(r, LedgerClosed)}
    for segment in evidence.segments:
        ends = {(segment.start.incarnation, held.ledger): held.closed_with for held in segment.ledgers}
        closed.update({ledger: end for ledger, end in ends.items() if end is not None})
    for draft in drafts:
        said = draft.object.ends.get(draft.end.ledger, -1)
        if draft.end_known and said > draft.end.entry:
            closed[draft.end.incarnation, draft.end.ledger] = said
    return closed


def holes(before: Before, after: After, closed: Mapping[tuple[int, int], int]) -> list[Hole]:
    """What is proven to have been between the two. `closed`: what ledgers were closed with, by incarnation and ledger."""
    end, start = before.end, after.start
    if end.incarnation != start.incarnation:
        return []
    if end.ledger == start.ledger:
        return _hole(end._replace(entry=end.entry + 1), start._replace(entry=start.entry - 1), before, after)
    last = max(_last_known(before), closed.get((end.incarnation, end.ledger), -1))
    tail = _hole(end._replace(entry=end.entry + 1), end._replace(entry=last), before, after)
    head = _hole(start._replace(entry=0), start._replace(entry=start.entry - 1), before, after)
    return [replace(tail[0], last=head[0].last, turn=last)] if tail and head else tail + head


def as_gap(hole: Hole, drafts: dict[str, Draft]) -> bool:
    """Make the hole a gap of a neighbour that has no record yet; False where both have one, or the index denies it."""
    before, after, first = hole.before, hole.after, hole.first
    if isinstance(after, Draft) and after.object.uuid in drafts:
        draft = drafts[after.object.uuid]
        leading = None
        if first.ledger < after.start.ledger:
            last = hole.last.entry if hole.turn is None else hole.turn
            leading = LedgerRange(first.ledger, first.entry, last, 0, 0, last)
        drafts[draft.object.uuid] = replace(draft, start=first, leading=leading)
    elif isinstance(before, Draft) and before.object.uuid in drafts and _may_end_behind(drafts[before.object.uuid], hole):
        draft = drafts[before.object.uuid]
        drafts[draft.object.uuid] = replace(draft, end=hole.last, end_known=True)
    else:
        return False
    return True


def _may_end_behind(draft: Draft, hole: Hole) -> bool:
    """Whether the draft's index can be of a segment with this gap at its end: it speaks of the last entry, or of a later one."""
    last = hole.turn if hole.turn is not None else hole.last.entry
    return hole.first.ledger > draft.end.ledger or draft.object.ends.get(draft.end.ledger, -1) >= last


def _with_end(draft: Draft, after: After | None) -> Draft:
    end, said = draft.end, draft.object.ends.get(draft.end.ledger, -1)
    if draft.end_known or after is None or (after.start.incarnation, after.start.ledger) != (end.incarnation, end.ledger):
        return draft
    # Nothing lies behind the entry that a ledger was closed with; nothing of a segment behind the next one's start.
    return replace(draft, end=end._replace(entry=max(said, end.entry)) if after.start.entry > said else end, end_known=True)


def _hole(first: Position, last: Position, before: Before, after: After) -> list[Hole]:
    return [Hole(first, last, before, after)] if first <= last else []


def _last_known(before: Before) -> int:
    """The last entry id of the neighbour's last ledger, as far as its index says it."""
    return before.object.ends.get(before.end.ledger, -1) if isinstance(before, Draft) else -1
