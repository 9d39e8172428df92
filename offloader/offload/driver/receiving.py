"""Receipts become journal states, and teach when to plan their topics next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.model import FailureKind, Lane, Receipt, SliceStop, TopicName
from offloader.offload.core import lanes, planner, segments
from offloader.offload.core.history import on_segment, without_holes
from offloader.offload.core.lanes import LaneLimits, Speed
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.segments import StaleReceiptError
from offloader.offload.core.topic import Topic
from offloader.offload.driver import observed
from offloader.offload.driver.context import Context, tell_back_off

log = logging.getLogger(__name__)


@dataclass
class BatchOutcome:
    """What a batch's receipts come to: the states to journal, and what to count and learn, the first time only. While
    its states cannot be journaled a batch is received again; where the journal has them after all it is dropped."""

    states: dict[TopicName, TopicState] = field(default_factory=dict)
    effects: list[Callable[[], None]] = field(default_factory=list)


def take_receipts(
    context: Context,
    topics: Mapping[TopicName, Topic],
    rates: RateLimits,
    fast: LaneLimits,
    run: str,
    receipts: list[Receipt],
) -> BatchOutcome:
    """What to journal, count and learn. Drops receipts of another run, of topics that are not ours, and stale ones."""
    received, best = BatchOutcome(), lanes.best_rate(receipts)
    died = {r.id.topic for r in receipts if r.failure_kind is FailureKind.TASK_DIED}
    for receipt in receipts:
        name = receipt.id.topic
        topic = topics.get(name)
        if topic is None or receipt.id.run != run:
            received.effects.append(
                partial(context.metrics.receipt_dropped, "unknown-run" if topic else "unknown-topic")
            )
            continue
        before = received.states.get(name) or context.state(name)
        try:
            state = on_segment(before, receipt.id.uuid, partial(_received, context, topic, receipt))
        except StaleReceiptError as error:
            log.info("receipt dropped topic=%s reason=%s", name, error)
            received.effects.append(partial(context.metrics.receipt_dropped, "stale"))
        else:
            received.states[name] = state
            received.effects.append(partial(_change_lane, topic, receipt, before, fast, best))
            received.effects.append(partial(_account, context, topic, rates, receipt, state, died=name in died))
    for name, state in received.states.items():
        # With the receipts, not with the next decision: an application that ends in between would leave a hole.
        ledgers, now = topics[name].info.ledgers, context.clock_ms()
        received.states[name] = without_holes(state, ledgers, context.new_uuid, now)
    return received


def _received(context: Context, topic: Topic, receipt: Receipt, before: TopicState) -> TopicState:
    now = context.clock_ms()
    state = segments.received(before, receipt, now, context.jitter())
    tell_back_off(state)
    try:
        if receipt.finished and receipt.stop is not SliceStop.FAILED:
            return segments.complete(state, receipt.gaps, topic.info.ledgers, now)
        if receipt.stop is SliceStop.LARGER:
            return segments.abandoned(state, context.new_uuid(), "it is larger than the one part that was estimated")
        if receipt.failure_kind is FailureKind.UPLOAD_GONE:
            return segments.abandoned(state, context.new_uuid(), receipt.failure_reason)
    except OffloadError as error:
        return context.failed(before, error)
    return state


def tell_of_abandoned(context: Context, topic: TopicName, reason: str) -> None:
    """Log and count an upload that is given up."""
    log.warning("abandon topic=%s reason=%s", topic, reason, extra={"see": "abandoned"})
    context.metrics.abandoned(topic)


def _account(
    context: Context, topic: Topic, rates: RateLimits, receipt: Receipt, state: TopicState, *, died: bool
) -> None:
    """`died`: a task that read the topic did."""
    rates.spent(topic.name, receipt.read_bytes)
    _count(context, topic.name, receipt)
    if receipt.failure_kind is FailureKind.UPLOAD_GONE:
        tell_of_abandoned(context, topic.name, receipt.failure_reason)
    _learn(topic, receipt, state, died=died)


def _count(context: Context, name: TopicName, receipt: Receipt) -> None:
    metrics, kind = context.metrics, receipt.failure_kind
    for part in receipt.parts:
        metrics.offloaded(name, part.size, part.entries)
        for gap in part.gaps:
            metrics.gap(name, gap.kind, gap.span)
        if part.stats.unreadable:
            log.info(
                "unreadable entries topic=%s count=%s from=%s to=%s",
                name,
                part.stats.unreadable,
                part.first,
                part.last,
                extra={"see": "unreadable-entries"},
            )
            metrics.unreadable(name, part.stats.unreadable)
    metrics.entries_read(name, receipt.read_bytes)
    if kind is not None:
        why = receipt.failure_reason
        log.warning("slice failed topic=%s kind=%s reason=%s", name, kind, why, extra={"see": "slice-failed"})
        metrics.failure(kind, name)


def _change_lane(topic: Topic, receipt: Receipt, state: TopicState, fast: LaneLimits, best: float) -> None:
    """A segment ahead that holds others up says nothing of its topic: it waits for its turn, and the topic goes on."""
    if _is_ahead(receipt, state):
        if lanes.after(Speed(), receipt, fast, best).lane is Lane.SLOW:
            left = {each.segment.uuid for each in state.ahead} & topic.learnt.slow_ahead
            topic.learnt = replace(topic.learnt, slow_ahead=frozenset(left | {receipt.id.uuid}))
        return
    before, speed = topic.learnt.speed, lanes.after(topic.learnt.speed, receipt, fast, best)
    topic.learnt = replace(topic.learnt, speed=speed)
    if speed.lane is not before.lane:
        log.info("topic=%s goes to the %s lane: it was read at %d B/s", topic.name, speed.lane, speed.rate)


def _is_ahead(receipt: Receipt, state: TopicState) -> bool:
    return any(each.segment.uuid == receipt.id.uuid for each in state.ahead)


def _learn(topic: Topic, receipt: Receipt, state: TopicState, *, died: bool) -> None:
    """When and how to plan the topic next."""
    if receipt.stop is SliceStop.FAILED:
        observed.doubt(topic)
    if _is_ahead(receipt, state):
        topic.learnt = replace(topic.learnt, died=died)
        return
    short = receipt.stop is SliceStop.BOUND and not receipt.finished
    pending = topic.pending(state) if state.open else 0
    wanted = planner.after_slice(pending, receipt.seen_bytes, planner.enough(state.open, topic.rules)) if short else 0
    topic.learnt = replace(topic.learnt, died=died, wanted_bytes=wanted)


def wants_anything(topic: Topic) -> None:
    """A segment has ended: what its last slice missed does not count for the next."""
    topic.learnt = replace(topic.learnt, wanted_bytes=0)
