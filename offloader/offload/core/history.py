"""The segments of a topic's history as transitions of its journal state: assigned ahead with fixed ends, read at the
same time, opened and committed in order. Pure.

Each of them is treated as if it were the topic's only one (`on_segment`): what holds for an open segment holds for it.
Their order is mended by one function alone (`normalise`), before anything is decided about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from offloader.errors import IntegrityError
from offloader.metadata.state import Abandoned, AssignedAhead, NextStart, OpenTopic, TopicState
from offloader.model import (
    Ending,
    LedgerList,
    OpenSegment,
    Position,
    RollReason,
    SegmentLayout,
    SegmentStatus,
    Source,
)
from offloader.offload.core import segments

PAUSED = "its topic was paused before anything of it was uploaded"

NewUuid = Callable[[], str]


def alone(state: TopicState, ahead: AssignedAhead) -> OpenTopic:
    """The topic as if this were its only segment."""
    return OpenTopic(state.topic, failure=ahead.failure, open=ahead.segment)


def on_segment(state: TopicState, uuid: str, change: Callable[[TopicState], TopicState]) -> TopicState:
    """The topic with one of its segments changed; with the open one's, where none ahead has this uuid."""
    for number, each in enumerate(state.ahead):
        if each.segment.uuid == uuid:
            return _with(state, number, change(alone(state, each)))
    return change(state)


def with_ahead(state: TopicState, number: int, changed: OpenTopic) -> TopicState:
    """The topic after one of those ahead has changed as if it were the only one."""
    return _with(state, number, changed)


def _with(state: TopicState, number: int, changed: TopicState) -> TopicState:
    if not isinstance(changed, OpenTopic):
        raise IntegrityError(f"{state.topic}: a segment ahead has ended before its turn")
    renewed = AssignedAhead(changed.open, changed.failure)
    ahead = (*state.ahead[:number], renewed, *state.ahead[number + 1 :])
    return replace(state, ahead=ahead, abandoned=(*state.abandoned, *changed.abandoned))


def without_unread(state: TopicState) -> TopicState:
    """The topic without its newest segments of which nothing is uploaded yet: they need not be read."""
    while state.ahead and _is_unread(state.ahead[-1].segment):
        segment = state.ahead[-1].segment
        given_up = Abandoned(segment.uuid, segment.upload, PAUSED)
        state = replace(state, ahead=state.ahead[:-1], abandoned=(*state.abandoned, given_up))
    if isinstance(state, OpenTopic) and not state.ahead and _is_unread(state.open):
        return segments.dropped(state, PAUSED)
    return state


def _is_unread(segment: OpenSegment) -> bool:
    """Whether nothing of it is uploaded. The copy of a broker's object has no part before all of it is there."""
    return segment.covered is None and segment.sealed is None and segment.source is not Source.OFFLOADED


def first_saved(state: TopicState, after: Position) -> OpenSegment | None:
    """The first one ahead of which something is uploaded, all of it behind `after`."""
    saved = (each.segment for each in state.ahead if each.segment.parts)
    return next((segment for segment in saved if segment.start > after), None)


def unread(segment: OpenSegment) -> bool:
    """Whether something of it is still to be read."""
    covered, end = segment.covered, segment.closing_end
    return segment.sealed is None and (end is None or covered is None or covered < end)


def fixed(uuid: str, start: NextStart, end: Position, source: Source, cuts: SegmentLayout, now: int) -> AssignedAhead:
    """A new segment with a fixed end."""
    segment = OpenSegment(
        uuid=uuid,
        start=start.position,
        source=source,
        cuts=cuts,
        assigned_at=now,
        status=SegmentStatus.CLOSING,
        closing_end=end,
        roll_reason=RollReason.SIZE,
        former_ledger_last=start.former_ledger_last,
        former_ledger=start.former_ledger,
    )
    return AssignedAhead(segment)


def behind(end: Position | None, ledgers: LedgerList) -> NextStart | None:
    """Where what follows this position starts; None: it is not fixed, or its ledger is not listed any more."""
    position = None if end is None else ledgers.successor(end)
    if end is None or position is None:
        return None
    return NextStart(position) if position.ledger == end.ledger else NextStart(position, end.entry, end.ledger)


def normalise(
    state: TopicState,
    after: Position | None,
    ledgers: LedgerList,
    new_uuid: NewUuid,
    now: int,
    begin: NextStart | None = None,
) -> TopicState:
    """Those ahead in one row without overlap, and without a hole as far as `ledgers` say what is in it. The row begins
    behind the open segment or, where none is open, behind `after`, which is accounted for: at `begin`, if that is
    known. With each batch (`without_holes`) and decision, and before each end of a topic.

    What ends before its turn is given up: the catalog went on without it. What begins too early begins later. A hole
    (a segment was full before its end, or its topic slow) goes to the one behind it or, where something of that may be
    uploaded, to another one in between."""
    if not state.ahead:
        return state
    reached, start = (after, begin) if state.open is None else (state.open.closing_end, None)
    if reached is None:
        return state
    row: list[AssignedAhead] = []
    abandoned = list(state.abandoned)
    for each in state.ahead:
        start = start or behind(reached, ledgers)
        kept, gone = _in_turn(each, reached, start, ledgers, new_uuid, now)
        row += kept
        abandoned += gone
        if kept and kept[-1].segment.closing_end is not None:
            reached, start = kept[-1].segment.closing_end, None
    if tuple(row) == state.ahead:
        return state
    return replace(state, ahead=tuple(row), abandoned=tuple(abandoned))


