"""Where a segment is read from, and when another source may help it. Pure."""

from __future__ import annotations

from collections.abc import Callable

from offloader.metadata.state import OpenTopic
from offloader.model import FailureKind, Position, RollReason, Source
from offloader.offload.core import segments
from offloader.offload.core.decisions import TopicView

ANEW_AFTER = 3  # failures in a row; then a segment is begun anew where its topic has another source by now
_MAY_BE_THE_SOURCE = frozenset({FailureKind.RETRYABLE, FailureKind.FATAL, FailureKind.INTEGRITY, FailureKind.DATA_LOST})


def source_of(view: TopicView, start: Position, end: Position | None) -> Source:
    """Where a segment is read from. BookKeeper may have no copy any more of what brokers have offloaded: of that, what
    brokers do not give comes from it, not all."""
    wanted = view.rules.source
    if wanted is not Source.BOOKKEEPER:
        return wanted
    last = end.ledger if end is not None else max(view.offloaded, default=-1)
    moved = any(start.ledger <= ledger <= last for ledger in view.offloaded)
    return Source.BROKER_WITH_BOOKIES if moved else wanted


def another_source_helps(view: TopicView, state: OpenTopic) -> bool:
    """Whether the topic's present source may help a segment that fails. Never where Pulsar lost its beginning."""
    failure, segment = state.failure, state.open
    if failure is None or failure.of_catalog or failure.attempts < ANEW_AFTER or failure.kind not in _MAY_BE_THE_SOURCE:
        return False
    if segment.sealed is not None or segment.source is Source.OFFLOADED or segment.start.ledger not in view.ledgers:
        return False
    if failure.kind is FailureKind.DATA_LOST and segment.covered is not None and segment.covered == segment.closing_end:
        return False  # it has ended for that already
    return segment.source is not source_of(view, segment.start, segment.closing_end)


def from_another_source(
    view: TopicView, state: OpenTopic, new_uuid: Callable[[], str], *, keep_end: bool = False
) -> OpenTopic:
    """The segment begun anew, as its topic is read by now."""
    segment = state.open
    source = source_of(view, segment.start, segment.closing_end)
    if state.failure is not None and state.failure.kind is FailureKind.DATA_LOST and segment.covered is not None:
        # What is uploaded may be the only copy: it ends here, and what follows has the other source.
        return segments.closing(state, segment.covered, RollReason.OFFLOADED)
    reason = f"begun anew from source {source} instead of {segment.source}"
    return segments.begun_anew(state, new_uuid(), source, reason, keep_end=keep_end or bool(state.ahead))
