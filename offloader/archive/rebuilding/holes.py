"""What lies between two neighbours, and where a segment ended whose record is lost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum

from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.found import Evidence
from offloader.metadata.state import LedgerClosed
from offloader.model import LedgerRange, Loss, OpenSegment, Position, Segment

Before = Draft | Segment | Loss
After = Before | OpenSegment


class Certainty(StrEnum):
    """How certain it is that positions are missing."""

    SEGMENT = "segment"  # a later record names the segment that they were in
    POSITIONS = "positions"  # they existed: a gap, a loss or a segment accounted for them
    DOUBT = "doubt"  # a record is missing, and nothing else says whether it was of these positions
    LINKED = "linked"  # the same, but no segment is missing there: the next one's record says so


@dataclass(frozen=True, slots=True)
class Hole:
    """Positions that are neither in `before` nor in `after`, and no record says why. `first`..`last` is what could be a gap; `turn`: where it
    has positions of two ledgers, the last entry id of the first one. `lost` is all that may have been between the two. `gap`: a
    neighbour may have had it as a gap. `also`: holes before it that share its record. `uncounted`: nobody knows how many records there were."""

    first: Position
    last: Position
    before: Before | None
    after: After | None
    turn: int | None = None
    certainty: Certainty = Certainty.POSITIONS
    gap: bool = True
    also: tuple[Hole, ...] = ()
    lost: tuple[Position, Position] | None = None
    uncounted: bool = False

    @property
    def doubtful(self) -> bool:
        """Whether perhaps nothing is missing."""
        return self.certainty in (Certainty.DOUBT, Certainty.LINKED)

    @property
    def start(self) -> Position:
        """The first position of a loss that stands for it."""
        return self.first if self.lost is None else self.lost[0]

    @property
    def end(self) -> Position:
        """The last one."""
        return self.last if self.lost is None else self.lost[1]


@dataclass(frozen=True, slots=True)
class Known:
    """What records say of the ends of ledgers: `closed`, by incarnation and ledger; `vouched`, positions behind which nothing is missing,
    because somebody says so."""

    closed: Mapping[tuple[int, int], int]
    vouched: AbstractSet[Position] = frozenset()


def settled(evidence: Evidence, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts with their ends, where what follows each says whether its index speaks of a gap at its end or of a closed ledger."""
    records = [r for r in evidence.records.values() if isinstance(r, Segment | Loss)]
    spans: list[After] = [*records, *drafts, *(segment for _, segment in evidence.open)]
    spans.sort(key=lambda span: span.start)
    followed = zip(spans, [*spans[1:], None], strict=False)
    return [_with_end(span, after) for span, after in followed if isinstance(span, Draft)]


def known_ends(evidence: Evidence, drafts: Sequence[Draft], ended: Iterable[LedgerClosed]) -> Known:
    """What ledgers were closed with, as far as anything says it. `ended`: what is vouched for now."""
    every = [*(r for r in evidence.records.values() if isinstance(r, LedgerClosed)), *ended]
    vouched = {Position(r.incarnation, r.ledger, r.last) for r in every if r.vouched_by}
    return Known(_closings(evidence, drafts, every), vouched)


def _closings(evidence: Evidence, drafts: Sequence[Draft], every: Iterable[LedgerClosed]) -> Mapping[tuple[int, int], int]:
    closed = {(r.incarnation, r.ledger): r.last for r in every}
    for segment in evidence.segments:
        ends = {(segment.start.incarnation, held.ledger): held.closed_with for held in segment.ledgers}
        closed.update({ledger: end for ledger, end in ends.items() if end is not None})
    for draft in drafts:
        said = draft.object.ends.get(draft.end.ledger, -1)
        if draft.end_known and said > draft.end.entry:
            closed[draft.end.incarnation, draft.end.ledger] = said
    return closed


