"""Brings catalogs up to what Pulsar says: closed ledgers, moved pins, lost data, topics that ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from offloader.errors import JournalUnavailableError, OffloadError, OvertakenError
from offloader.metadata.state import LedgerClosed, OpenTopic, TopicState
from offloader.model import LedgerList, Loss, RollReason, TopicName
from offloader.offload.core import evidence, history, segments
from offloader.offload.core.evidence import Being
from offloader.offload.core.topic import Topic
from offloader.offload.driver import acknowledging, committing, losses
from offloader.offload.driver.context import Context
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.sealing import Sealing
from offloader.offload.driver.work import only_foreseen

log = logging.getLogger(__name__)


def check_all(context: Context, registry: TopicRegistry, topics: Iterable[Topic], sealing: Sealing) -> set[TopicName]:
    """Bring these topics' catalogs up to what Pulsar says. One topic's trouble is its own. Returns the topics that were
    looked at and have nothing to be recorded: where that fails, it is tried again the next time."""
    as_recorded: set[TopicName] = set()
    looked_at: list[Topic] = []
    for topic in topics:
        if context.busy(topic):
            continue
        if topic.inquiry is not None and topic.inquiry.found is Being.SAME:
            registry.drop(topic.name)  # it was held only to find out: now it is taken in anew
            continue
        if topic.in_question:
            continue
        looked_at.append(topic)
        try:
            with only_foreseen:
                if topic.committed.catalog_error:
                    committing.have_reloaded(context, topic)
                elif topic.gone:
                    _end(context, registry, sealing, topic, topic.gone)
                elif not _check(context, topic):
                    as_recorded.add(topic.name)
        except OffloadError as error:
            if isinstance(error, OvertakenError | JournalUnavailableError):
                raise  # every other topic's, too
            committing.in_doubt(context, topic, error)
    states = [(context.state(topic.name), topic.committed) for topic in looked_at if not context.busy(topic)]
    after = [(state, committing.remembered(state, committed)) for state, committed in states]
    context.journal.record([new for old, new in after if new != old])
    return as_recorded


def _check(context: Context, topic: Topic) -> bool:
    """Whether its catalog is to have another record."""
    state = context.state(topic.name)
    if state.open is not None and state.open.sealed is not None:
        return False  # the sealer appends to this catalog
    acknowledging.check_pin(context, topic)
    closed = _closed_ledger(topic)
    if closed is not None:
        committing.have_recorded(context, topic, closed)
        return True
    state, loss = losses.handle(context, topic, state)
    context.record(state)
    if loss is not None:
        _have_lost(context, topic, loss)
        return True
    return state.open is None and state.lost_after is None and _mind_another_pin(context, topic)


def _closed_ledger(topic: Topic) -> LedgerClosed | None:
    """How the ledger of the catalog's end was closed, and what follows it. Recorded while Pulsar lists both: wherever
    the pin is moved later, what follows is known as long as that ledger is there."""
    end, ledgers, holds = topic.catalog.end, topic.info.ledgers, topic.rules.pin_holds_last_entry
    if end is None or end.entry < 0 or ledgers.closed_with(end.ledger) != end.entry:
        return None
    following, closing = ledgers.following(end.ledger), topic.catalog.closing
    gives_up_more = closing is not None and closing.followed_by is not None and not holds
    if following is None or (closing is not None and not gives_up_more):
        return None
    return LedgerClosed(*end, followed_by=following if holds else None)


def _mind_another_pin(context: Context, topic: Topic) -> bool:
    """The pin was made anew before anything was lost: from here on that one keeps the topic."""
    claim, token = topic.catalog.claim, topic.info.token
    if claim is None or token is None or not evidence.remade(topic.catalog, topic.listed):
        return False
    log.warning(
        "the subscription of topic=%s was deleted and made anew; nothing was lost",
        topic.name,
        extra={"see": "subscription-remade"},
    )
    renewed = replace(claim, token=token, at=context.clock_ms(), reason="the subscription was made anew")
    committing.have_recorded(context, topic, renewed)
    return True


def _have_lost(context: Context, topic: Topic, loss: Loss) -> None:
    committing.have_recorded(context, topic, loss, partial(losses.recorded, context, topic, loss))


def _end(context: Context, registry: TopicRegistry, sealing: Sealing, topic: Topic, gone: Being) -> None:
    """One step of a topic whose source is gone towards its end."""
    now, state = context.clock_ms(), context.state(topic.name)
    state = _next_to_end(topic, state, gone, now, context)
    waits = state.failure is not None and now < state.failure.retry_at
    if waits and state.open is not None and state.open.sealed:
        return
    state = _end_old(context, topic, state, gone)
    context.record(state)
    if isinstance(state, OpenTopic):
        sealing.start(topic, state)
        return
    loss = _lost_between(topic, state, gone, now) or _lost_tail(topic, gone, now)
    if loss is not None:
        _have_lost(context, topic, loss)
    elif gone is Being.DELETED:
        # Else the journal would forget an upload that nobody has ended yet, and nobody would end a round of its bridge.
        if not state.abandoned and not any(feature.is_open(topic) for feature in context.features):
            registry.forget(topic)
    else:
        kept = TopicState(
            topic.name, abandoned=state.abandoned, releasing=state.releasing, handed_over=state.handed_over
        )
        context.record(kept)
        registry.renew(topic)


def _end_old(context: Context, topic: Topic, state: TopicState, reason: str) -> TopicState:
    """The next state of a topic that is gone: it seals at its last uploaded part, or drops a segment that has none."""
    if not isinstance(state, OpenTopic) or state.open.sealed is not None:
        return state
    name, uuid, covered = topic.name, state.open.uuid, state.open.covered
    if covered is None:
        log.warning("segment dropped topic=%s segment=%s: %s", name, uuid, reason, extra={"see": "segment-dropped"})
        return replace(segments.dropped(state, reason), requests=())
    log.warning(
        "sealing at the last uploaded entry topic=%s end=%s: %s", name, covered, reason, extra={"see": "sealed-early"}
    )
    state = segments.closing(state, covered, RollReason.DELETED)
    return segments.complete(state, (), LedgerList(()), context.clock_ms())


def _next_to_end(topic: Topic, state: TopicState, reason: str, now: int, context: Context) -> TopicState:
    """With what is uploaded of the next segment ahead as the open one, where it follows what is recorded."""
    state = history.without_untouched(state, reason)
    after = topic.catalog.accounted
    state = history.normalise(state, after, LedgerList(()), context.new_uuid, now)
    begin = history.behind(after, topic.info.ledgers)
    if state.open is None and history.next_follows(state, after, begin):
        return history.opened_next(state, topic.catalog.last, now)
    return state


def _lost_between(topic: Topic, state: TopicState, reason: str, now: int) -> Loss | None:
    """What is missing before the next segment of which something is uploaded."""
    after = topic.catalog.accounted
    saved = None if after is None else history.first_saved(state, after)
    if after is None or saved is None:
        return None
    return Loss(after.next_entry, saved.start.previous_entry, reason, "nobody: nothing is left to wait for", now)


def _lost_tail(topic: Topic, reason: str, now: int) -> Loss | None:
    """What the ended incarnation had beyond the catalog's end, up to the last position that was ever seen."""
    after, last = topic.catalog.accounted, topic.observed.last
    if after is None or last is None or last <= after:
        return None
    return Loss(after.next_entry, last, reason, "nobody: nothing is left to wait for", now)
