"""What the catalog should be: all that is recorded, in order, losses where a record is lost, and notes of what is in
doubt. Pure, but for the check of the objects of segments that nothing names.

Segments and losses are put in the order of their links: each names the one before it. It goes back from the last one:
what a follower names came before it. Where several overlap that nobody names, the one counts that is known to be
committed, else a segment whose objects are sound, else a loss.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from offloader.archive.continuity import breaks
from offloader.archive.findings import FindingKind
from offloader.errors import FatalError
from offloader.metadata.deletions import Deleted, Deleting, DeletionRecord, PulsarTrimmed, TopicGone
from offloader.metadata.layout import generations_folder
from offloader.metadata.state import REBUILT, Claim, LedgerClosed, Said, TopicCatalog
from offloader.model import Loss, OpenSegment, Position, Segment
from offloader.operations.rebuild.remains import Given, Note, NoteKind, Remains, Span

FIRST, LAST = Position(0, 0, 0), Position(2**63 - 1, 0, 0)
VOUCHED = "catalog rebuild --ended"
Sound = Callable[[Segment], str]
"""What is wrong with a segment's objects; "" where nothing is."""


@dataclass(frozen=True, slots=True)
class Hole:
    """No record is left of what followed `before` up to `end`: `uuid` had it, and perhaps others before it."""

    before: Span | None
    uuid: str
    end: Position


@dataclass(frozen=True, slots=True)
class Chain:
    """What the catalog gets, in order; what is missing between; and why the other records are left out."""

    spans: tuple[Span, ...]
    holes: tuple[Hole, ...]
    left_out: tuple[tuple[Span, str], ...]


def chain(remains: Remains, sound: Sound) -> Chain:
    """The chain of all that is recorded."""
    links = _Links(remains, sound)
    follower: Span | OpenSegment | None = next((s for _, s in remains.open if s.uuid not in remains.records), None)
    taken: list[Span] = []
    holes: list[Hole] = []
    while follower is None or follower.predecessor_end is not None:
        found = links.before(follower)
        if follower is not None and (reached := follower.predecessor_end) and (found is None or found.end < reached):
            holes.append(Hole(found, follower.predecessor_uuid, reached))
        if found is None:
            break
        taken.append(found)
        follower = found
    return Chain(tuple(reversed(taken)), tuple(reversed(holes)), tuple(links.left_out(taken)))


