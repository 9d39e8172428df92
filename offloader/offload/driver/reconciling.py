"""What became of the topics' sources: ledgers that closed, a pin that was moved, data that is gone, topics that
ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from offloader.errors import AbsentError, JournalUnavailableError, OffloadError, OvertakenError
from offloader.metadata.state import Claim, LedgerClosed, OpenTopic, TopicState
from offloader.model import Loss
from offloader.offload.core import evidence
from offloader.offload.core.evidence import Being
from offloader.offload.driver import acknowledging, committing, incarnations, losses, observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.foreseen import only_foreseen
from offloader.offload.driver.inquiries import inquire, pursue
from offloader.offload.driver.polling import closed_ledger
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.sealing import Sealing
from offloader.offload.driver.topic import Topic

log = logging.getLogger(__name__)


def could_not_look(topic: Topic, error: OffloadError) -> None:
    """A look at the topic failed."""
    if isinstance(error, AbsentError):
        inquire(topic)
    elif str(error) != topic.poll.error:
        observed.explain(topic, str(error))
        log.warning("cannot look at topic=%s: %s", topic.name, error, extra={"see": "topic-silent"})


def check_all(context: Context, registry: TopicRegistry, topics: Iterable[Topic], sealing: Sealing) -> None:
    """Bring these topics' catalogs up to what Pulsar says. One topic's trouble is its own."""
    pursue(context, registry.topics.values())
    for topic in topics:
        if context.busy(topic):
            continue
        if topic.missing:
            registry.take_in_anew(topic)
            continue
        if topic.inquiry is not None:
            continue
        try:
            with only_foreseen():
                if topic.committed.catalog_error:
                    committing.have_reloaded(context, topic)
                elif topic.gone:
                    _end(context, registry, sealing, topic)
                else:
                    _check(context, topic)
        except OffloadError as error:
            if isinstance(error, OvertakenError | JournalUnavailableError):
                raise  # every other topic's, too
            committing.in_doubt(context, topic, error)


def _check(context: Context, topic: Topic) -> None:
    state = context.state(topic.name)
    if state.open is not None and state.open.sealed is not None:
        return  # the sealer appends to this catalog
    acknowledging.check_pin(context, topic)
    closed = closed_ledger(topic)
    if closed is not None:
        _have_recorded(context, topic, closed)
        return
    state, loss = losses.handle(context, topic, state)
    context.record(state)
    if loss is not None:
        _have_recorded(context, topic, loss)
    elif state.open is None and state.lost_after is None:
        _mind_another_pin(context, topic)


def _mind_another_pin(context: Context, topic: Topic) -> None:
    """The pin was made anew before anything was lost: from here on that one keeps the topic."""
    claim, token = topic.catalog.claim, topic.info.token
    if claim is None or token is None or not evidence.remade(topic.catalog, topic.listed):
        return
    log.warning(
        "the subscription of topic=%s was deleted and made anew; nothing was lost",
        topic.name,
        extra={"see": "subscription-remade"},
    )
    renewed = replace(claim, token=token, at=context.clock_ms(), reason="the subscription was made anew")
    _have_recorded(context, topic, renewed)


def _have_recorded(context: Context, topic: Topic, record: Claim | Loss | LedgerClosed) -> None:
    """Nothing else is decided about the topic before its catalog has this."""
    then = partial(losses.recorded, context, topic, record) if isinstance(record, Loss) else None
    committing.have_recorded(context, topic, record, then)


def _end(context: Context, registry: TopicRegistry, sealing: Sealing, topic: Topic) -> None:
    """One step of a topic whose source is gone towards its end."""
    now, state = context.clock_ms(), context.state(topic.name)
    waits = state.failure is not None and now < state.failure.retry_at
    if waits and state.open is not None and state.open.sealed:
        return
    state = incarnations.end_old(context, topic, state, topic.gone)
    context.record(state)
    if isinstance(state, OpenTopic):
        sealing.start(topic, state)
        return
    loss = incarnations.lost_tail(topic, topic.gone, now)
    if loss is not None:
        _have_recorded(context, topic, loss)
    elif topic.gone == Being.DELETED:
        if not state.abandoned:  # else the journal would forget an upload that nobody has ended yet
            registry.forget(topic)
    else:
        context.record(TopicState(topic.name, abandoned=state.abandoned, releasing=state.releasing))
        registry.renew(topic)
