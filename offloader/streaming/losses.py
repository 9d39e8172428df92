"""Data that is gone before it was offloaded: seal what was uploaded, then record the loss, by itself or when somebody accepts it."""

from __future__ import annotations

import logging
from dataclasses import replace

from offloader.metadata.state import TopicState
from offloader.model import Failure, FailureKind, Loss, Position, RollReason
from offloader.streaming import segments
from offloader.streaming.context import Context
from offloader.streaming.topics import Topic, accounted, lost_range

log = logging.getLogger(__name__)


def handle(context: Context, topic: Topic, state: TopicState) -> TopicState:
    """The topic's state after what its ledger list says; unchanged where nothing is gone."""
    state = _recorded_already(topic, _vanished(topic, state))
    lost = lost_range(state, topic.catalog, topic.info.ledgers)
    if lost is None:
        topic.accepted_loss = None
        return replace(state, lost_after=None)
    if state.open is not None and state.open.parts:
        covered = state.open.covered
        if covered is None or state.open.closing_end == covered or state.open.sealed is not None:
            return state
        log.error("data lost topic=%s from=%s to=%s: sealing at %s, the last uploaded entry", topic.name, *lost, covered)
        return segments.closing(state, covered, RollReason.DATA_LOST)
    return _record_or_wait(context, topic, state, *lost)


def _recorded_already(topic: Topic, state: TopicState) -> TopicState:
    """The catalog has the loss, though the journal was not told: its answer was lost, or the process ended in between."""
    end = topic.catalog.end
    if end is None:
        return state
    if state.open is not None and not state.open.parts and state.open.start <= end:
        state = segments.dropped(state, "the catalog went on without it")
    if state.lost_after is not None and state.lost_after < end:
        state = replace(state, lost_after=None)
    return state


def _vanished(topic: Topic, state: TopicState) -> TopicState:
    """Ledgers with entries beyond everything that is accounted for were listed before and are not any more: nobody kept them."""
    after, before = accounted(topic.catalog), topic.info_before
    topic.info_before = None
    if before is None or after is None or state.open is not None or state.lost_after is not None:
        return state
    gone = [(ledger, count - 1) for ledger, (count, _) in before.sizes.items() if count and ledger not in topic.info.ledgers]
    return replace(state, lost_after=after) if any(last > (after.ledger, after.entry) for last in gone) else state


def behind_moved_pin(topic: Topic, state: TopicState) -> TopicState:
    """The pin was moved past what is accounted for: unless what follows that is certain to be there, nobody knows what was trimmed."""
    after = accounted(topic.catalog)
    if after is None or state.open is not None or state.lost_after is not None:
        return state
    if _certain(topic, after):
        topic.kept = topic.info.ledgers
        return state
    log.error("the pin of topic=%s was moved: what followed %s may be gone", topic.name, after)
    return replace(state, lost_after=after)


def _certain(topic: Topic, after: Position) -> bool:
    """Ledgers are trimmed in their order: the one of `after` is still listed, or else the one that was known to follow it."""
    following = None if topic.kept is None else topic.kept.next_ledger(after.ledger)
    return after.ledger in topic.info.ledgers or (following is not None and following in topic.info.ledgers)


def _record_or_wait(context: Context, topic: Topic, state: TopicState, first: Position, last: Position) -> TopicState:
    accepted = topic.accepted_loss is not None and topic.accepted_loss >= last
    if topic.rules.fail_on_data_loss and not accepted:
        reason = (
            f"{first} up to ledger {last.ledger} is gone before it was offloaded; run `offloader topics accept-loss {topic.name} --to {last}` "
            "to record the loss and go on"
        )
        again = context.clock_ms() + segments.BACKOFF_LAST_MS
        if state.failure is not None and state.failure.reason == reason:
            return replace(state, failure=replace(state.failure, retry_at=again))
        log.error("data lost topic=%s: %s", topic.name, reason)
        return replace(state, failure=Failure(FailureKind.DATA_LOST, reason, 1, again))
    accepted_by = "accept-loss" if accepted else "failOnDataLoss: false"
    loss = Loss(first, last, "trimmed before it was offloaded", accepted_by, context.clock_ms())
    topic.catalog = context.catalogs.append(topic.catalog, loss, token=context.new_uuid())
    topic.accepted_loss = None
    context.metrics.loss(topic.name)
    log.error("loss recorded topic=%s from=%s to=%s by=%s", topic.name, first, last, accepted_by)
    if state.open is not None:
        state = segments.dropped(state, "its data was lost")
    return replace(state, failure=None, lost_after=None)
