"""Puts segments and losses in the order of their links: each names the one before it. Pure, but for the check of a
segment's objects.

It goes back from the last one: what a follower names came before it. Where several overlap that nobody names, the one
counts that is known to be committed, else a segment whose objects are sound, else a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from offloader.model import OpenSegment, Position, Segment
from offloader.operations.rebuild.remains import Remains, Span

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
