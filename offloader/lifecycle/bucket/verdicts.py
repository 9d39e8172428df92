"""Whether an object that nothing names is an orphan for certain, each with its chain of evidence. Pure.

That nothing names it proves nothing by itself: a process that was paused may go on, and commit it. *Passed by* is
proof: a segment is committed only behind the catalog's end, so one that begins before that end never is."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from offloader.lifecycle.bucket.extents import NO_END, Contents, NoExtent, ObjectSpan
from offloader.lifecycle.bucket.names import NamedSpan, ObjectKind, Place, PlacedKey, TopicNames
from offloader.lifecycle.candidates import OrphanVerdict

CERTAIN, SUSPECT = OrphanVerdict.CERTAIN, OrphanVerdict.SUSPECT
OF_SEGMENTS = frozenset({ObjectKind.DATA, ObjectKind.INDEX, ObjectKind.RECORD, ObjectKind.ABANDONED})

_OF_FORMER_CATALOGS = frozenset({ObjectKind.OLD_MANIFEST, ObjectKind.DAMAGED_CATALOG})

_STAY = {
    ObjectKind.OLD_GENERATION: "Its numbers are fences: a writer who was paused must find them taken. It stays.",
    ObjectKind.UNOPENED_GENERATION: "A rebuild is under way, or was interrupted: `offloader catalog rebuild` "
    "finishes what it began. It stays.",
    ObjectKind.OLD_JOURNAL: "The application's next start removes it.",
    ObjectKind.OWNERLESS_CLAIM: "Its application may be about to start.",
    ObjectKind.RESCUED: "A rescue may be under way, or was cut short: another `offloader orphans rescue` of its ledger "
    "ends that, and so does `offloader orphans forget`. It stays.",
}
_GO = {
    ObjectKind.OLD_MANIFEST: "It says in short what records say that are not in force any more.",
    ObjectKind.DAMAGED_CATALOG: "The topic has a catalog in force that can be read as a whole.",
    ObjectKind.DELETED: "Readers are told so, and nobody reads it: it was left over.",
    ObjectKind.PROOF: "A start wrote it to prove the store, and was interrupted.",
    ObjectKind.ENDED_RESCUE: "Numbers of records are taken for ever: nobody can name it any more.",
    ObjectKind.UPLOAD: "Whoever began it would have noted it: nobody can complete it.",
}


@dataclass(frozen=True, slots=True)
class Doubts:
    """What makes every proof worthless. `of_all`: whatever it is; `grace_ms`: what is younger may be about to be named.

    `now_ms`: by the store's clock."""

    now_ms: int
    grace_ms: int
    of_all: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketRuling:
    """`kept`: it is never deleted, whatever its verdict."""

    verdict: OrphanVerdict
    evidence: tuple[str, ...]
    kept: bool = False


def ruling(
    place: PlacedKey, contents: Contents, names: TopicNames | None, modified_ms: int | None, doubts: Doubts
) -> BucketRuling:
    """Of what nothing names. `names`: of its topic's catalog, where it is a topic's."""
    found = _by_kind(place, contents, names)
    if place.by:
        found = BucketRuling(found.verdict, (f"{_said(place)}.", *found.evidence), found.kept)
    else:
        found = BucketRuling(found.verdict, ("No catalog and no journal names it.", *found.evidence), found.kept)
    doubt = (*doubts.of_all, *too_young(modified_ms, doubts))
    return BucketRuling(SUSPECT, (*found.evidence, *doubt), found.kept) if doubt else found


def _said(place: PlacedKey) -> str:
    if place.kind is ObjectKind.ABANDONED:
        return f"A journal says that it must never be completed: {place.by.rstrip('.')}"
    return place.by[:1].upper() + place.by[1:]


