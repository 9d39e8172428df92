"""The pin follows the catalog: acknowledged only after the commit, never past it, and checked against it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from offloader.bridge.core.schedule import limit_of, not_bridged
from offloader.errors import OffloadError
from offloader.model import Position, TopicName
from offloader.offload.core.evidence import pin_moved, pin_target
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import Attempt, WorkKind

log = logging.getLogger(__name__)


def acknowledge_all(context: Context, topics: Iterable[Topic]) -> None:
    """Have acknowledged what is committed of each topic, except where the last poll failed."""
    now = context.clock_ms()
    for topic in topics:
        target = _target(topic)
        if target is None and topic.pin.error:  # it was done, though its receipt never came
            topic.pin = replace(topic.pin, error="")
        if target is not None and topic.readable and not topic.poll.error and now >= topic.pin.retry.again_at:
            topic.pin = replace(topic.pin, ours=max(topic.pin.ours or target, target))
            attempt = Attempt()
            call = partial(_acknowledge, context, topic.name, target, attempt)
            then = partial(_confirmed, context, attempt, topic, target)
            context.work.post(WorkKind.ACKNOWLEDGE, topic.name, call, then)


def acknowledged(topic: Topic) -> bool:
    """Whether the pin is where it may be: see `evidence.pin_target`."""
    return _target(topic) is None


def _target(topic: Topic) -> Position | None:
    acknowledged = topic.observed.acknowledged
    if topic.bridge_wanted and topic.bridge.head is None:
        return None  # what brokers can read is not known yet
    target = pin_target(topic.catalog, limit_of(topic.bridge_view) if topic.bridge_wanted else None)
    if target is None or (acknowledged is not None and target <= acknowledged):
        return None
    return None if acknowledged is None and target <= topic.mark_delete else target


def _acknowledge(context: Context, name: TopicName, target: Position, attempt: Attempt) -> None:
    """Not in the driver's thread."""
    attempt.began = context.clock_ms()
    context.pins.acknowledge(name, target)


def _confirmed(context: Context, attempt: Attempt, topic: Topic, target: Position, error: OffloadError | None) -> None:
    if error is not None:
        retry = topic.pin.retry.failed(attempt.began, context.clock_ms())
        if str(error) != topic.pin.error:
            log.warning(
                "cannot acknowledge topic=%s position=%s yet: %s",
                topic.name, target, error, extra={"see": "not-acknowledged"},
            )  # fmt: skip
        topic.pin = replace(topic.pin, retry=retry, error=str(error))
        return
    topic.pin = replace(topic.pin, retry=topic.pin.retry.succeeded(), error="")
    observed.confirmed(topic, target)


def check_pin(context: Context, topic: Topic) -> None:
    """An alarm where the mark-delete is past what we have acknowledged: someone or something else moved it."""
    moved = topic.catalog.claim is not None and pin_moved(topic.catalog, topic.listed)
    alarm = (
        f"{topic.name}: the subscription stands at {topic.mark_delete}, past what was acknowledged of "
        f"{topic.catalog.accounted}: message TTL, a backlog quota with consumer_backlog_eviction, or somebody moved "
        "it; remove that policy, data may be lost"
    )
    if moved and topic.pin.alarm != alarm:
        log.error("%s", alarm, extra={"see": "pin-moved"})
        context.metrics.pin_moved(topic.name)
    topic.pin = replace(topic.pin, alarm=alarm if moved else "")
    _check_bridge(context, topic)


def _check_bridge(context: Context, topic: Topic) -> None:
    """An alarm where it is past what brokers read from objects, and nobody of us has moved it there: Pulsar may delete
    ledgers that only the archive has then. The archive misses nothing."""
    view, mark, ours = topic.bridge_view, topic.mark_delete, topic.pin.ours
    if ours is not None and ours.incarnation != topic.incarnation:
        ours = None
    if not view.wanted or ours is None:  # what went on before brokers were to read it is no news
        topic.pin = replace(topic.pin, ours=max(ours or mark, mark), past_bridge="")
        return
    limit = limit_of(view)
    if limit is None or topic.bridge.head is None:
        return
    past = mark > max(limit, ours)
    if past and mark.entry < 0:  # brokers step over the ends of ledgers by themselves
        first = next(not_bridged(view), None)
        past = first is not None and mark.ledger > first.ledger
    alarm = (
        f"{topic.name}: the subscription stands at {mark}, and brokers read objects up to {limit} only: message TTL, a "
        "backlog quota with consumer_backlog_eviction, or somebody moved it; Pulsar may delete what is between, which "
        "the archive alone has then"
    )
    if past and topic.pin.past_bridge != alarm:
        log.error("%s", alarm, extra={"see": "pin-past-bridge"})
        context.metrics.bridge_failed("pin")
    topic.pin = replace(topic.pin, past_bridge=alarm if past else "")
