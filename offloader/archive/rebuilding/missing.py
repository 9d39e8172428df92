"""What may be missing in a section. Pure."""

from __future__ import annotations

from offloader.archive.rebuilding.choose import Draft
from offloader.archive.rebuilding.holes import After, Before, Certainty, Hole, Known, at_begin, at_end, between
from offloader.archive.rebuilding.sections import Section
from offloader.model import Position


def holes_in(section: Section, drafts: list[Draft], known: Known) -> list[Hole]:
    """What may be missing in a section, before, between and behind its drafts, in order."""
    befores: list[Before | None] = [section.before, *drafts]
    afters: list[After | None] = [*drafts, section.after]
    found: list[Hole] = []
    for number, (before, after) in enumerate(zip(befores, afters, strict=True)):
        reached = section.reached if number == len(drafts) else None
        found += _holes_between(section, before, after, known, reached)
    return found


def _holes_between(
    section: Section, before: Before | None, after: After | None, known: Known, reached: Position | None
) -> list[Hole]:
    begin = section.begin
    if before is not None and begin is not None and before.end.incarnation < begin.incarnation:
        before = None  # what is missing of that incarnation is in the section before the claim
    first = begin if before is None else before.end._replace(entry=before.end.entry + 1)
    until = section.until if after is None else after.start
    if until is None:
        return []
    if first is None and reached is not None and reached.incarnation < until.incarnation:
        first = reached._replace(entry=0)  # at least: the claim is lost, too
    if after is None or (first is not None and first.incarnation < until.incarnation):
        lost = _of_lost_claim(first, after, reached)
        return lost if lost or first is None else at_end(before, first, until, known, reached)
    if before is not None:
        found = between(before, after, known, reached)
        return [h for h in found if h.certainty is not Certainty.LINKED] if section.endless else found
    return _of_lost_claim(None, after, reached) if first is None else at_begin(first, after, reached)


def _of_lost_claim(first: Position | None, after: After | None, reached: Position | None) -> list[Hole]:
    """Where the claim is lost that said where the incarnation of `after` began: all from `first` on, which is of the one before, or at least
    the last ledger before `after`."""
    if after is None or reached is None or reached.incarnation != after.start.incarnation:
        return []
    begin = reached._replace(entry=0) if first is None else first._replace(incarnation=reached.incarnation)
    return at_begin(begin, after, reached)