def without_holes(state: TopicState, ledgers: LedgerList, new_uuid: NewUuid, now: int) -> TopicState:
    """The topic with what its segments have left between them since one was full before its end. Where the row begins
    only a decision says: the catalog may be about to have another record."""
    oldest = state.ahead[:1] if state.open is None else ()
    reached = oldest[0].segment.closing_end if oldest else None
    others = replace(state, ahead=state.ahead[len(oldest) :])
    mended = normalise(others, reached, ledgers, new_uuid, now)
    return replace(mended, ahead=(*oldest, *mended.ahead))


_Row = tuple[tuple[AssignedAhead, ...], tuple[Abandoned, ...]]


def _in_turn(
    each: AssignedAhead,
    reached: Position,
    start: NextStart | None,
    ledgers: LedgerList,
    new_uuid: NewUuid,
    now: int,
) -> _Row:
    """What stands behind `reached` in this one's place, and what is given up. `start`: where that begins; None:
    nobody knows."""
    segment = each.segment
    if _follows(segment, reached, start):
        return (each,), ()
    first = reached.next_entry if start is None else start.position
    end = segment.closing_end
    if end is None or end < first or (start is None and segment.start < first):
        return (), (_given_up(segment),)
    if start is None:
        return (each,), ()
    if segment.start < first:
        return _later(each, start, new_uuid)
    if segment.upload is None:
        return (_begun_at(each, start),), ()
    before = ledgers.predecessor(segment.start)
    if before is None or before < first:
        return (each,), ()  # nobody knows what is between
    return (fixed(new_uuid(), start, before, segment.source, segment.cuts, now), each), ()


def _later(each: AssignedAhead, start: NextStart, new_uuid: NewUuid) -> _Row:
    """From a later start on. A slice may still upload what begins at the former one: then under another uuid."""
    segment = each.segment
    if segment.upload is None:
        return (_begun_at(each, start),), ()
    status = SegmentStatus.CLOSING
    renewed = replace(segment, uuid=new_uuid(), upload=None, parts=(), sealed=None, status=status)
    return (_begun_at(replace(each, segment=renewed), start),), (_given_up(segment),)


def _begun_at(each: AssignedAhead, start: NextStart) -> AssignedAhead:
    return replace(each, segment=start.of(each.segment))


def _follows(segment: OpenSegment, after: Position, begin: NextStart | None) -> bool:
    """Whether it is proven to start right behind `after`: at `begin`, or also when Pulsar lists neither. Where the list
    has something in between, it does not."""
    start = segment.start
    if begin is not None and begin.position <= start:
        return begin.position == start
    if start.incarnation != after.incarnation:
        return False
    if start == after.next_entry:
        return True
    behind_it = segment.former_ledger in (None, after.ledger)  # many ledgers end with an entry of the same number
    return behind_it and start.ledger > after.ledger and start.entry == 0 and segment.former_ledger_last == after.entry


def next_follows(state: TopicState, after: Position | None, begin: NextStart | None) -> bool:
    """Whether the first one ahead is proven to follow `after`, behind which the list begins with `begin`."""
    return bool(state.ahead) and after is not None and _follows(state.ahead[0].segment, after, begin)


def opened_next(state: TopicState, predecessor: Ending | None, now: int) -> OpenTopic:
    """The first one ahead becomes the open one. Sealing writes first from here on: until then nothing says when it was
    offloaded."""
    first = state.ahead[0]
    sealed = first.segment.sealed
    segment = replace(
        first.segment,
        predecessor_uuid=predecessor.uuid if predecessor else "",
        predecessor_end=predecessor.end if predecessor else None,
        sealed=None if sealed is None else replace(sealed, offloaded_at=now),
    )
    return replace(state, ahead=state.ahead[1:], failure=first.failure).opened(segment)


def _given_up(segment: OpenSegment, reason: str = "the catalog went on without it") -> Abandoned:
    return Abandoned(segment.uuid, segment.upload, reason)


def without_untouched(state: TopicState, reason: str) -> TopicState:
    """Nothing can be read any more: those ahead of which nothing is uploaded are given up."""
    gone = [each.segment for each in state.ahead if not each.segment.parts]
    if not gone:
        return state
    kept = tuple(each for each in state.ahead if each.segment.parts)
    return replace(state, ahead=kept, abandoned=(*state.abandoned, *(_given_up(s, reason) for s in gone)))
