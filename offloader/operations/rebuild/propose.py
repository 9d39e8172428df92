"""What the catalog should be: all that is recorded, in order. What two neighbours do not prove is a loss, or is told
of. Pure, but for looking at the objects of segments that nothing names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from offloader.archive.continuity import breaks
from offloader.archive.findings import FindingKind
from offloader.errors import FatalError
from offloader.metadata.layout import generations_folder
from offloader.metadata.state import REBUILT, Claim, LedgerClosed, Said, TopicCatalog
from offloader.model import Loss, Position
from offloader.operations.rebuild.chain import Chain, Hole, Sound, chain
from offloader.operations.rebuild.remains import Given, Note, NoteKind, Remains, Span

VOUCHED = "catalog rebuild --ended"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The records that the catalog should have, in order, and what whoever decides must know."""

    evidence: Remains
    records: tuple[Said, ...]
    notes: tuple[Note, ...]

    @property
    def made(self) -> list[Said]:
        """Records that are in no object yet."""
        return [record for record in self.records if self.evidence.uuid(record) not in self.evidence.records]

    @property
    def in_force(self) -> bool:
        """Whether the catalog can be read and says this already."""
        return self.evidence.catalog is not None and {*map(self.evidence.uuid, self.records)} == self.evidence.committed

    def catalog(self) -> TopicCatalog:
        """What the records add up to, without the segments' parts. Raises IntegrityError."""
        return TopicCatalog.empty(self.evidence.topic).apply(*self.records)


def propose(evidence: Remains, given: Given, sound: Sound) -> Proposal:
    """Raises FatalError where nothing that is archived ends where `given` says that a ledger ended."""
    found = chain(evidence, sound)
    claims = _claims(evidence)
    spans = _filled(evidence, given, found, claims)
    closed = {evidence.uuid(c): c for c in [*_vouched(evidence, spans, given), *evidence.closed]}
    records: list[Said] = []
    notes = [*evidence.notes, *_of_chain(evidence, found)]
    incarnations = {c.incarnation for c in claims} | {s.start.incarnation for s in spans}
    for incarnation in sorted(incarnations):
        mine = [s for s in spans if s.start.incarnation == incarnation]
        said = [c for c in claims if c.incarnation == incarnation]
        if mine and (not said or mine[0].start < said[0].begin):
            former = next((evidence.uuid(r) for r in reversed(records) if isinstance(r, Claim)), "")
            made = _claim(evidence, given, mine[0].start, said, former)
            notes.append(_of_claim(evidence, made))
            records.append(made)
        ends = [c for c in closed.values() if c.incarnation == incarnation]
        records += [*said, *sorted((*mine, *ends), key=_place)]
    return Proposal(evidence, tuple(records), (*notes, *_doubts(evidence, records)))


def _place(record: Span | LedgerClosed) -> tuple[int, int, bool, bool]:
    """A ledger's end stands behind what lies in it. That what follows does not matter any more is recorded later than
    what follows."""
    if isinstance(record, LedgerClosed):
        return record.ledger, record.last, True, record.followed_by is None
    return record.start.ledger, record.start.entry, False, False


def _filled(evidence: Remains, given: Given, found: Chain, claims: Sequence[Claim]) -> list[Span]:
    """The chain, with a loss in each hole."""
    losses = [_loss(evidence, given, hole, claims) for hole in found.holes]
    return sorted((*found.spans, *losses), key=lambda span: span.start)


def _loss(evidence: Remains, given: Given, hole: Hole, claims: Sequence[Claim]) -> Loss:
    before, end = hole.before, hole.end
    begin = next((c.begin for c in claims if c.incarnation == end.incarnation), None)
    if before is not None and before.end.incarnation == end.incarnation:
        start = before.end.next_entry
    else:
        start = end.at(min(end.entry, 0)) if begin is None or begin > end else begin
    uuid, reached = ("", None) if before is None else (evidence.uuid(before), before.end)
    why = f"the record of {hole.uuid} is lost"
    return Loss(start, end, why, REBUILT, given.at, uncounted=True, predecessor_uuid=uuid, predecessor_end=reached)


def _claims(evidence: Remains) -> list[Claim]:
    """In their order: each names the one in whose place it is. A release that nobody finished, of a topic that is
    worked on, is none."""
    left = {claim.former: claim for claim in evidence.claims}
    ordered: list[Claim] = []
    while left:
        last = evidence.uuid(ordered[-1]) if ordered else ""
        former = last if last in left else min(left, key=lambda uuid: (left[uuid].incarnation, left[uuid].at))
        ordered.append(left.pop(former))
    if (
        ordered
        and evidence.open
        and not ordered[-1].application
        and evidence.uuid(ordered[-1]) not in evidence.committed
    ):
        ordered.pop()
    return ordered


def _claim(evidence: Remains, given: Given, begin: Position, later: Sequence[Claim], former: str) -> Claim:
    """In place of one that is lost: who had the topic, and when it was created, is as a later one of the incarnation
    says."""
    if later:
        return replace(later[0], begin=begin, at=given.at, reason=REBUILT, former=former)
    owner = next((application for application, _ in evidence.open), given.application)
    return Claim(owner, begin.incarnation, given.created, begin, given.at, REBUILT, former)


def _vouched(evidence: Remains, spans: Sequence[Span], given: Given) -> Iterator[LedgerClosed]:
    """What is said now. Raises FatalError where nothing that is archived ends there."""
    ends = {(span.end.ledger, span.end.entry): span.end for span in spans}
    for place in dict.fromkeys(given.ended):
        if place not in ends:
            raise FatalError(
                f"{evidence.topic}: no segment ends with {place[0]}:{place[1]}; the notes name the ends that are in "
                "doubt"
            )
        yield LedgerClosed(ends[place].incarnation, *place, VOUCHED)


def _of_chain(evidence: Remains, found: Chain) -> Iterator[Note]:
    for span, why in found.left_out:
        yield Note(NoteKind.LEFT_OUT, evidence.key(span), why, span.start)
    for hole in found.holes:
        after = "the beginning" if hole.before is None else str(hole.before.end)
        message = (
            f"what followed {after} up to {hole.end}: the record of {hole.uuid} is lost; bring it back, or it is a loss"
        )
        yield Note(NoteKind.LOST, generations_folder(evidence.topic), message, hole.end)


def _of_claim(evidence: Remains, made: Claim) -> Note:
    what = f"whose the topic was from {made.begin} on: the record of the claim is lost"
    return Note(NoteKind.UNKNOWN, evidence.key(made), what, made.begin)


def _doubts(evidence: Remains, records: Iterable[Said]) -> Iterator[Note]:
    """A note of each place where readers report or refuse what they read."""
    for found in breaks(TopicCatalog.empty(evidence.topic).apply(*records)):
        end = None if found.before is None else found.before.end
        remedy = (
            f"; --ended {end} where you know that it did"
            if found.kind is FindingKind.UNPROVEN_END and end is not None
            else ""
        )
        yield Note(NoteKind.UNKNOWN, generations_folder(evidence.topic), f"{found.message}{remedy}", found.after.start)
