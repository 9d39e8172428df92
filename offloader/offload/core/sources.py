"""Where a segment is read from, how far a slice comes, and when another source may help. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offloader.metadata.state import OpenTopic
from offloader.model import ENTRY_OVERHEAD, EntryRange, FailureKind, Position, RollReason, Source
from offloader.offload.core import lanes, segments
from offloader.offload.core.lanes import LaneLimits
from offloader.offload.core.topic import Topic

ANEW_AFTER = 3  # failures in a row; then a segment is begun anew where its topic has another source by now
_MAY_BE_THE_SOURCE = frozenset({FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY, FailureKind.DATA_LOST})


@dataclass(frozen=True, slots=True)
class Reach:
    """As far as a slice is sure to come: less than a part, in about so many bytes."""

    end: Position
    size: int


def source_of(topic: Topic, start: Position, end: Position | None) -> Source:
    """Where a segment is read from. BookKeeper may have no copy any more of what brokers have offloaded: of that, what
    brokers do not give comes from it, not all."""
    wanted = topic.rules.source
    if wanted is not Source.BOOKKEEPER:
        return wanted
    last = end.ledger if end is not None else max(topic.info.offloaded, default=-1)
    moved = any(start.ledger <= ledger <= last for ledger in topic.info.offloaded)
    return Source.BROKER_WITH_BOOKIES if moved else wanted


def another_source_helps(topic: Topic, state: OpenTopic) -> bool:
    """Whether the topic's present source may help a segment that fails. Never where Pulsar lost its beginning."""
    failure, segment = state.failure, state.open
    if failure is None or failure.of_catalog or failure.attempts < ANEW_AFTER or failure.kind not in _MAY_BE_THE_SOURCE:
        return False
    if segment.sealed is not None or segment.source is Source.OFFLOADED or segment.start.ledger not in topic.ledgers:
        return False
    if failure.kind is FailureKind.DATA_LOST and segment.covered is not None and segment.covered == segment.closing_end:
        return False  # it has ended for that already
    return segment.source is not source_of(topic, segment.start, segment.closing_end)


def from_another_source(
    topic: Topic, state: OpenTopic, new_uuid: Callable[[], str], *, keep_end: bool = False
) -> OpenTopic:
    """The segment begun anew, as its topic is read by now."""
    segment = state.open
    source = source_of(topic, segment.start, segment.closing_end)
    if state.failure is not None and state.failure.kind is FailureKind.DATA_LOST and segment.covered is not None:
        # What is uploaded may be the only copy: it ends here, and what follows has the other source.
        return segments.closing(state, segment.covered, RollReason.OFFLOADED)
    reason = f"begun anew from source {source} instead of {segment.source}"
    return segments.begun_anew(state, new_uuid(), source, reason, keep_end=keep_end or bool(state.ahead))


def reach_of(topic: Topic, start: Position | None, part: int, slow: LaneLimits) -> Reach | None:
    """As far as a slice is sure to come in the slow lane, at least an entry; None: far enough, a `part` is less."""
    sure = lanes.sure_bytes(topic.learnt.speed, slow)
    if start is None or sure is None or sure >= part:
        return None
    entries, size = topic.info.sizes.get(start.ledger, (0, 0))
    average = size // entries + ENTRY_OVERHEAD if entries > 0 else part
    closed = topic.ledgers.closed_with(start.ledger)
    count = max(sure // average, 1)
    if closed is not None:
        count = min(count, EntryRange.closed(start.ledger, start.entry, closed).span)
    return Reach(start.at(start.entry + count).previous_entry, count * average)
