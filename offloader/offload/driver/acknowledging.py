"""The pin follows the catalog: acknowledged only after the commit, never past it, and checked against it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from offloader.errors import OffloadError
from offloader.model import Position, TopicName
from offloader.offload.core.changes import TopicAgenda
from offloader.offload.core.evidence import pin_moved, pin_target
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import Attempt, WorkKind

log = logging.getLogger(__name__)


def acknowledge_all(context: Context, agenda: TopicAgenda, topics: Mapping[TopicName, Topic]) -> None:
    """Have acknowledged what is committed of each topic, except where the last poll failed."""
    now = context.clock_ms()
    for topic in agenda.take(topics, now):
        target = _target(context, topic)
        if target is None:
            agenda.rest(topic.name)
            if topic.pin.error:  # it was done, though its receipt never came
                topic.pin = replace(topic.pin, error="")
        elif topic.readable and not topic.poll.error and now >= topic.pin.retry.again_at:
            topic.pin = replace(topic.pin, ours=max(topic.pin.ours or target, target))
            attempt = Attempt()
            call = partial(_acknowledge, context, topic.name, target, attempt)
            then = partial(_confirmed, context, attempt, topic, target)
            context.work.post(WorkKind.ACKNOWLEDGE, topic.name, call, then)


def acknowledged(context: Context, topic: Topic) -> bool:
    """Whether the pin is where it may be: see `evidence.pin_target`."""
    return _target(context, topic) is None


def _target(context: Context, topic: Topic) -> Position | None:
    acknowledged = topic.observed.acknowledged
    limits = [limit for feature in context.features if (limit := feature.limit(topic)) is not None]
    target = pin_target(topic.catalog, min(limits, default=None))
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
    mark, ours = topic.mark_delete, topic.pin.ours
    if ours is not None and ours.incarnation != topic.incarnation:
        ours = None
    if ours is None or all(feature.limit(topic) is None for feature in context.features):
        topic.pin = replace(topic.pin, ours=max(ours or mark, mark))  # where it was before it was held back is no news
    for feature in context.features:
        feature.seen(topic)
