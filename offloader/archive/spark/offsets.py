"""A stream's offsets: per topic the last position that is read. What comes next, and how much of it.

As JSON: `{"version": "1", "persistent://tenant/namespace/topic": "INCARNATION:LEDGER:ENTRY"}`; topics without one begin
at the begin. Spark keeps them in the query's checkpoint, for later versions, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from offloader.archive.continuity import Span
from offloader.archive.object_range import ObjectRange, PlanItem, size_of
from offloader.archive.reading.overlaps import distinct_spans
from offloader.archive.reading.plan import plan, split
from offloader.archive.selection import Selection
from offloader.archive.snapshot import TopicSnapshot
from offloader.errors import DataLostError, FormatVersionError
from offloader.model import MIB, Position, TopicName

Ends = dict[TopicName, Position]
Offset = dict[str, str]

VERSION = 1
SMALLEST_STEP = MIB
_VERSION = "version"  # no topic's name


@dataclass(frozen=True, slots=True)
class Step:
    """What can be admitted at once: everything up to `end`."""

    end: Position
    size: int


def encode(ends: Mapping[TopicName, Position]) -> Offset:
    """In the order of the names, so that equal offsets are the same text."""
    places = {str(topic): f"{p.incarnation}:{p.ledger}:{p.entry}" for topic, p in sorted(ends.items())}
    return {_VERSION: str(VERSION), **places}


def decode(offset: Mapping[str, str]) -> Ends:
    """The reverse of `encode`. Those of builds before the first release say no version. Raises FormatVersionError."""
    version = offset.get(_VERSION, str(VERSION))
    if version != str(VERSION):
        raise FormatVersionError(
            f"the query's checkpoint has offsets of version {version}, this version reads {VERSION}: run a newer one"
        )
    places = {topic: text for topic, text in offset.items() if topic != _VERSION}
    return {TopicName.parse(topic): Position(*map(int, text.split(":"))) for topic, text in places.items()}


def before(snapshot: TopicSnapshot, position: Position) -> Position | None:
    """The offset after which `position` is the first to be read; None: the topic's beginning."""
    return max(
        (min(each.end, position.previous_entry) for each in distinct_spans(snapshot) if each.start < position),
        default=None,
    )


def check_not_removed(snapshot: TopicSnapshot, after: Position) -> None:
    """Raises DataLostError where the archive no longer holds what was read last: what followed may be gone, too."""
    held = any(each.start <= after <= each.end for each in distinct_spans(snapshot))
    if not held and all(s.predecessor_end != after for s in snapshot.catalog.segments):
        raise DataLostError(
            f"{snapshot.topic}: the archive does not hold {after} any more, so entries after it may have been removed "
            "unread; option failOnDataLoss=false goes on with what is there"
        )


def items_between(
    snapshot: TopicSnapshot, after: Position | None, times: Selection, end: Position | None = None
) -> list[PlanItem]:
    """What follows `after` without a hole, up to `end` and of these `times`. Raises DamagedRecordError."""
    start = None if after is None else after.next_entry
    selected = Selection(start, end, times.published_from, times.published_to)
    ends_there = any(span.end == after for span in distinct_spans(snapshot))
    return plan(snapshot, selected, after if ends_there else None)


def steps(
    snapshot: TopicSnapshot, after: Position | None, times: Selection, step: int, enough: int | None
) -> list[Step]:
    """What is pending of a topic, in steps of about `step` bytes; not much more than `enough` bytes of it."""
    end = _enough(snapshot, after, enough)
    if end is None or (after is not None and end <= after):
        return []
    found: list[Step] = []
    reached, spans = after, distinct_spans(snapshot)
    for group in split(items_between(snapshot, after, times, end), step):
        reached = _done_to(group, reached, spans)
        if reached is not None:
            found.append(Step(reached, size_of(group)))
    if reached is None or reached < end:
        found.append(Step(end, 0))  # nothing there is wanted, but it is done with
    return found


def step_size(budget: int | None, topics: int, max_bytes: int) -> int:
    """How finely the pending bytes are split, so that each topic gets its share of a budget."""
    share = max_bytes if budget is None else budget // max(topics, 1)
    return max(min(share, max_bytes), min(SMALLEST_STEP, max_bytes))


def advance(
    ends: Ends, pending: Mapping[TopicName, Sequence[Step]], budget: int | None, turn: TopicName | None
) -> Ends:
    """The ends after one batch: a step of each topic in turn, beginning after `turn`, until the budget is used up. The
    first step is taken, however large: or nothing would ever move."""
    queues = {topic: iter(pending[topic]) for topic in in_turn(pending, turn)}
    reached, used, taken = dict(ends), 0, False
    while queues:
        for topic in list(queues):
            step = next(queues[topic], None)
            if step is None:
                del queues[topic]
                continue
            if taken and budget is not None and used + step.size > budget:
                return reached
            reached[topic], used, taken = step.end, used + step.size, True
    return reached


def in_turn(topics: Iterable[TopicName], turn: TopicName | None) -> list[TopicName]:
    """The topics in order of their names, those after `turn` first."""
    ordered = sorted(topics)
    return ordered if turn is None else [t for t in ordered if t > turn] + [t for t in ordered if t <= turn]


def last_served(before_: Ends, after: Ends, turn: TopicName | None) -> TopicName | None:
    """Whose turn it was last."""
    served = [t for t in in_turn(after, turn) if after[t] != before_.get(t)]
    return served[-1] if served else turn


def _done_to(items: Sequence[PlanItem], after: Position | None, spans: Sequence[Span]) -> Position | None:
    """The last position that the items account for."""
    for item in items:
        # Where nothing is missing it is a break, which names the positions on both sides, and they are there.
        known = isinstance(item, ObjectRange) or item.deleted
        whole = known or any(s.start <= item.start and item.end <= s.end for s in spans)
        last = item.end if whole else item.start
        after = last if after is None else max(after, last)
    return after


def _enough(snapshot: TopicSnapshot, after: Position | None, enough: int | None) -> Position | None:
    """The end of the first segments or ledgers after a position that hold `enough` bytes."""
    end, found = None, 0
    losses = ((loss.start, loss.end, 0) for loss in snapshot.catalog.losses)
    for start, last, size in sorted((*snapshot.sized_spans, *losses)):
        if after is not None and last <= after:
            continue
        if end is not None and enough is not None and found >= enough:
            break
        end = last if end is None else max(end, last)
        found += size if after is None or start > after else 0  # of one that was begun, nobody knows how much is left
    return end