class _Links:
    def __init__(self, remains: Remains, sound: Sound) -> None:
        self._remains = remains
        self._sound = sound
        self._spans = sorted(remains.spans, key=lambda s: (s.end, remains.uuid(s)), reverse=True)
        self._by_uuid = {remains.uuid(s): s for s in self._spans}
        named = {s.predecessor_uuid for s in (*self._spans, *(segment for _, segment in remains.open))}
        self._proven = named | remains.committed
        self._problems: dict[str, str] = {}

    def before(self, follower: Span | OpenSegment | None) -> Span | None:
        """What stood before a record; before None: the last one of all."""
        named = None if follower is None else self._by_uuid.get(follower.predecessor_uuid)
        if named is not None and follower is not None and named.end == follower.predecessor_end:
            return named
        return next((s for s in self._spans if (follower is None or s.end < follower.start) and self._counts(s)), None)

    def left_out(self, taken: Iterable[Span]) -> Iterator[tuple[Span, str]]:
        """Every other one, and why."""
        chosen = {self._remains.uuid(s): s for s in taken}
        for each in reversed(self._spans):
            if self._remains.uuid(each) in chosen:
                continue
            instead = next((uuid for uuid, s in chosen.items() if s.start <= each.end and each.start <= s.end), None)
            if instead is not None:
                why = f"{instead} has these positions, and it was committed"
            else:
                why = self._problem(each) or "nothing that is left leads to it"
            yield each, f"{each.start}..{each.end}: {why}"

    def _counts(self, span: Span) -> bool:
        """Whether it can be the last one: nothing more certain of the same positions counts."""
        rank = self._rank(span)
        if rank[0] < 0:
            return False
        rivals = (s for s in self._spans if s.start <= span.end and span.start <= s.end and self._rank(s) > rank)
        return not any(self._counts(s) for s in rivals)

    def _rank(self, span: Span) -> tuple[int, int]:
        """How certainly it was committed; of two sound segments, the one that was sealed later."""
        if self._remains.uuid(span) in self._proven:
            return 2, 0
        if self._problem(span):
            return -1, 0
        return (1, span.offloaded_at) if isinstance(span, Segment) else (0, span.at)

    def _problem(self, span: Span) -> str:
        """Why one that nothing names cannot count."""
        uuid = self._remains.uuid(span)
        if uuid not in self._problems:
            self._problems[uuid] = self._find_problem(span, uuid)
        return self._problems[uuid]

    def _find_problem(self, span: Span, uuid: str) -> str:
        if uuid in self._remains.abandoned:
            return "a journal says that it was abandoned"
        opened = next((s for _, s in self._remains.open if s.uuid != uuid and s.start <= span.end), None)
        if opened is not None:
            return f"a journal has segment {opened.uuid} open from {opened.start} on"
        return self._sound(span) if isinstance(span, Segment) and not self._remains.is_deleted(span) else ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The records that the catalog should have, in order, and what the person who decides must know."""

    remains: Remains
    records: tuple[Said, ...]
    notes: tuple[Note, ...]

    @property
    def in_force(self) -> bool:
        """Whether the catalog can be read and says this already."""
        return self.remains.catalog is not None and {*map(self.remains.uuid, self.records)} == self.remains.committed

    def catalog(self) -> TopicCatalog:
        """What the records add up to, without the segments' parts. Raises IntegrityError."""
        return TopicCatalog.empty(self.remains.topic).apply(*self.records)


def propose(remains: Remains, given: Given, sound: Sound) -> Proposal:
    """Raises FatalError where nothing that is archived ends where `given` says that a ledger ended."""
    found = chain(remains, sound)
    claims = _claims(remains)
    losses = (_loss(remains, given, hole, claims) for hole in found.holes)
    spans = sorted((*found.spans, *losses), key=lambda span: span.start)
    closed = {remains.uuid(c): c for c in [*_vouched(remains, spans, given), *remains.closed]}
    records: list[Said] = []
    notes = [*remains.notes, *_of_chain(remains, found)]
    incarnations = {c.incarnation for c in claims} | {s.start.incarnation for s in spans}
    for incarnation in sorted(incarnations):
        mine = [s for s in spans if s.start.incarnation == incarnation]
        recorded = [c for c in claims if c.incarnation == incarnation]
        if mine and (not recorded or mine[0].start < recorded[0].begin):
            former = next((remains.uuid(r) for r in reversed(records) if isinstance(r, Claim)), "")
            made = _claim(remains, given, mine[0].start, recorded, former)
            what = f"whose the topic was from {made.begin} on: the record of the claim is lost"
            notes.append(Note(NoteKind.UNKNOWN, remains.key(made), what, made.begin))
            records.append(made)
        ends = [c for c in closed.values() if c.incarnation == incarnation]
        records += [*recorded, *sorted((*mine, *ends), key=_place)]
    records = [*_with_deletions(records, remains.deletions)]
    return Proposal(remains, tuple(records), (*notes, *_doubts(remains, records)))


def _with_deletions(records: Iterable[Said], deletions: Iterable[DeletionRecord]) -> Iterator[Said]:
    """Each deletion as early as it can have been recorded: right behind the last segment that it names. What it says of
    the end of an incarnation is true there, and what stands behind it takes that back."""
    left = deque(deletions)
    for record in records:
        yield record
        if isinstance(record, Span):
            while left and _named_by(left[0]) <= record.end:
                yield left.popleft()
    yield from left


