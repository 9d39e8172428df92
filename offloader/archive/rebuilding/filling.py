"""What can stand in the slots of a section: segments that have objects, claims, losses. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from offloader.archive.rebuilding.choose import Draft, left_out
from offloader.archive.rebuilding.found import MARK, Evidence, Note, NoteKind
from offloader.archive.rebuilding.holes import Certainty, Hole, Known, as_gap, is_reported, may_be_gap
from offloader.archive.rebuilding.missing import holes_in
from offloader.archive.rebuilding.sections import Section
from offloader.metadata.layout import catalog_folder
from offloader.model import Loss, Position, Segment

REASONS = {
    Certainty.SEGMENT: "the record of the segment that was here is lost, and its objects are not there or damaged",
    Certainty.POSITIONS: "nothing is left that says what was here: a gap, a loss, or a segment",
    Certainty.DOUBT: "nothing is left that says whether anything was here",
    Certainty.LINKED: "nothing is left that says whether a loss was recorded here",
}

Item = int | Draft | Hole


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a section gets, in order: a number is the incarnation of a claim that is missing there, a hole becomes a loss."""

    items: tuple[Item, ...]
    notes: tuple[Note, ...] = ()


def wanted(section: Section, drafts: list[Draft], evidence: Evidence, known: Known) -> Wanted:
    """What the section gets of these drafts, and of what lies between them and its neighbours."""
    by_uuid = {draft.object.uuid: draft for draft in drafts}
    untold: list[Hole] = []
    room = None if section.endless else len(section.slots) - len(_ordered(section, drafts, []))
    if room is not None and room < 0:
        return _crowded(section, drafts, evidence, known)
    found = holes_in(section, drafts, known) if section.slots or section.endless else []
    if room == 0 and section.uncounted and (returned := _too_many(found, drafts, evidence, known)):
        return _without(returned, section, drafts, evidence, known)
    if room is not None:
        found = _with_records(found, room, by_uuid, known, uncounted=section.uncounted)
    found = [replace(hole, uncounted=section.uncounted) for hole in found]
    if room == 0:
        _mark_ended(section, _followed(section, drafts, evidence), by_uuid)
    items = _ordered(section, [by_uuid[d.object.uuid] for d in drafts], found)
    while room is not None and len(items) > len(section.slots):  # a claim is missing, too, that one of them needs
        untold.append(found.pop())
        items = _ordered(section, [by_uuid[d.object.uuid] for d in drafts], found)
    return Wanted(tuple(items), tuple(_untold(evidence, hole) for hole in untold))


def _crowded(section: Section, drafts: list[Draft], evidence: Evidence, known: Known) -> Wanted:
    """Where there are more drafts than records are missing: those that were taken before, or none."""
    why = "no record is missing where it belongs, so it was never committed"
    returned = _returned(drafts, evidence)
    if 0 < len(returned) < len(drafts):
        return _without(returned, section, drafts, evidence, known)
    if section.slots and drafts:
        why = f"{len(drafts)} objects are left for the {len(section.slots)} records that are missing here: which were committed?"
    return Wanted(tuple(_ordered(section, [], [])), tuple(left_out(evidence.topic, draft, why) for draft in drafts))


def _too_many(found: list[Hole], drafts: list[Draft], evidence: Evidence, known: Known) -> AbstractSet[str]:
    """Of the drafts that have come back, those that leave no slot for what else nobody would report: what is beside that."""
    untold = [hole for hole in found if not hole.doubtful or _rank(hole, known) == 0]
    if not untold:
        return frozenset()
    returned = _returned(drafts, evidence)
    sides = {side.object.uuid for hole in untold for side in (hole.before, hole.after) if isinstance(side, Draft)}
    return returned & sides or returned


def _returned(drafts: list[Draft], evidence: Evidence) -> AbstractSet[str]:
    """Those that have come back since an earlier rebuild."""
    return {draft.object.uuid for draft in drafts} - evidence.made_segments.keys()


