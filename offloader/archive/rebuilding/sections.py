"""The slots that have no record, between those that have. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.found import Evidence
from offloader.archive.rebuilding.holes import Before
from offloader.metadata.state import Claim
from offloader.model import Loss, OpenSegment, Position, Segment


@dataclass(slots=True)
class Section:
    """Free slots between two records that positions are bound to: segments, losses, and the first claim of an incarnation.

    `endless`: as many more slots as are wanted follow, and then what the journal has open. `lower` and `upper`: what stands in it lies
    between these positions. `begin`: of the claim that it follows; `until`: of the one that follows it. `reached`: the end of the last
    segment in it, as the next one's record says. `made`: an earlier rebuild has made records in it: nobody knows how many there were.
    `uncounted`: it has made slots, too, one a hole, whatever had been in that; or can make them now.
    """

    lower: Position | None
    before: Before | None
    incarnation: int | None
    slots: list[int] = field(default_factory=list)
    upper: Position | None = None
    after: Segment | Loss | OpenSegment | None = None
    endless: bool = False
    begin: Position | None = None
    until: Position | None = None
    reached: Position | None = None
    made: bool = False
    uncounted: bool = False

    def share(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Those of the drafts, which are in order, whose positions lie in it."""
        first = 0 if self.lower is None else bisect_right(drafts, self.lower, key=_start)
        after = len(drafts) if self.upper is None else bisect_left(drafts, self.upper, key=_start)
        return list(drafts[first:after])


def sections(evidence: Evidence) -> list[Section]:
    """All of them, in the order of their slots; the last one is endless."""
    found = list(_cut(evidence))
    reached: Position | None = None
    for section in reversed(found):
        if isinstance(section.after, Segment | OpenSegment):
            reached = section.after.predecessor_end
        section.reached = reached
        made = [evidence.made[slot] for slot in section.slots if slot in evidence.made]
        section.made = bool(made)
        section.uncounted = section.endless or any(isinstance(r, Loss) and r.uncounted for r in made)
    return found


def _cut(evidence: Evidence) -> Iterator[Section]:
    section = Section(None, None, None)
    for slot in range(evidence.slots):
        record = evidence.records.get(slot)
        if record is None:
            section.slots.append(slot)
        elif isinstance(record, Segment | Loss):
            section.upper, section.after = record.start, record
            yield section
            section = Section(record.end, record, record.start.incarnation)
        elif isinstance(record, Claim) and (section.incarnation is None or record.incarnation > section.incarnation):
            section.upper, section.until = Position(record.incarnation, -1, -1), record.begin
            yield section
            section = Section(section.upper, section.before, record.incarnation, begin=record.begin)
    section.endless = True
    section.after = evidence.open[0][1] if len(evidence.open) == 1 else None
    yield section


def shared_out(found: Sequence[Section], drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Each section's drafts. What does not fit behind a claim belongs before it: it was not the first one of its incarnation."""
    shares = [section.share(drafts) for section in found]
    for number in range(len(found) - 1, 0, -1):
        section, share = found[number], shares[number]
        behind_claim = section.before is found[number - 1].before and found[number - 1].slots
        excess = len(share) - len(section.slots)
        if behind_claim and not section.uncounted and excess > 0:
            shares[number - 1] += share[:excess]
            shares[number] = share[excess:]
            section.before = share[excess - 1]
    return shares


def _start(draft: Draft) -> Position:
    return draft.start
