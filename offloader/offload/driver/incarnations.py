"""Topics that end: terminated, deleted, deleted and created again. What was uploaded is sealed, what was not is
recorded as lost."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.metadata.state import OpenTopic, TopicState
from offloader.model import LedgerList, Loss, RollReason
from offloader.offload.core import segments
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic

log = logging.getLogger(__name__)


def end_old(context: Context, topic: Topic, state: TopicState, reason: str) -> TopicState:
    """The next state of a topic whose source is gone: sealing at the last uploaded part, or without the segment that
    had none."""
    if not isinstance(state, OpenTopic) or state.open.sealed is not None:
        return state
    covered = state.open.covered
    if covered is None:
        log.warning(
            "segment dropped topic=%s segment=%s: %s",
            topic.name,
            state.open.uuid,
            reason,
            extra={"see": "segment-dropped"},
        )
        return replace(segments.dropped(state, reason), failure=None, requests=())
    log.warning(
        "sealing at the last uploaded entry topic=%s end=%s: %s",
        topic.name,
        covered,
        reason,
        extra={"see": "sealed-early"},
    )
    state = segments.closing(state, covered, RollReason.DELETED)
    return segments.complete(state, (), LedgerList(()), context.clock_ms())


def lost_tail(topic: Topic, reason: str, now: int) -> Loss | None:
    """What the ended incarnation had beyond the catalog's end, up to the last position that was ever seen; to be
    recorded."""
    after, last = topic.catalog.accounted, topic.observed.last
    if after is None or last is None or last <= after:
        return None
    return Loss(after.next_entry, last, reason, "nobody: nothing is left to wait for", now)
