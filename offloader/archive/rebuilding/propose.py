"""From what is left of a topic to the catalog that it should have. Pure: the same evidence, the same proposal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from offloader.archive.rebuilding.choose import Draft, choose
from offloader.archive.rebuilding.doubts import doubts, vouched
from offloader.archive.rebuilding.filling import Item, as_loss, wanted
from offloader.archive.rebuilding.found import MARK, Evidence, Given, Note, NoteKind
from offloader.archive.rebuilding.holes import Hole, known_ends, settled
from offloader.archive.rebuilding.remake import fits, remade
from offloader.archive.rebuilding.sections import sections, shared_out
from offloader.metadata.layout import catalog_folder, data_key, slot_name
from offloader.metadata.state import Claim, LedgerClosed, Record, TopicCatalog
from offloader.model import Cuts, Loss, Position, Segment, Source


class Origin(StrEnum):
    """Where a proposed record comes from."""

    KEPT = "kept"
    REMADE = "remade"
    PLACEHOLDER = "placeholder"  # the claim once more: nothing says what stood there


@dataclass(frozen=True, slots=True)
class Proposed:
    """One record of the proposal."""

    slot: int
    record: Record
    origin: Origin


@dataclass(frozen=True, slots=True)
class Proposal:
    """The whole catalog as it should be."""

    evidence: Evidence
    records: tuple[Proposed, ...]
    notes: tuple[Note, ...]

    @property
    def new(self) -> list[Proposed]:
        """Those that are to be written."""
        return [p for p in self.records if p.origin is not Origin.KEPT]

    def catalog(self) -> TopicCatalog:
        """What the records add up to. Raises IntegrityError where they do not."""
        return TopicCatalog(self.evidence.topic).apply(*(proposed.record for proposed in self.records))


def propose(evidence: Evidence, given: Given) -> Proposal:
    """See `Proposal`."""
    choice = choose(evidence, given.incarnation)
    drafts = settled(evidence, choice.drafts)
    said = vouched(evidence, drafts, given)
    known = known_ends(evidence, drafts, said)
    builder = _Builder(evidence, given)
    notes = [*evidence.notes, *choice.notes]
    found = sections(evidence)
    for section, share in zip(found, shared_out(found, drafts), strict=True):
        filled = wanted(section, share, evidence, known)
        notes += filled.notes
        more = said if section.endless else ()
        builder.fill(section.slots, (*filled.items, *more), endless=section.endless)
    notes += [Note(NoteKind.DAMAGED, builder.key(slot), why) for slot, why in sorted(evidence.damaged.items())]
    records = tuple(builder.records())
    left = doubts(evidence.topic, [proposed.record for proposed in records])
    return Proposal(evidence, records, (*notes, *builder.notes, *left))


class _Builder:
    """Puts records into slots, then makes them in order: a segment names the one before it."""

    def __init__(self, evidence: Evidence, given: Given) -> None:
        self.notes: list[Note] = []
        self._evidence = evidence
        self._given = given
        self._items: dict[int, Item | LedgerClosed | None] = {}
        self._candidates = _cuts(evidence, given.cuts)
        sources = Counter(s.source for s in (*evidence.segments, *evidence.made_segments.values()))
        self._source = sources.most_common(1)[0][0] if sources else Source.BROKER

    def key(self, slot: int) -> str:
        """Where a record lies."""
        return catalog_folder(self._evidence.topic) + slot_name(slot)

    def fill(self, slots: list[int], items: tuple[Item | LedgerClosed, ...], *, endless: bool) -> None:
        """The items into the slots; what is left of the slots gets a placeholder."""
        more = max(len(items) - len(slots), 0) if endless else 0
        following = max(self._evidence.slots, max(slots, default=-1) + 1)
        chosen = [*slots, *range(following, following + more)]
        self._items.update(zip(chosen, [*items, *([None] * (len(chosen) - len(items)))], strict=True))

    def records(self) -> Iterator[Proposed]:
        """All records, in the order of their slots."""
        claim: Claim | None = None
        before: Segment | None = None
        for slot in sorted({*self._evidence.records, *self._items}):
            proposed = self._proposed(slot, claim, before)
            yield proposed
            if isinstance(proposed.record, Claim):
                claim = proposed.record
            elif isinstance(proposed.record, Segment):
                before = proposed.record

    def _proposed(self, slot: int, claim: Claim | None, before: Segment | None) -> Proposed:
        kept = self._evidence.records.get(slot)
        if kept is not None:
            return Proposed(slot, kept, Origin.KEPT)
        noted = len(self.notes)
        made, origin = self._made(slot, claim, before)
        there = self._evidence.made.get(slot)
        if there is None or not is_same(made, there):
            return Proposed(slot, made, origin)
        if isinstance(made, Segment):
            del self.notes[noted:]  # its own record says what is not known of it
        return Proposed(slot, there, Origin.KEPT)

    def _made(self, slot: int, claim: Claim | None, before: Segment | None) -> tuple[Record, Origin]:
        match self._items[slot]:
            case None:
                self._note(NoteKind.UNKNOWN, self.key(slot), "nothing says what stood here: a claim, a ledger's end, a loss?")
                placeholder = replace(claim, reason=MARK) if claim is not None else self._claim(slot, self._incarnation())
                return placeholder, Origin.PLACEHOLDER
            case Draft() as draft:
                return self._segment(draft, before), Origin.REMADE
            case Hole() as hole:
                for each in (*hole.also, hole):
                    self._note(NoteKind.LOST, self.key(slot), _missing(each), each.start)
                return as_loss(hole, self._given.at), Origin.REMADE
            case LedgerClosed() as closed:
                return closed, Origin.REMADE
            case int() as incarnation:
                return self._claim(slot, incarnation), Origin.REMADE

    def _segment(self, draft: Draft, before: Segment | None) -> Segment:
        key = data_key(self._evidence.topic, draft.object.uuid)
        cuts = next((cuts for cuts in self._candidates if fits(cuts, draft.object.blocks)), None)
        if cuts is None:
            self._note(NoteKind.UNKNOWN, key, "no known block size would have cut it like this", draft.start)
        segment = remade(draft, cuts or self._given.cuts, self._source, before, self._given.root)
        for gap in segment.gaps:
            where = Position(draft.start.incarnation, gap.ledger, gap.first)
            self._note(NoteKind.UNKNOWN, key, f"the kind of the gap {gap.ledger}:{gap.first}..{gap.last}", where)
        said = draft.object.ends.get(draft.end.ledger, -1)
        if not draft.end_known and said > draft.end.entry:
            what = f"whether {draft.end.ledger}:{said} is where its ledger was closed, or the end of a gap"
            self._note(NoteKind.UNKNOWN, key, what, draft.end)
        return segment

    def _claim(self, slot: int, incarnation: int) -> Claim:
        """As other claims of the same incarnation have it."""
        claims, given = self._evidence.claims, self._given
        begin = min((p for p in self._positions() if p.incarnation == incarnation), default=Position(incarnation, 0, 0))
        same = next((c for c in claims if c.incarnation == incarnation and c.reason != MARK), None)
        if same is not None:
            return replace(same, begin=min(begin, same.begin), reason=MARK)
        last = incarnation >= self._incarnation()
        before = next((c.created for c in claims if c.incarnation == incarnation and c.created), None)
        created = given.created if last and given.created is not None else before
        if last and created is None:
            self._note(NoteKind.UNKNOWN, self.key(slot), "when the topic was created")
        application = claims[-1].application if claims else given.application
        return Claim(application, incarnation, created or "", begin, given.at, MARK)

    def _positions(self) -> Iterator[Position]:
        yield from (item.start for item in self._items.values() if isinstance(item, Draft | Hole))
        yield from (r.start for r in self._evidence.records.values() if isinstance(r, Segment | Loss))

    def _incarnation(self) -> int:
        """The last one."""
        claims = (r.incarnation for r in self._evidence.claims)
        return max([*claims, *(p.incarnation for p in self._positions())], default=self._given.incarnation)

    def _note(self, kind: NoteKind, key: str, message: str, position: Position | None = None) -> None:
        self.notes.append(Note(kind, key, message, position))


def is_same(made: Record, there: Record) -> bool:
    """Whether what was made before says the same: when, and what objects do not say, is of no account."""
    if isinstance(made, Segment) and isinstance(there, Segment):
        known = replace(made, cuts=there.cuts, parts=there.parts, source=there.source, driver_properties=there.driver_properties)
        return known == there
    if isinstance(made, Claim | Loss) and type(made) is type(there):
        return replace(made, at=there.at) == there
    return made == there


def _missing(hole: Hole) -> str:
    if hole.doubtful:
        remedy = "" if hole.before is None else f"; --ended {hole.before.end} where you know that nothing was"
        return f"whether anything was at {hole.start}..{hole.end} is in no record and in no object that is left{remedy}"
    return f"{hole.start}..{hole.end} is in no object that is left"


def _cuts(evidence: Evidence, configured: Cuts) -> list[Cuts]:
    """What the segment may have been cut by, most likely first."""
    closed = [s.cuts for s in (*evidence.segments, *evidence.made_segments.values())]
    recorded = Counter([*closed, *(s.cuts for _, s in evidence.open)])
    return list(dict.fromkeys([*(cuts for cuts, _ in recorded.most_common()), configured, Cuts()]))
