"""What became of the topics' sources: ledgers that closed, a pin that was moved, data that is gone, topics that ended."""

from __future__ import annotations

import logging

from offloader.errors import OffloadError, OvertakenError, PinMovedError, TopicNotFoundError
from offloader.metadata.state import TopicState
from offloader.streaming import acknowledging, incarnations, losses
from offloader.streaming.context import Context
from offloader.streaming.looking import DELETED, record_closed_ledger, record_replaced_ledger
from offloader.streaming.roster import Roster
from offloader.streaming.sealing import Sealing
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)

TROUBLE_MS = 2_000


def could_not_look(roster: Roster, topic: Topic, error: OffloadError) -> None:
    """A look at the topic failed."""
    if isinstance(error, TopicNotFoundError):
        roster.perhaps_deleted(topic)
    elif str(error) != topic.unseen:
        topic.unseen = str(error)
        log.warning("cannot look at topic=%s: %s", topic.name, error)


def check_all(context: Context, roster: Roster, sealing: Sealing, failures: set[object]) -> None:
    """Bring every topic's catalog up to what Pulsar says. One topic's trouble is its own."""
    for topic in list(roster.topics.values()):
        if topic.sealing is not None or (topic.name in failures and not topic.gone):
            continue
        try:
            if topic.trouble and not _reloaded(context, topic):
                continue
            if topic.gone:
                _end(context, roster, sealing, topic)
            else:
                _check(context, topic)
        except OvertakenError:
            raise
        except OffloadError as error:
            log.warning("loading the catalog anew topic=%s: %s", topic.name, error)
            topic.trouble, topic.trouble_until = str(error), context.clock_ms() + TROUBLE_MS


def _reloaded(context: Context, topic: Topic) -> bool:
    """Whether the catalog of a topic in trouble could be loaded anew, a little later: an answer that was lost may be in it."""
    if context.clock_ms() < topic.trouble_until:
        return False
    topic.catalog = context.catalogs.load(topic.name)
    topic.trouble = ""
    return True


def _check(context: Context, topic: Topic) -> None:
    state = context.state(topic.name)
    if state.open is not None and state.open.sealed is not None:
        return  # the sealer appends to this catalog
    record_closed_ledger(context, topic)
    try:
        acknowledging.check_pin(topic)
        topic.alarm, topic.kept = "", topic.info.ledgers
    except PinMovedError as error:
        if topic.alarm != str(error):
            log.error("%s", error)
            context.metrics.pin_moved(topic.name)
        topic.alarm = str(error)
        state = losses.behind_moved_pin(topic, state)
    state = losses.handle(context, topic, state)
    context.record(state)
    if state.open is None and state.lost_after is None:
        record_replaced_ledger(context, topic)


def _end(context: Context, roster: Roster, sealing: Sealing, topic: Topic) -> None:
    """One step of a topic whose source is gone towards its end."""
    state = context.state(topic.name)
    waits = state.failure is not None and context.clock_ms() < state.failure.retry_at
    if waits and state.open is not None and state.open.sealed:
        return
    state = incarnations.end_old(context, topic, state, topic.gone)
    context.record(state)
    if state.open is not None:
        sealing.start(topic, state)
        return
    incarnations.record_lost_tail(context, topic, topic.gone)
    if topic.gone == DELETED:
        if not state.abandoned:  # else the journal would forget an upload that nobody has ended yet
            roster.forget(topic)
    else:
        context.record(TopicState(topic.name, abandoned=state.abandoned, releasing=state.releasing))
        roster.renew(topic)