def between(before: Before, after: After, known: Known, reached: Position | None) -> list[Hole]:
    """What may be missing between two neighbours of one incarnation. `reached`: up to where the segment went that stood before `after`."""
    end, start = before.end, after.start
    lost = (end._replace(entry=end.entry + 1), start._replace(entry=start.entry - 1))
    if reached is not None and end < reached < start:
        return [unheard(*lost, before, after, Certainty.SEGMENT)]
    if end.ledger == start.ledger:
        return _hole(*lost, before, after)
    closed = known.closed.get((end.incarnation, end.ledger), -1)
    last = max(_last_known(before), closed)
    tail = _hole(lost[0], end._replace(entry=last), before, after)
    head = _hole(start._replace(entry=0), lost[1], before, after)
    found = [replace(tail[0], last=head[0].last, turn=last)] if tail and head else tail + head
    if found:
        return [replace(found[0], lost=lost)]
    adjacent = start.ledger == end.ledger + 1 and closed == end.entry
    return [] if adjacent or end in known.vouched else [unheard(*lost, before, after, _doubt(before, reached))]


def at_begin(begin: Position, after: After, reached: Position | None) -> list[Hole]:
    """What may be missing between a claim and the first record behind it. `reached`: as in `between`."""
    start = after.start
    lost = (begin, start._replace(entry=start.entry - 1))
    if begin >= start:
        return []
    if reached is not None and begin <= reached < start:
        return [unheard(*lost, None, after, Certainty.SEGMENT)]
    if begin.ledger == start.ledger:
        return _hole(*lost, None, after)
    if start.entry > 0:  # no gap of the first segment's: that would say nothing of the ledgers before its own
        return [Hole(start._replace(entry=0), lost[1], None, after, gap=False, lost=lost)]
    return [unheard(*lost, None, after, Certainty.DOUBT)]  # a ledger that nobody wrote to any more is replaced


def at_end(before: Before | None, first: Position, until: Position, known: Known, reached: Position | None) -> list[Hole]:
    """What may be missing of an incarnation from `first` on, behind the last record of it. `until`: the first position that is recorded of
    the next one. `reached`: as in `between`."""
    last = max(first, until._replace(incarnation=first.incarnation, entry=until.entry - 1))
    if reached is not None and first <= reached and reached.incarnation == first.incarnation:
        return [unheard(first, max(last, reached), before, None, Certainty.SEGMENT)]
    vouched = before is not None and before.end in known.vouched
    return [] if vouched else [unheard(first, last, before, None, _doubt(before, reached))]


def _doubt(before: Before | None, reached: Position | None) -> Certainty:
    linked = before is not None and not isinstance(before, Loss) and before.end == reached
    return Certainty.LINKED if linked else Certainty.DOUBT


def unheard(first: Position, last: Position, before: Before | None, after: After | None, certainty: Certainty) -> Hole:
    """One that cannot be a gap of a neighbour."""
    return Hole(first, last, before, after, certainty=certainty, gap=False)


def is_reported(hole: Hole, known: Known) -> bool:
    """Whether readers report the place also without a record: nothing says that the ledger before it had ended there."""
    before, after = hole.before, hole.after
    if before is None or after is None or before.end.incarnation != after.start.incarnation:
        return False
    return known.closed.get((before.end.incarnation, before.end.ledger)) != before.end.entry


def may_be_gap(hole: Hole, drafts: Mapping[str, Draft]) -> bool:
    """Whether a neighbour that has no record yet may have had the hole as a gap: False where its index denies it."""
    before, after = hole.before, hole.after
    if isinstance(after, Draft) and after.object.uuid in drafts:
        return hole.gap
    return hole.gap and isinstance(before, Draft) and before.object.uuid in drafts and _may_end_behind(before, hole)


def as_gap(hole: Hole, drafts: dict[str, Draft]) -> None:
    """Make the hole, which may be one, a gap of its neighbour."""
    before, after, first = hole.before, hole.after, hole.first
    if isinstance(after, Draft) and after.object.uuid in drafts:
        draft = drafts[after.object.uuid]
        leading = None
        if first.ledger < after.start.ledger:
            last = hole.last.entry if hole.turn is None else hole.turn
            leading = LedgerRange(first.ledger, first.entry, last, 0, 0, last)
        drafts[draft.object.uuid] = replace(draft, start=first, leading=leading)
    elif isinstance(before, Draft):
        draft = drafts[before.object.uuid]
        drafts[draft.object.uuid] = replace(draft, end=hole.last, end_known=True)


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


def _hole(first: Position, last: Position, before: Before | None, after: After | None) -> list[Hole]:
    return [Hole(first, last, before, after)] if first <= last else []


def _last_known(before: Before) -> int:
    """The last entry id of the neighbour's last ledger, as far as its index says it."""
    return before.object.ends.get(before.end.ledger, -1) if isinstance(before, Draft) else -1
