"""Which segments a topic's history is cut into: as many as are read at once, and some that wait. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from offloader.metadata.state import OpenTopic
from offloader.model import Lane, OpenSegment, Position, RollReason
from offloader.offload.core import segments
from offloader.offload.core.borders import AIM, BorderSearch, ClosedLedgers, end_of_history
from offloader.offload.core.decisions import TopicView
from offloader.offload.core.history import behind, fixed, unread
from offloader.offload.core.sources import source_of

WAITING = 2  # so many times as many segments ahead as are read at once: some wait for one before them


def assign_history(
    view: TopicView, state: OpenTopic, now: int, new_uuid: Callable[[], str]
) -> tuple[OpenTopic, BorderSearch | None]:
    """Where closed ledgers hold two whole segments or more, those get fixed ends, and are read at the same time."""
    search = _search(view, state)
    if search is None:
        return state, None
    cut = search.cut(view.times)
    state = _assigned_ahead(view, state, cut.ends, now, new_uuid)
    if not cut.wanted:
        return state, None
    return state, replace(search, most=search.most + view.most_at_once)  # so that the next ones are known, too


def _assigned_ahead(
    view: TopicView, state: OpenTopic, ends: Iterable[Position], now: int, new_uuid: Callable[[], str]
) -> OpenTopic:
    """With segments that end at `ends`: the first of these is the open one's, where that has no end yet."""
    for end in ends:
        if state.open.closing_end is None:
            state = segments.closing(state, max(end, state.open.covered or end), RollReason.SIZE)
            continue
        start = behind(state.unfinished[-1].closing_end, view.ledgers)
        if start is None:
            return state
        if end < start.position:  # the open one came further while times were looked up
            continue
        source = source_of(view, start.position, end)
        following = fixed(new_uuid(), start, end, source, view.rules.cuts, now)
        state = replace(state, ahead=(*state.ahead, following))
    return state


def _search(view: TopicView, state: OpenTopic) -> BorderSearch | None:
    """For the borders of more segments; None: there are enough, or there is too little history for one."""
    newest, each = state.unfinished[-1], view.rules.max_size * AIM
    unfixed = newest.closing_end is None  # the open one, which gets an end, too
    free = min(
        view.most_at_once - sum(unread(segment) for segment in state.unfinished),
        WAITING * view.most_at_once - len(state.ahead),
    )
    least = 2 * each if unfixed else each
    slow = view.speed.lane is Lane.SLOW or view.reach is not None
    if free <= 0 or view.most_at_once <= 1 or slow or view.pending_bytes + newest.size < least:
        return None
    limits = (view.last, view.retire_at, before_next_copy(view, newest))
    end = end_of_history(view.ledgers, *(limit for limit in limits if limit is not None))
    # The open one's border does not move while it is read.
    begin = newest.start if newest.closing_end is None else view.ledgers.successor(newest.closing_end)
    if begin is None or end is None or end < begin:
        return None
    closed = ClosedLedgers(view.sums, begin, end)
    return BorderSearch(closed, each, each, free + unfixed, view.span_ms) if closed.size >= least else None


def before_next_copy(view: TopicView, segment: OpenSegment) -> Position | None:
    """The last entry before the next ledger that is to be copied; None: there is none behind what is read."""
    reached = (segment.covered or segment.start).ledger
    following = min((ledger for ledger in view.copies if ledger > reached), default=None)
    return None if following is None else view.ledgers.predecessor(Position(segment.start.incarnation, following, 0))
