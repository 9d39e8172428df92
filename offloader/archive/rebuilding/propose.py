"""From what is left of a topic to the catalog that it should have. Pure: the same evidence, the same proposal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from offloader.archive.rebuilding.choose import Draft, choose
from offloader.archive.rebuilding.found import Evidence, Given, Note, NoteKind
from offloader.archive.rebuilding.holes import Hole, closings, settled
from offloader.archive.rebuilding.remake import fits, remade
from offloader.archive.rebuilding.sections import as_loss, sections, shared_out, wanted
from offloader.metadata.layout import catalog_folder, data_key, slot_name
from offloader.metadata.state import Claim, Record, TopicCatalog
from offloader.model import Cuts, Loss, Position, Segment, Source

REASON = "catalog rebuild"


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
    closed = closings(evidence, drafts)
    builder = _Builder(evidence, given)
    notes = [*evidence.notes, *choice.notes]
    found = list(sections(evidence))
    for section, share in zip(found, shared_out(found, drafts), strict=True):
        filled = wanted(section, share, evidence.topic, closed)
        notes += filled.notes
        builder.fill(section.slots, filled.items, endless=section.endless)
    notes += [Note(NoteKind.DAMAGED, builder.key(slot), why) for slot, why in sorted(evidence.damaged.items())]
    records = tuple(builder.records())
    return Proposal(evidence, records, (*notes, *builder.notes))


class _Builder:
    """Puts records into slots, then makes them in order: a segment names the one before it."""

    def __init__(self, evidence: Evidence, given: Given) -> None:
        self.notes: list[Note] = []
        self._evidence = evidence
        self._given = given
        self._items: dict[int, int | Draft | Hole | None] = {}
        self._candidates = _cuts(evidence, given.cuts)
        sources = Counter(s.source for s in evidence.segments)
        self._source = sources.most_common(1)[0][0] if sources else Source.BROKER

    def key(self, slot: int) -> str:
        """Where a record lies."""
        return catalog_folder(self._evidence.topic) + slot_name(slot)

    def fill(self, slots: list[int], items: tuple[int | Draft | Hole, ...], *, endless: bool) -> None:
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
        match self._items[slot]:
            case None:
                self._note(NoteKind.UNKNOWN, self.key(slot), "nothing says what stood here: a claim, a ledger's end, a loss?")
                placeholder = replace(claim, reason=REASON) if claim is not None else self._claim(slot, self._incarnation())
                return Proposed(slot, placeholder, Origin.PLACEHOLDER)
            case Draft() as draft:
                return Proposed(slot, self._segment(draft, before), Origin.REMADE)
            case Hole() as hole:
                self._note(NoteKind.LOST, self.key(slot), f"{hole.first}..{hole.last} is in no object that is left", hole.first)
                return Proposed(slot, as_loss(hole, self._given.at), Origin.REMADE)
            case int() as incarnation:
                return Proposed(slot, self._claim(slot, incarnation), Origin.REMADE)

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
        """As later claims of the same incarnation have it."""
        claims = [r for _, r in sorted(self._evidence.records.items()) if isinstance(r, Claim)]
        begins = [p for p in self._positions() if p.incarnation == incarnation]
        begin = min(begins, default=Position(incarnation, 0, 0))
        same = next((c for c in claims if c.incarnation == incarnation), None)
        if same is not None:
            return replace(same, begin=min(begin, same.begin), reason=REASON)
        last = incarnation >= self._incarnation()
        if last and self._given.created is None:
            self._note(NoteKind.UNKNOWN, self.key(slot), "when the topic was created")
        created = self._given.created or "" if last else ""
        application = claims[-1].application if claims else self._given.application
        return Claim(application, incarnation, created, begin, self._given.at, REASON)

    def _positions(self) -> Iterator[Position]:
        yield from (item.start for item in self._items.values() if isinstance(item, Draft))
        yield from (r.start for r in self._evidence.records.values() if isinstance(r, Segment | Loss))

    def _incarnation(self) -> int:
        """The last one."""
        claims = (r.incarnation for r in self._evidence.records.values() if isinstance(r, Claim))
        return max([*claims, *(p.incarnation for p in self._positions())], default=self._given.incarnation)

    def _note(self, kind: NoteKind, key: str, message: str, position: Position | None = None) -> None:
        self.notes.append(Note(kind, key, message, position))


def _cuts(evidence: Evidence, configured: Cuts) -> list[Cuts]:
    """What the segment may have been cut by, most likely first."""
    recorded = Counter([s.cuts for s in evidence.segments] + [s.cuts for _, s in evidence.open])
    return list(dict.fromkeys([*(cuts for cuts, _ in recorded.most_common()), configured, Cuts()]))
