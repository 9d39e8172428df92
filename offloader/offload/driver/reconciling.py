"""What became of the topics' sources: ledgers that closed, a pin that was moved, data that is gone, topics that ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from offloader.errors import AbsentError, JournalUnavailableError, OffloadError, OvertakenError
from offloader.metadata.state import CatalogHead, Claim, LedgerClosed, TopicState
from offloader.model import Loss
from offloader.offload.core import evidence
from offloader.offload.core.evidence import Being
from offloader.offload.driver import acknowledging, incarnations, losses
from offloader.offload.driver.context import Context
from offloader.offload.driver.foreseen import only_foreseen
from offloader.offload.driver.inquiries import inquire, pursue
from offloader.offload.driver.polling import closed_ledger
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.sealing import Sealing
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

TROUBLE_MS = 2_000


def could_not_look(topic: Topic, error: OffloadError) -> None:
    """A look at the topic failed."""
    if isinstance(error, AbsentError):
        inquire(topic)
    elif str(error) != topic.unseen:
        topic.unseen = str(error)
        log.warning("cannot look at topic=%s: %s", topic.name, error, extra={"see": "topic-silent"})


def check_all(context: Context, roster: TopicRegistry, topics: Iterable[Topic], sealing: Sealing) -> None:
    """Bring these topics' catalogs up to what Pulsar says. One topic's trouble is its own."""
    pursue(context, roster.topics.values())
    for topic in topics:
        if context.busy(topic):
            continue
        if topic.missing:
            roster.take_in_anew(topic)
            continue
        if topic.inquiry is not None:
            continue
        try:
            with only_foreseen():
                if topic.trouble:
                    _have_reloaded(context, topic)
                elif topic.gone:
                    _end(context, roster, sealing, topic)
                else:
                    _check(context, topic)
        except OffloadError as error:
            if isinstance(error, OvertakenError | JournalUnavailableError):
                raise  # every other topic's, too
            in_trouble(context, topic, error)


def in_trouble(context: Context, topic: Topic, error: OffloadError) -> None:
    """Nothing is decided about the topic until its catalog was loaded anew, a little later."""
    log.warning("loading the catalog anew topic=%s: %s", topic.name, error, extra={"see": "catalog-reloaded"})
    topic.trouble, topic.trouble_until = str(error), context.clock_ms() + TROUBLE_MS


def _have_reloaded(context: Context, topic: Topic) -> None:
    """Have the catalog of a topic in trouble loaded anew, a little later: an answer that was lost may be in it."""
    if context.clock_ms() >= topic.trouble_until:
        call = partial(context.catalogs.head, topic.name)
        context.work.post(WorkKind.CATALOG, topic.name, call, partial(_reloaded, context, topic))


def _reloaded(context: Context, topic: Topic, answer: Future[CatalogHead]) -> None:
    try:
        topic.catalog = answer.result()
    except OffloadError as error:
        in_trouble(context, topic, error)
    else:
        topic.trouble = ""


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
    call = partial(context.catalogs.append, topic.catalog, record)
    context.work.post(WorkKind.CATALOG, topic.name, call, partial(_recorded, context, topic, record))


def _recorded(context: Context, topic: Topic, record: Claim | Loss | LedgerClosed, answer: Future[CatalogHead]) -> None:
    try:
        topic.catalog = answer.result()
    except OffloadError as error:
        in_trouble(context, topic, error)
        return
    if isinstance(record, Loss):
        losses.recorded(context, topic, record)


def _end(context: Context, roster: TopicRegistry, sealing: Sealing, topic: Topic) -> None:
    """One step of a topic whose source is gone towards its end."""
    now, state = context.clock_ms(), context.state(topic.name)
    waits = state.failure is not None and now < state.failure.retry_at
    if waits and state.open is not None and state.open.sealed:
        return
    state = incarnations.end_old(context, topic, state, topic.gone)
    context.record(state)
    if state.open is not None:
        sealing.start(topic, state)
        return
    loss = incarnations.lost_tail(topic, topic.gone, now)
    if loss is not None:
        _have_recorded(context, topic, loss)
    elif topic.gone == Being.DELETED:
        if not state.abandoned:  # else the journal would forget an upload that nobody has ended yet
            roster.forget(topic)
    else:
        context.record(TopicState(topic.name, abandoned=state.abandoned, releasing=state.releasing))
        roster.renew(topic)