def _by_kind(place: PlacedKey, contents: Contents, names: TopicNames | None) -> BucketRuling:
    kind = place.kind
    if kind in _STAY:
        return BucketRuling(SUSPECT, (_STAY[kind],), kept=True)
    if names is not None and names.unreadable and kind is not ObjectKind.UPLOAD:
        return BucketRuling(SUSPECT, (f"What its topic's catalog names is not known: {names.unreadable}.",))
    if names is not None and names.rebuilding and kind is not ObjectKind.UPLOAD:
        why = "A rebuild of its topic's catalog is under way, or was interrupted: it may name it. Finish that first."
        return BucketRuling(SUSPECT, (why,))
    if kind in _OF_FORMER_CATALOGS and names is not None and not all(span.uuid for span in names.spans):
        why = "The catalog in force has losses, and what is here may tell more of them. It stays."
        return BucketRuling(SUSPECT, (why,), kept=True)
    if kind is ObjectKind.DELETED and contents is not NoExtent.BURIED:
        why = "No tombstone stands beside it, which every deletion leaves: it may be the only copy. It stays."
        return BucketRuling(SUSPECT, (why,), kept=True)
    if kind in _GO:
        return BucketRuling(CERTAIN, (_GO[kind],))
    if kind in OF_SEGMENTS and names is not None:
        return _of_segment(contents, names)
    return BucketRuling(SUSPECT, ("Nothing proves whose it is.",))


def _of_segment(contents: Contents, names: TopicNames) -> BucketRuling:
    if contents is NoExtent.JUNK:
        return BucketRuling(CERTAIN, ("It has no bytes that a segment could be made of.",))
    if contents is NoExtent.OF_BROKERS:
        return BucketRuling(
            SUSPECT, ("It is a copy of a ledger that brokers had offloaded, and nothing says of which.",)
        )
    if contents is NoExtent.NEWER:
        return BucketRuling(SUSPECT, ("A newer version wrote it: look with that one.",))
    if not isinstance(contents, ObjectSpan):
        return BucketRuling(SUSPECT, ("The next who says the same finishes this record.",), kept=True)
    return _by_spans(contents, names.spans)


def _by_spans(extent: ObjectSpan, spans: tuple[NamedSpan, ...]) -> BucketRuling:
    at = bisect_right(spans, extent.first, key=lambda span: span.start)
    begins = f"It begins with {_text(extent.first)}"
    if not spans or extent.first > spans[-1].end:
        ends = f"its catalog ends with {_text(spans[-1].end)}" if spans else "its catalog has no segment yet"
        why = f"{begins}, {ends}: a process that was paused may still commit it. The topic's next segment settles that."
        return BucketRuling(SUSPECT, (why,))
    covering = spans[at - 1] if at and extent.first <= spans[at - 1].end else None
    if covering is None:
        return BucketRuling(
            SUSPECT, (f"{begins}, which no segment has: it may be the only copy. It stays.",), kept=True
        )
    lost = _lost(extent, spans[at - 1 :])
    if lost is not None:
        why = (
            f"{begins}, and {_text(lost.start)} to {_text(lost.end)} are recorded as lost: it may have them. It stays."
        )
        return BucketRuling(SUSPECT, (why,), kept=True)
    passed = f"{begins}, which segment {covering.uuid} has: nothing can commit it any more."
    return BucketRuling(CERTAIN, (passed,))


def _lost(extent: ObjectSpan, spans: tuple[NamedSpan, ...]) -> NamedSpan | None:
    """A loss that it may reach into."""
    last = extent.last or (NO_END, NO_END)
    return next((span for span in spans if not span.uuid and span.start <= last), None)


def too_young(modified_ms: int | None, doubts: Doubts) -> tuple[str, ...]:
    """Why it may be about to be named, by its age alone."""
    if modified_ms is None:
        return ("The store does not say when it was written.",)
    age = doubts.now_ms - modified_ms
    if age < 0:
        return ("It was written since this scan began, or the store's clock was set back.",)
    if age < doubts.grace_ms:
        return (f"It was written {age // 1000} s ago: it may be about to be named.",)
    return ()


def _text(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
