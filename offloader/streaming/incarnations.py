"""Topics that end: terminated, deleted, deleted and created again. What was uploaded is sealed, what was not is recorded as lost."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.metadata.state import TopicState
from offloader.model import LedgerList, Loss, Position, RollReason
from offloader.streaming import segments
from offloader.streaming.context import Context
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)


def end_old(context: Context, topic: Topic, state: TopicState, reason: str) -> TopicState:
    """The next state of a topic whose source is gone: sealing at the last uploaded part, or without the segment that had none."""
    if state.open is None or state.open.sealed is not None:
        return state
    covered = state.open.covered
    if covered is None:
        log.warning("segment dropped topic=%s segment=%s: %s", topic.name, state.open.uuid, reason)
        return replace(segments.dropped(state, reason), failure=None, requests=())
    log.warning("sealing at the last uploaded entry topic=%s end=%s: %s", topic.name, covered, reason)
    state = segments.closing(state, covered, RollReason.DELETED)
    return segments.complete(state, (), LedgerList(()), context.clock_ms())


def record_lost_tail(context: Context, topic: Topic, reason: str) -> None:
    """Record what the ended incarnation had beyond the catalog's end, up to the last position that was ever seen."""
    catalog, last = topic.catalog, topic.last_seen
    if catalog.claim is None or last is None:
        return
    end = catalog.end
    first = catalog.claim.begin if end is None else Position(end.incarnation, end.ledger, end.entry + 1)
    if last < first:
        return
    loss = Loss(first, last, reason, "nobody: nothing is left to wait for", context.clock_ms())
    log.error("loss recorded topic=%s from=%s to=%s: %s", topic.name, first, last, reason)
    topic.catalog = context.catalogs.append(catalog, loss, token=context.new_uuid())
    context.metrics.loss(topic.name)
