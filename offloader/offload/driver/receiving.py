"""Receipts become journal states: what a slice uploaded, what failed, what it teaches about when to plan its topic next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.model import FailureKind, Receipt, SliceStop, TopicName
from offloader.offload.core import lanes, planner, segments
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.rates import RateLimits
from offloader.offload.core.segments import StaleReceiptError
from offloader.offload.driver.context import Context, tell_back_off
from offloader.offload.driver.topic import Topic

log = logging.getLogger(__name__)


@dataclass
class Received:
    """What a batch's receipts come to: the states to journal, and what is counted and learnt. The latter is for the first time only: while
    its states cannot be journaled a batch is received again, and dropped where the journal has taken them after all."""

    states: dict[TopicName, TopicState] = field(default_factory=dict)
    _effects: list[Callable[[], None]] = field(default_factory=list)

    def then(self, effect: Callable[[], None]) -> None:
        """One more thing to count."""
        self._effects.append(effect)

    def account(self) -> None:
        """Count and learn."""
        for effect in self._effects:
            effect()


def receive(
    context: Context, topics: Mapping[TopicName, Topic], rates: RateLimits, fast: LaneLimits, run: str, receipts: list[Receipt]
) -> Received:
    """The states to journal. A receipt of another run, of a topic that is not ours, or that does not continue the journal is dropped and
    counted."""
    received, best = Received(), lanes.best_rate(receipts)
    for receipt in receipts:
        topic = topics.get(receipt.topic)
        if topic is None or receipt.run != run:
            received.then(partial(context.metrics.receipt_dropped, "unknown-run" if topic else "unknown-topic"))
            continue
        before = received.states.get(receipt.topic) or context.state(receipt.topic)
        try:
            state = _received(context, topic, before, receipt)
        except StaleReceiptError as error:
            log.info("receipt dropped topic=%s reason=%s", receipt.topic, error)
            received.then(partial(context.metrics.receipt_dropped, "stale"))
        else:
            received.states[receipt.topic] = state
            received.then(partial(_change_lane, topic, receipt, fast, best))
            received.then(partial(_account, context, topic, rates, receipt, state))
    return received


def _received(context: Context, topic: Topic, before: TopicState, receipt: Receipt) -> TopicState:
    now = context.clock_ms()
    state = segments.received(before, receipt, now, context.jitter())
    tell_back_off(state)
    try:
        if receipt.finished and receipt.stop is not SliceStop.FAILED:
            return segments.complete(state, receipt.gaps, topic.info.ledgers, now)
        if receipt.failure_kind is FailureKind.UPLOAD_GONE:
            return segments.abandoned(state, context.new_uuid(), receipt.failure_reason)
    except OffloadError as error:
        return context.failed(before, error)
    return state


def tell_of_abandoned(context: Context, topic: TopicName, reason: str) -> None:
    """An upload is given up: log and count it."""
    log.warning("abandon topic=%s reason=%s", topic, reason, extra={"see": "abandoned"})
    context.metrics.abandoned(topic)


def _account(context: Context, topic: Topic, rates: RateLimits, receipt: Receipt, state: TopicState) -> None:
    rates.spent(topic.name, receipt.read_bytes)
    _count(context, receipt)
    if receipt.failure_kind is FailureKind.UPLOAD_GONE:
        tell_of_abandoned(context, receipt.topic, receipt.failure_reason)
    _learn(topic, receipt, state)


def _count(context: Context, receipt: Receipt) -> None:
    metrics, name = context.metrics, receipt.topic
    for part in receipt.parts:
        metrics.offloaded(name, part.size, part.entries)
        for gap in part.gaps:
            metrics.gap(name, gap.kind, gap.last - gap.first + 1)
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
    if receipt.failure_kind is not None:
        log.warning(
            "slice failed topic=%s kind=%s reason=%s",
            name,
            receipt.failure_kind,
            receipt.failure_reason,
            extra={"see": "slice-failed"},
        )
        metrics.failure(receipt.failure_kind, name)


def _change_lane(topic: Topic, receipt: Receipt, fast: LaneLimits, best: float) -> None:
    before, topic.speed = topic.speed, lanes.after(topic.speed, receipt, fast, best)
    if topic.speed.lane is not before.lane:
        log.info("topic=%s goes to the %s lane: it was read at %d B/s", topic.name, topic.speed.lane, topic.speed.rate)


def _learn(topic: Topic, receipt: Receipt, state: TopicState) -> None:
    """When and how to plan the topic next."""
    topic.died = receipt.failure_kind is FailureKind.TASK_DIED
    topic.doubted = topic.doubted or receipt.stop is SliceStop.FAILED
    short = receipt.stop is SliceStop.BOUND and not receipt.finished
    pending = topic.pending(state) if state.open else 0
    topic.wanted_bytes = planner.after_slice(pending, receipt.seen_bytes, planner.enough(state, topic.rules)) if short else 0