def _without(returned: AbstractSet[str], section: Section, drafts: list[Draft], evidence: Evidence, known: Known) -> Wanted:
    """What the section gets of the other drafts."""
    why = "an earlier rebuild left no slot for it, and the catalog has gone on since"
    rest = wanted(section, [draft for draft in drafts if draft.object.uuid not in returned], evidence, known)
    notes = (left_out(evidence.topic, draft, why) for draft in drafts if draft.object.uuid in returned)
    return replace(rest, notes=(*notes, *rest.notes))


def _with_records(found: list[Hole], records: int, by_uuid: dict[str, Draft], known: Known, *, uncounted: bool) -> list[Hole]:
    """The holes, in so many records.

    Each record that is missing was a segment, or accounted for one hole at most. Where holes that cannot have been gaps are as many, the
    others were gaps; where they are fewer, nobody knows which others were, and all are told, as where the records are `uncounted`. Of what
    is only in doubt, all is told that no reader would report anyway.
    """
    every = [hole for hole in found if not hole.doubtful]
    if not uncounted and sum(_is_none(hole, by_uuid) for hole in every) >= records:
        for hole in every:
            if may_be_gap(hole, by_uuid):
                as_gap(hole, by_uuid)
        every = [hole for hole in every if not may_be_gap(hole, by_uuid)]
    every += sorted((hole for hole in found if hole.doubtful), key=lambda hole: _rank(hole, known))
    return (
        _together([h for n, h in enumerate(every) if n < records or not h.doubtful or _rank(h, known) == 0], records)
        if records
        else []
    )


def _is_none(hole: Hole, by_uuid: dict[str, Draft]) -> bool:
    """Whether it certainly was no gap: a segment is missing there, or neither neighbour can have had it. Of what is behind a claim's begin,
    a part may have been one."""
    return hole.certainty is Certainty.SEGMENT or (hole.gap and not may_be_gap(hole, by_uuid))


def _together(holes: list[Hole], records: int) -> list[Hole]:
    """The holes, most certain first; those that are too many share the record of the last one in the topic."""
    if len(holes) <= records:
        return holes
    last = max(holes, key=lambda hole: hole.start)
    rest = [hole for hole in holes if hole is not last]
    return [*rest[: records - 1], replace(last, also=tuple(sorted(rest[records - 1 :], key=lambda hole: hole.start)))]


def _untold(evidence: Evidence, hole: Hole) -> Note:
    message = f"whether anything was at {hole.start}..{hole.end} is in no record, and no slot is left to record that"
    return Note(NoteKind.UNKNOWN, catalog_folder(evidence.topic), message, hole.start)


def _rank(hole: Hole, known: Known) -> int:
    """What is most in doubt first."""
    return 2 if is_reported(hole, known) else 1 if hole.certainty is Certainty.LINKED else 0


def _followed(section: Section, drafts: list[Draft], evidence: Evidence) -> list[Draft]:
    """The drafts that are certainly followed by the next record, no record being missing: where an earlier rebuild has put some, that can
    only be said if what follows was there before, or of what was said then."""
    made, after = evidence.made_segments, section.after
    named = after.predecessor_uuid if isinstance(after, Segment) else None
    if not section.made or (named and named not in made and any(draft.object.uuid == named for draft in drafts)):
        return drafts
    return [d for d in drafts if d.object.uuid == named or _is_ended(made.get(d.object.uuid))]


def _is_ended(segment: Segment | None) -> bool:
    return segment is not None and segment.ledgers[-1].closed_with == segment.end.entry


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


def _ordered(section: Section, drafts: list[Draft], found: list[Hole]) -> list[Item]:
    """Drafts and holes by position, with a claim before each that is of another incarnation than what stands before it."""
    placed: list[tuple[Position, Draft | Hole]] = [(d.start, d) for d in drafts] + [(h.start, h) for h in found]
    incarnation = section.incarnation
    ordered: list[Item] = []
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
    also = tuple((each.start, each.end) for each in hole.also)
    return Loss(hole.start, hole.end, REASONS[hole.certainty], MARK, at, also, hole.uncounted)
