"""Segments that somebody wants closed by hand: what the journal keeps of that, and when it is done."""

from __future__ import annotations

from dataclasses import replace

from offloader.metadata.requests import Request, RequestOutcome
from offloader.metadata.state import CloseRequest, TopicState
from offloader.model import Position
from offloader.offload.core import segments
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic


def record(context: Context, topic: Topic, request_id: str, position: Position) -> None:
    """Have the segment closed once it reaches there. A former process may have recorded that."""
    state = context.state(topic.name)
    if not any(r.id == request_id for r in state.requests):
        close = CloseRequest(request_id, position._replace(incarnation=topic.incarnation))
        context.record(replace(state, requests=(*state.requests, close)))


def closed(
    context: Context, topic: Topic, request_id: str, request: Request, seen_at: int, now: int
) -> RequestOutcome | None:
    """Once the catalog has what was asked for. The journal keeps a request no longer than that."""
    state, end = _only_what_is_readable(context, topic, seen_at), topic.catalog.end
    if not any(r.id == request_id for r in state.requests):  # taken out with another one, or nobody heard that it was
        return RequestOutcome(True, _where(topic, end), now)
    state, done = segments.satisfied(state, end)
    if any(r.id == request_id for r in done):
        context.record(state)
        return RequestOutcome(True, _where(topic, end), now)
    if not _nothing_to_do(request, topic, state):
        return None
    context.record(replace(state, requests=tuple(r for r in state.requests if r.id != request_id)))
    return RequestOutcome(True, "Nothing to offload", now)


def _only_what_is_readable(context: Context, topic: Topic, seen_at: int) -> TopicState:
    """A command reads the ledger's end, which may be a marker or an aborted entry: only bookies deliver that. What was
    known of the topic's end before the request was seen here proves nothing."""
    state, last = context.state(topic.name), topic.last
    if last is None or all(r.end <= last for r in state.requests) or not observed.seen_after(topic, seen_at):
        return state
    state = replace(state, requests=tuple(replace(r, end=min(r.end, last)) for r in state.requests))
    context.record(state)
    return state


def _nothing_to_do(request: Request, topic: Topic, state: TopicState) -> bool:
    """A close of a topic without entries since the last segment is satisfied at once."""
    begin, wanted = topic.begin(), request.position
    if wanted is None or state.unfinished or begin is None:
        return False
    return wanted._replace(incarnation=begin.incarnation) < begin


def _where(topic: Topic, end: Position | None) -> str:
    newest = topic.catalog.newest
    if newest is None:
        return "Nothing to offload"
    return f"segment {newest.uuid} {newest.start} to {newest.end}" if newest.end == end else f"offloaded up to {end}"
