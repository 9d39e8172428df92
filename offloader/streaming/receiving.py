"""Receipts become journal states: what a slice uploaded, what failed, what it teaches about when to plan its topic next."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.model import FailureKind, Receipt, SliceStop, TopicName
from offloader.streaming import planner, segments
from offloader.streaming.context import Context, tell_back_off
from offloader.streaming.rates import RateLimits
from offloader.streaming.segments import StaleReceiptError
from offloader.streaming.topics import Topic

log = logging.getLogger(__name__)


def receive(
    context: Context, topics: Mapping[TopicName, Topic], rates: RateLimits, run: str, receipts: list[Receipt]
) -> dict[TopicName, TopicState]:
    """The states to journal. A receipt of another run, of a topic that is not ours, or that does not continue the journal is dropped and
    counted."""
    changed: dict[TopicName, TopicState] = {}
    for receipt in receipts:
        topic = topics.get(receipt.topic)
        if topic is None or receipt.run != run:
            context.metrics.receipt_dropped("unknown-run" if topic else "unknown-topic")
            continue
        before = changed.get(receipt.topic) or context.state(receipt.topic)
        try:
            changed[receipt.topic] = _received(context, topic, before, receipt, rates)
        except StaleReceiptError as error:
            log.info("receipt dropped topic=%s reason=%s", receipt.topic, error)
            context.metrics.receipt_dropped("stale")
    return changed


def _received(context: Context, topic: Topic, before: TopicState, receipt: Receipt, rates: RateLimits) -> TopicState:
    now = context.clock_ms()
    state = segments.received(before, receipt, now, context.jitter())
    tell_back_off(state)
    rates.spent(topic.name, receipt.read_bytes)
    _count(context, receipt)
    _learn(topic, receipt, state)
    try:
        if receipt.finished and receipt.stop is not SliceStop.FAILED:
            return segments.complete(state, receipt.gaps, topic.info.ledgers, now)
        if receipt.failure_kind is FailureKind.UPLOAD_GONE:
            return abandon(context, state, receipt.failure_reason)
    except OffloadError as error:
        return context.failed(before, error)
    return state


def abandon(context: Context, state: TopicState, reason: str) -> TopicState:
    """Give the open segment's range a new uuid."""
    log.warning("abandon topic=%s reason=%s", state.topic, reason)
    context.metrics.abandoned(state.topic)
    return segments.abandoned(state, context.new_uuid(), reason)


def _count(context: Context, receipt: Receipt) -> None:
    metrics, name = context.metrics, receipt.topic
    for part in receipt.parts:
        metrics.offloaded(name, part.size, part.entries)
        for gap in part.gaps:
            metrics.gap(name, gap.kind, gap.last - gap.first + 1)
    metrics.entries_read(name, receipt.read_bytes)
    if receipt.failure_kind is not None:
        log.warning("slice failed topic=%s kind=%s reason=%s", name, receipt.failure_kind, receipt.failure_reason)
        metrics.failure(receipt.failure_kind, name)


def _learn(topic: Topic, receipt: Receipt, state: TopicState) -> None:
    """When and how to plan the topic next."""
    topic.slow = topic.slow + 1 if receipt.stop is SliceStop.SLOW else 0
    topic.died = receipt.failure_kind is FailureKind.TASK_DIED
    short = receipt.stop is SliceStop.BOUND and not receipt.finished
    pending = topic.view(state, None, 0).pending_bytes if state.open else 0
    topic.wanted_bytes = planner.after_slice(pending, receipt.seen_bytes, planner.enough(state, topic.rules)) if short else 0
