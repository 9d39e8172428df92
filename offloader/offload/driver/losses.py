"""Data that is gone before it was offloaded: seals what was uploaded, and records the loss once it is accepted."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.metadata.state import OpenTopic, TopicState
from offloader.model import Failure, FailureKind, Loss, Position, RollReason
from offloader.offload.core import evidence, segments
from offloader.offload.core.evidence import Lost
from offloader.offload.core.facets import LossState
from offloader.offload.core.retry_schedule import BACKOFF_LAST_MS
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context

log = logging.getLogger(__name__)

NOT_KEPT = "nobody kept it between release and claim"
RELEASE = "release"  # accepts it
CREATED_AGAIN = "created again"  # the topic: accepts what was trimmed before our subscription


def handle(context: Context, topic: Topic, state: TopicState) -> tuple[TopicState, Loss | None]:
    """The topic's state after what its ledger list says, and what is to be recorded as lost, if anything."""
    state = _doubted(topic, _recorded_already(topic, state))
    lost = evidence.lost(state, topic.catalog, topic.info.ledgers, topic.confirmed)
    if lost is None:
        begin, there = topic.begin(), topic.confirmed
        topic.losses = LossState(awaited=begin if begin is not None and there is not None and begin <= there else None)
        in_doubt = topic.observed.doubted or state.lost_after is not None
        held_again = state.let_go and state.releasing is None and not in_doubt
        return replace(state, let_go=False) if held_again else state, None
    if isinstance(state, OpenTopic) and state.open.parts:
        covered = state.open.covered
        if covered is None or state.open.closing_end == covered or state.open.sealed is not None:
            return state, None
        log.error(
            "data lost topic=%s from=%s to=%s: sealing at %s, the last uploaded entry",
            topic.name,
            lost.first,
            lost.last,
            covered,
            extra={"see": "data-lost"},
        )
        return segments.closing(state, covered, RollReason.DATA_LOST), None
    return _record_or_wait(context, topic, state, lost)


def _recorded_already(topic: Topic, state: TopicState) -> TopicState:
    """The catalog may have the loss without the journal: its answer was lost, or the process ended in between."""
    end = topic.catalog.end
    if state.lost_after is not None and end is None and state.lost_after != topic.catalog.accounted:
        return replace(state, lost_after=None)  # of a claim that was not made
    if end is None:
        return state
    if isinstance(state, OpenTopic) and not state.open.parts and state.open.start <= end:
        state = segments.dropped(state, "the catalog went on without it")
    if state.lost_after is not None and state.lost_after < end:
        state = replace(state, lost_after=None)
    return state


def _doubted(topic: Topic, state: TopicState) -> TopicState:
    """Remembers in the journal that nobody can say what followed: a restart would forget what was seen."""
    after = topic.catalog.accounted
    if state.open is not None or state.lost_after is not None or not evidence.doubtful(topic.catalog, topic.listed):
        return state
    log.error(
        "the pin of topic=%s was moved or deleted: what followed %s may be gone",
        topic.name, after, extra={"see": "pin-lost"},
    )  # fmt: skip
    return replace(state, lost_after=after)


def _record_or_wait(context: Context, topic: Topic, state: TopicState, lost: Lost) -> tuple[TopicState, Loss | None]:
    first, last = lost.first, lost.last
    accepted = topic.losses.accepted is not None and topic.losses.accepted >= last
    if topic.rules.fail_on_data_loss and not (accepted or lost.extends or state.let_go):
        reason = (
            f"{first} up to ledger {last.ledger} is gone before it was offloaded; run `offloader topics accept-loss "
            f"{topic.name} --to {last}` to record the loss and go on"
        )
        now = context.clock_ms()
        again = now + BACKOFF_LAST_MS
        if state.failure is not None and state.failure.reason == reason:
            if state.failure.retry_at - now > BACKOFF_LAST_MS // 2:
                return state, None  # each renewal is a record of the journal
            return replace(state, failure=replace(state.failure, retry_at=again)), None
        log.error("data lost topic=%s: %s", topic.name, reason, extra={"see": "data-lost"})
        return replace(state, failure=Failure(FailureKind.DATA_LOST, reason, 1, again)), None
    reason, accepted_by = "trimmed before it was offloaded", "failOnDataLoss: false"
    claim = topic.catalog.claim
    if state.lost_after is not None and topic.catalog.end is None and claim and claim.reason == CREATED_AGAIN:
        reason, accepted_by = "perhaps trimmed before the new topic had our subscription", CREATED_AGAIN
    elif state.let_go:
        reason, accepted_by = NOT_KEPT, RELEASE
    elif accepted or lost.extends:
        accepted_by = "accept-loss" if accepted else "the loss before it"
    return state, Loss(first, last, reason, accepted_by, context.clock_ms(), uncounted=True)


def accept(topic: Topic, end: Position) -> None:
    """Somebody accepts what is lost up to `end`."""
    topic.losses = replace(topic.losses, accepted=end)


def recorded(context: Context, topic: Topic, loss: Loss) -> None:
    """The catalog has the loss: the topic goes on behind it."""
    state = context.state(topic.name)
    if isinstance(state, OpenTopic) and not state.open.parts:
        state = segments.dropped(state, "its data was lost")
    context.record(replace(state, failure=None, lost_after=None))
    topic.losses = replace(topic.losses, accepted=None)
    context.metrics.loss(topic.name)
    log.error(
        "loss recorded topic=%s from=%s to=%s by=%s: %s",
        topic.name,
        loss.start,
        loss.end,
        loss.accepted_by,
        loss.reason,
        extra={"see": "loss-recorded"},
    )
