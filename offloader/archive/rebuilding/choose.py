"""Which of the objects without a record were committed: whatever is not certain is left out and told of. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from offloader.archive.rebuilding.found import Evidence, FoundObject, Note, NoteKind
from offloader.archive.rebuilding.said import Said
from offloader.metadata.layout import data_key
from offloader.model import LedgerRange, Position, Segment, TopicName


@dataclass(frozen=True, slots=True)
class Draft:
    """A segment that is to have a record again. `end_known`: what followed it says where it ended. `ended`: so did its ledger. `leading`:
    of a ledger before its first entry's, of which it only held a gap."""

    object: FoundObject
    start: Position
    end: Position
    end_known: bool = False
    ended: bool = False
    leading: LedgerRange | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The segments to be recorded, in order; none overlaps another, or a record."""

    drafts: tuple[Draft, ...]
    notes: tuple[Note, ...]


def choose(evidence: Evidence, incarnation: int) -> Choice:
    """`incarnation`: of objects about which no record says anything; 0: the one that an earlier rebuild took, if any."""
    said, made = Said(evidence), evidence.made_segments
    before = {uuid: incarnation or segment.start.incarnation for uuid, segment in made.items()}
    its = _incarnations(said, evidence.objects, before, incarnation)
    drafts = [_draft(said, found, its[found.uuid][0]) for found in evidence.objects]
    drafts.sort(key=lambda d: (d.start, d.object.uuid))
    notes = list(_doubts(evidence.topic, its, drafts))
    free = [d for d in drafts if not _refused(evidence, said, d, notes)]
    taken = [d for group in _overlapping(free) for d in _settled(evidence.topic, (said.followers, made), group, notes)]
    return Choice(tuple(taken), tuple(notes))


def left_out(topic: TopicName, draft: Draft, why: str) -> Note:
    """That it gets no record."""
    return Note(NoteKind.LEFT_OUT, data_key(topic, draft.object.uuid), why, draft.start)


def _draft(said: Said, found: FoundObject, incarnation: int) -> Draft:
    end_said = said.followers.get(found.uuid)
    start, end = Position(incarnation, *found.first), Position(incarnation, *found.last)
    if end_said is not None and end_said >= end:
        return Draft(found, start, end_said, end_known=True)
    return Draft(found, start, end)


def _incarnations(
    said: Said, objects: Iterable[FoundObject], before: Mapping[str, int], default: int
) -> dict[str, tuple[int, bool]]:
    """By uuid, the incarnation of an object, and whether it is proven. What one proves holds for all that share a ledger with it: no
    ledger is of two. `before`: those that an earlier rebuild took."""
    found: dict[str, tuple[int, bool]] = {}
    for group in _sharing_ledgers(objects):
        taken = next((before[each.uuid] for each in group if each.uuid in before), default)
        alone = [_incarnation(said, each, taken) for each in group]
        shared = next((its for its in alone if its[1]), alone[0])
        found.update((each.uuid, its if its[1] else shared) for each, its in zip(group, alone, strict=True))
    return found


def _sharing_ledgers(objects: Iterable[FoundObject]) -> list[list[FoundObject]]:
    """In groups, each of which shares ledgers in a chain."""
    found: list[list[FoundObject]] = []
    by_ledger: dict[int, list[FoundObject]] = {}
    for each in sorted(objects, key=lambda o: (o.first, o.uuid)):
        group = next((by_ledger[ledger] for ledger in each.ends if ledger in by_ledger), None)
        if group is None:
            group = []
            found.append(group)
        group.append(each)
        for ledger in each.ends:
            by_ledger.setdefault(ledger, group)
    return found


def _incarnation(said: Said, found: FoundObject, default: int) -> tuple[int, bool]:
    """That of an object, and whether it is proven: by the segment after it, or by a ledger at one of its ends."""
    follower = said.followers.get(found.uuid)
    if follower is not None:
        return follower.incarnation, True
    first, last = (said.incarnation(ledger, default) for ledger in (found.first[0], found.last[0]))
    return last if last[1] else first


def _doubts(topic: TopicName, incarnations: Mapping[str, tuple[int, bool]], drafts: list[Draft]) -> Iterator[Note]:
    """Where an incarnation is not proven: one note for all in a row."""
    doubted: int | None = None
    for draft in drafts:
        its, certain = incarnations[draft.object.uuid]
        if not certain and its != doubted:
            what = f"whether it is of incarnation {its}, as records before it are, or of a later one (--incarnation where there is no record)"
            yield Note(NoteKind.UNKNOWN, data_key(topic, draft.object.uuid), what, draft.start)
        doubted = None if certain else its


def _refused(evidence: Evidence, said: Said, draft: Draft, notes: list[Note]) -> bool:
    record = said.overlapping(draft.start, draft.end)
    if record is not None:
        what = f"segment {record.uuid}" if isinstance(record, Segment) else "a loss"
        notes.append(left_out(evidence.topic, draft, f"{what} of {record.start}..{record.end} is recorded, which it overlaps"))
        return True
    for application, segment in evidence.open:
        if draft.end >= segment.start:
            why = f"the journal of {application} has segment {segment.uuid} open from {segment.start} on"
            notes.append(left_out(evidence.topic, draft, f"{why}, so this one was never committed"))
            return True
    return False


def _overlapping(drafts: list[Draft]) -> list[list[Draft]]:
    """In groups, each of which overlaps in a chain."""
    groups: list[list[Draft]] = []
    end: Position | None = None
    for draft in drafts:
        if end is not None and draft.start <= end:
            groups[-1].append(draft)
        else:
            groups.append([draft])
        end = draft.end if end is None else max(end, draft.end)
    return groups


def _settled(topic: TopicName, names: Iterable[Collection[str]], group: list[Draft], notes: list[Note]) -> list[Draft]:
    """What can be taken of objects that overlap: those that a record names, or one of several with the same contents."""
    if len(group) == 1:
        return group
    named = next((found for by in names if (found := [d for d in group if d.object.uuid in by])), [])
    same = all(_contents(d) == _contents(group[0]) for d in group)
    taken = named if len(_overlapping(named)) == len(named) > 0 else group[:1] if same else []
    for draft in group:
        if draft not in taken:
            others = ", ".join(d.object.uuid for d in (taken or group) if d != draft)
            why = f"it has the same contents as {others}" if same else f"it holds positions that {others} holds, too"
            notes.append(left_out(topic, draft, f"{draft.start}..{draft.end}: {why}" + ("" if taken else "; none is taken")))
    return taken


def _contents(draft: Draft) -> object:
    found = replace(draft.object, uuid="", offloaded_at=0)
    return found.size, found.ends, found.blocks