def _named_by(record: DeletionRecord) -> Position:
    """The last position that a record of a deletion needs before it."""
    match record:
        case Deleting() | Deleted():
            return max((each.end for each in record.ranges), default=FIRST)
        case TopicGone() | PulsarTrimmed():
            return LAST
        case _:
            return FIRST


def _place(record: Span | LedgerClosed) -> tuple[int, int, bool, bool]:
    """A ledger's end stands behind what lies in it; that nothing needs to follow, behind what follows."""
    if isinstance(record, LedgerClosed):
        return record.ledger, record.last, True, record.followed_by is None
    return record.start.ledger, record.start.entry, False, False


def _loss(remains: Remains, given: Given, hole: Hole, claims: Sequence[Claim]) -> Loss:
    before, end = hole.before, hole.end
    begin = next((c.begin for c in claims if c.incarnation == end.incarnation), None)
    if before is not None and before.end.incarnation == end.incarnation:
        start = before.end.next_entry
    else:
        start = end.at(min(end.entry, 0)) if begin is None or begin > end else begin
    uuid, reached = ("", None) if before is None else (remains.uuid(before), before.end)
    why = f"the record of {hole.uuid} is lost"
    return Loss(start, end, why, REBUILT, given.at, uncounted=True, predecessor_uuid=uuid, predecessor_end=reached)


def _claims(remains: Remains) -> list[Claim]:
    """In their order: each names the one that it replaces. Without an unfinished release of a topic that is open."""
    left = {claim.former: claim for claim in remains.claims}
    ordered: list[Claim] = []
    while left:
        last = remains.uuid(ordered[-1]) if ordered else ""
        former = last if last in left else min(left, key=lambda uuid: (left[uuid].incarnation, left[uuid].at))
        ordered.append(left.pop(former))
    released = bool(ordered) and not ordered[-1].application
    if released and remains.open and remains.uuid(ordered[-1]) not in remains.committed:
        ordered.pop()
    return ordered


def _claim(remains: Remains, given: Given, begin: Position, later: Sequence[Claim], former: str) -> Claim:
    """In place of a lost one. A later one of the incarnation says who had the topic, and when it was created."""
    if later:
        return replace(later[0], begin=begin, at=given.at, reason=REBUILT, former=former)
    owner = next((application for application, _ in remains.open), given.application)
    return Claim(owner, begin.incarnation, given.created, begin, given.at, REBUILT, former)


def _vouched(remains: Remains, spans: Sequence[Span], given: Given) -> Iterator[LedgerClosed]:
    """The ends that the person vouches for. Raises FatalError where nothing that is archived ends there."""
    ends = {(span.end.ledger, span.end.entry): span.end for span in spans}
    for place in dict.fromkeys(given.ended):
        if place not in ends:
            raise FatalError(
                f"{remains.topic}: no segment ends with {place[0]}:{place[1]}; the notes name the ends that are in "
                "doubt"
            )
        yield LedgerClosed(ends[place].incarnation, *place, VOUCHED)


def _of_chain(remains: Remains, found: Chain) -> Iterator[Note]:
    for span, why in found.left_out:
        yield Note(NoteKind.LEFT_OUT, remains.key(span), why, span.start)
    for hole in found.holes:
        after = "the beginning" if hole.before is None else str(hole.before.end)
        message = (
            f"what followed {after} up to {hole.end}: the record of {hole.uuid} is lost; bring it back, or it is a loss"
        )
        yield Note(NoteKind.LOST, generations_folder(remains.topic), message, hole.end)


def _doubts(remains: Remains, records: Iterable[Said]) -> Iterator[Note]:
    """A note of each place where readers report or refuse something."""
    for found in breaks(TopicCatalog.empty(remains.topic).apply(*records)):
        before = found.before if found.kind is FindingKind.UNPROVEN_END else None
        remedy = "" if before is None else f"; --ended {before.end} where you know that it did"
        yield Note(NoteKind.UNKNOWN, generations_folder(remains.topic), f"{found.message}{remedy}", found.after.start)
