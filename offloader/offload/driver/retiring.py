"""Topics that are offloaded up to an end and no further: paused, caught up with, or released and let go of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from offloader.config.levels import TopicPolicy
from offloader.errors import AnotherClusterError, OffloadError
from offloader.metadata.state import CatalogHead, Releasing, TopicState
from offloader.model import Position, RollReason
from offloader.offload.core.facets import Retirement
from offloader.offload.core.history import without_unread
from offloader.offload.core.topic import Topic
from offloader.offload.driver import committing, observed
from offloader.offload.driver.acknowledging import acknowledged
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import Attempt, WorkKind

log = logging.getLogger(__name__)


Released = Callable[[Topic], None]
"""Hears of a topic that was let go of."""


def follow(context: Context, topic: Topic, policy: TopicPolicy) -> None:
    """A policy may have changed. A release goes on whatever policies say; without one a topic that they do not enable
    is paused."""
    state = context.state(topic.name)
    if state.releasing is Releasing.REQUEST:
        if topic.retirement is None:
            _retire(context, topic, RollReason.RELEASED)
        return
    if topic.release.done or topic.release.under_way:
        return
    if policy.enabled or state.handed_over:
        context.record(replace(state, releasing=None, paused_at=0))
        if topic.paused:
            topic.retirement = None
            log.info("resume topic=%s", topic.name)
    elif not topic.paused:
        _pause(context, topic, state)


def _pause(context: Context, topic: Topic, state: TopicState) -> None:
    """Read no more of the topic, and commit what is uploaded of it. Its subscription stays."""
    paused = without_unread(replace(state, releasing=None, paused_at=state.paused_at or context.clock_ms()))
    ends = [end for segment in paused.unfinished if (end := segment.closing_end or segment.covered) is not None]
    end = max(ends, default=topic.catalog.accounted or Position(topic.incarnation, -1, -1))
    context.record(paused)
    topic.retirement = Retirement(RollReason.DISABLED, end, context.clock_ms())
    log.warning(
        "paused topic=%s: no policy enables it; its subscription keeps in BookKeeper what is written from now on",
        topic.name,
        extra={"see": "paused"},
    )


def stop_at_present_end(topic: Topic) -> None:
    """Offload what the topic has now, and no more."""
    if topic.retirement is None:
        topic.retirement = Retirement(RollReason.CAUGHT_UP, _end_of(topic), 0)


def requested(context: Context, topic: Topic) -> None:
    """The release of a paused topic was requested, or of one that was to go elsewhere: up to its present end, and even
    where it is enabled again."""
    too_late = topic.release.under_way or topic.release.done
    former = None if topic.retirement is None else topic.retirement.reason
    if former in (RollReason.DISABLED, RollReason.PASSED_ON) and not too_late:
        _retire(context, topic, RollReason.RELEASED)


def may_be_taken_back(context: Context, topic: Topic) -> bool:
    """Whether nobody lets go of the topic, or only because it was handed over and its subscription may stay yet."""
    state = context.state(topic.name)
    asked = state.releasing is None or (state.handed_over and state.releasing is Releasing.REQUEST)
    return asked and not (topic.release.under_way or topic.release.done)


def take_back(context: Context, topic: Topic, *, handed_over: bool = False) -> None:
    """Nobody asks for the topic's release any more, and it goes on being offloaded; `handed_over`: brokers are still to
    read it."""
    state = context.state(topic.name)
    context.record(replace(state, releasing=None, handed_over=handed_over and state.handed_over))
    if topic.retirement is not None and topic.retirement.reason is RollReason.RELEASED:
        topic.retirement = None


def goes_elsewhere(context: Context, topic: Topic) -> None:
    """Another shard is to go on where the topic ends now."""
    if topic.retirement is None:
        _retire(context, topic, RollReason.PASSED_ON)


def stays(topic: Topic) -> None:
    """No other shard is to have the topic now."""
    if topic.retirement is not None and topic.retirement.reason is RollReason.PASSED_ON:
        topic.retirement = None


def has_ended(context: Context, topic: Topic) -> bool:
    """Whether all of a topic that retires is offloaded, and nothing is under way that changes what is known of it."""
    _fix_end(topic)
    at_rest = topic.readable and not context.busy(topic) and acknowledged(context, topic)
    return at_rest and is_accounted(topic, topic.retire_at)


def end_asked_for(topic: Topic, asked_at: int) -> Position | None:
    """Where a topic ended that somebody has asked about; None: not known yet. One that retires goes no further, unless
    it is to go elsewhere, for which it waits as long as somebody asks."""
    if topic.retirement is not None and topic.retirement.reason is not RollReason.PASSED_ON:
        _fix_end(topic)
        return topic.retire_at
    return _end_of(topic) if observed.seen_after(topic, asked_at) else None


def _retire(context: Context, topic: Topic, reason: RollReason) -> None:
    """Offload up to the end that the topic has now, and no further: the next look says where that is."""
    topic.retirement = Retirement(reason, None, context.clock_ms())
    observed.soon(topic)


def _fix_end(topic: Topic) -> None:
    retirement = topic.retirement
    if retirement is not None and retirement.at is None and observed.seen_after(topic, retirement.asked_at):
        topic.retirement = replace(retirement, at=_end_of(topic))


def release_if_done(context: Context, topic: Topic, released: Released) -> None:
    """Let go of a topic that is to be released and has nothing left to offload."""
    _fix_end(topic)
    state = context.state(topic.name)
    if state.releasing is not Releasing.REQUEST and not topic.release.done:
        return
    nothing_left = not state.unfinished and not state.abandoned
    if not (nothing_left and topic.readable and not context.busy(topic) and acknowledged(context, topic)):
        return
    if topic.retirement is None:
        _retire(context, topic, RollReason.RELEASED)
    now = context.clock_ms()
    if not is_accounted(topic, topic.retire_at) or now < topic.release.retry.again_at:
        return
    in_the_way = [feature.finish(topic, topic.retire_at) for feature in context.features]
    if any(why != "" for why in in_the_way):
        return
    if topic.release.done:
        _have_claim_ended(context, topic, released)
    else:
        call = partial(_check, context, topic.catalog)
        context.work.post(WorkKind.RELEASE, topic.name, call, partial(_release, context, topic, released, Attempt(now)))


def may_leave(context: Context, topic: Topic) -> bool:
    """Whether the topic is to be let go of, or its end is not known yet."""
    ends = topic.retirement is not None and topic.retirement.at is None
    return ends or topic.release.done or context.state(topic.name).releasing is Releasing.REQUEST


def _check(context: Context, catalog: CatalogHead) -> None:
    """Ask once more: what answers now may be another cluster. Raises AnotherClusterError."""
    info = context.admin.topic_info(catalog.topic)
    if not catalog.is_of(info.created, info.ledgers):
        raise AnotherClusterError(
            f"{catalog.topic}: the topic of that name that is there is not the one that is offloaded"
        )


def _release(context: Context, topic: Topic, released: Released, attempt: Attempt, error: OffloadError | None) -> None:
    """The journal has it before the subscription is deleted: whoever finds that gone knows who did it."""
    state = context.state(topic.name)
    if not _done(context, topic, attempt, error) or state.releasing is None:  # nobody asks for it any more
        return
    context.record(replace(state, let_go=True))
    call = partial(_delete_pin, context, topic.catalog)
    then = partial(_pin_released, context, topic, released, attempt)
    under_way = context.work.post(WorkKind.RELEASE, topic.name, call, then)
    topic.release = replace(topic.release, under_way=under_way)


def _delete_pin(context: Context, catalog: CatalogHead) -> None:
    """The journal may have taken an hour since the check. Raises as that."""
    _check(context, catalog)
    context.pins.release(catalog.topic)


def _pin_released(
    context: Context, topic: Topic, released: Released, attempt: Attempt, error: OffloadError | None
) -> None:
    done = _done(context, topic, attempt, error)
    topic.release = replace(topic.release, under_way=False, done=topic.release.done or done)
    if done:
        _have_claim_ended(context, topic, released)
    else:
        observed.doubt(topic)  # it may have been deleted all the same


def _have_claim_ended(context: Context, topic: Topic, released: Released) -> None:
    attempt = Attempt(context.clock_ms())

    def then(error: OffloadError | None) -> None:
        if _done(context, topic, attempt, error):
            released(topic)

    call = partial(committing.end_claim, context, topic.name, attempt)
    context.work.post(WorkKind.RELEASE, topic.name, call, then)


def _done(context: Context, topic: Topic, attempt: Attempt, error: OffloadError | None) -> bool:
    """Whether a step of the release worked."""
    if error is not None:
        tried_in_vain(context, topic, attempt)
        log.warning(
            "cannot release the subscription of topic=%s yet: %s", topic.name, error, extra={"see": "not-released"}
        )
    return error is None


def tried_in_vain(context: Context, topic: Topic, attempt: Attempt) -> None:
    """Letting go of the topic, or of this incarnation, has failed."""
    now, retry = context.clock_ms(), topic.release.retry
    failed = retry.not_committed(now, context.jitter()) if attempt.committing else retry.failed(attempt.began, now)
    topic.release = replace(topic.release, retry=failed)


def _end_of(topic: Topic) -> Position:
    """Where the topic ends now; before its first ledger where it is empty."""
    return topic.last or Position(topic.incarnation, -1, -1)


def is_accounted(topic: Topic, end: Position | None) -> bool:
    """Whether all up to an end of the topic is accounted for. What follows the catalog's end may be lost."""
    begin, after = topic.begin(), topic.catalog.accounted
    if end is None:
        return False
    return end < begin if begin is not None else after is not None and end <= after
