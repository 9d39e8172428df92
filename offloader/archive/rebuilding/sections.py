"""The slots that have no record, between those that have: what can stand in them. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from offloader.archive.rebuilding.choose import Draft, left_out
from offloader.archive.rebuilding.found import Evidence, Note
from offloader.archive.rebuilding.holes import After, Before, Hole, as_gap, holes
from offloader.metadata.state import Claim
from offloader.model import Loss, OpenSegment, Position, Segment, TopicName


@dataclass(slots=True)
class Section:
    """Free slots between two records that positions are bound to: segments, losses, and the first claim of an incarnation.

    `endless`: as many more slots as are wanted follow, and then what the journal has open. `lower` and `upper`: what stands in it lies between these positions.
    """

    lower: Position | None
    before: Before | None
    incarnation: int | None
    slots: list[int] = field(default_factory=list)
    upper: Position | None = None
    after: Segment | Loss | OpenSegment | None = None
    endless: bool = False

    def share(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Those of the drafts, which are in order, whose positions lie in it."""
        first = 0 if self.lower is None else bisect_right(drafts, self.lower, key=_start)
        after = len(drafts) if self.upper is None else bisect_left(drafts, self.upper, key=_start)
        return list(drafts[first:after])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a section gets, in order: a number is the incarnation of a claim that is missing there, a hole becomes a loss."""

    items: tuple[int | Draft | Hole, ...]
    notes: tuple[Note, ...] = ()


def sections(evidence: Evidence) -> Iterator[Section]:
    """All of them, in the order of their slots; the last one is endless."""
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
            section.upper = Position(record.incarnation, -1, -1)
            yield section
            section = Section(section.upper, section.before, record.incarnation)
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
        if behind_claim and not section.endless and excess > 0:
            shares[number - 1] += share[:excess]
            shares[number] = share[excess:]
            section.before = share[excess - 1]
    return shares


def wanted(section: Section, drafts: list[Draft], topic: TopicName, closed: Mapping[tuple[int, int], int]) -> Wanted:
    """What the section gets of these drafts, and of what lies between them and its neighbours."""
    found = _holes(section, drafts, closed) if section.slots or section.endless else []
    by_uuid = {draft.object.uuid: draft for draft in drafts}
    room = None if section.endless else len(section.slots) - len(_ordered(section, drafts, []))
    if room is not None and room < 0:
        why = "no record is missing where it belongs, so it was never committed"
        if section.slots and drafts:
            why = f"{len(drafts)} objects are left for the {len(section.slots)} records that are missing here: which were committed?"
        return Wanted(tuple(_ordered(section, [], [])), tuple(left_out(topic, draft, why) for draft in drafts))
    if room is not None:
        found = _with_records(found, room, by_uuid)
        if room == len(found):
            _mark_ended(section, _not_followed(drafts, found), by_uuid)
    return Wanted(tuple(_ordered(section, [by_uuid[d.object.uuid] for d in drafts], found)))


def _holes(section: Section, drafts: list[Draft], closed: Mapping[tuple[int, int], int]) -> list[Hole]:
    befores: list[Before | None] = [section.before, *drafts]
    afters: list[After | None] = [*drafts, section.after]
    pairs = zip(befores, afters, strict=True)
    return [hole for b, a in pairs if b is not None and a is not None for hole in holes(b, a, closed)]


def _with_records(found: list[Hole], records: int, by_uuid: dict[str, Draft]) -> list[Hole]:
    """So many of the holes. Each record that is missing was a segment, or accounted for one hole at most: for what there is no record, it
    was a gap, the smallest ones first."""
    gaps: set[int] = set()
    for number in sorted(range(len(found)), key=lambda n: found[n].last.entry - found[n].first.entry):
        if len(found) - len(gaps) > records and as_gap(found[number], by_uuid):
            gaps.add(number)
    return [hole for number, hole in enumerate(found) if number not in gaps][:records]


def _not_followed(drafts: Iterable[Draft], found: Iterable[Hole]) -> list[Draft]:
    """The drafts behind whose end, in the same ledger, there is no hole."""
    last: dict[tuple[int, int], Position] = {}
    for hole in found:
        place = (hole.first.incarnation, hole.first.ledger)
        last[place] = max(hole.first, last.get(place, hole.first))
    return [d for d in drafts if last.get((d.end.incarnation, d.end.ledger), d.end) <= d.end]


def _mark_ended(section: Section, drafts: list[Draft], by_uuid: dict[str, Draft]) -> None:
    """No record is missing that could have said with what a ledger was closed: then the segment's own did, as each end is recorded."""
    starts = sorted([d.start for d in by_uuid.values()] + ([] if section.after is None else [section.after.start]))
    for draft in (by_uuid[d.object.uuid] for d in drafts):
        end = draft.end
        number = bisect_right(starts, end)
        after = starts[number] if number < len(starts) else None
        goes_on = after is not None and after.incarnation == end.incarnation and after.ledger > end.ledger
        if goes_on and draft.object.ends.get(end.ledger) == end.entry:
            by_uuid[draft.object.uuid] = replace(draft, ended=True)


def _ordered(section: Section, drafts: list[Draft], found: list[Hole]) -> list[int | Draft | Hole]:
    """Drafts and holes by position, with a claim before each that is of another incarnation than what stands before it."""
    placed: list[tuple[Position, Draft | Hole]] = [(d.start, d) for d in drafts] + [(h.first, h) for h in found]
    incarnation = section.incarnation
    ordered: list[int | Draft | Hole] = []
    for start, item in sorted(placed, key=lambda pair: pair[0]):
        if start.incarnation != incarnation:
            incarnation = start.incarnation
            ordered.append(incarnation)
        ordered.append(item)
    after = section.after
    if after is not None and after.start.incarnation != incarnation:
        ordered.append(after.start.incarnation)
    return ordered


def as_loss(hole: Hole, at: int) -> Loss:
    """That nothing says any more what was there."""
    reason = "nothing is left that says what was here: a gap, a loss, or a segment"
    return Loss(hole.first, hole.last, reason, "catalog rebuild", at)


def _start(draft: Draft) -> Position:
    return draft.start
