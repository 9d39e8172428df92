"""How the running application stands, for people and for metrics: one frozen line a topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.metrics import TopicLag
from offloader.model import TopicName
from offloader.offload.core import segments
from offloader.offload.driver.context import Context
from offloader.offload.driver.foreseen import only_foreseen
from offloader.offload.driver.topic import Topic

STATE_EVERY_MS = 1_000


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """`entries` and `size`: of all Offloaded segments and of the others' uploaded parts. `lag_bytes`: what Pulsar
    has beyond them; `pinned_bytes`: what it keeps because of us."""

    topic: TopicName
    state: str
    segments: int
    entries: int
    size: int
    lag_bytes: int
    lag_ms: int
    pinned_bytes: int
    alarm: str


class TopicStatuses:
    """How all topics stood a moment ago."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._at = 0
        self.latest: tuple[TopicStatus, ...] = ()

    def tell(self, topics: Collection[Topic], now: int) -> None:
        """Look again where it is time, and tell the metrics."""
        if now - self._at < STATE_EVERY_MS:
            return
        self._at = now
        metrics = self._context.metrics
        unseen = bool(topics) and all(topic.poll.error for topic in topics)
        metrics.health.checked("pulsar", "no topic could be looked at" if unseen else "")
        self.latest = tuple(self._status(topic, now) for topic in topics)
        # What is pinned is as old as the open segment.
        metrics.topics(TopicLag(s.topic, s.lag_bytes, s.lag_ms, s.pinned_bytes, s.lag_ms) for s in self.latest)
        metrics.topic_states(Counter(s.state for s in self.latest))
        for kind, backlog in self._context.work.backlog().items():
            metrics.work(kind, backlog.queued, backlog.running, backlog.oldest_ms / 1000)
        metrics.topic_lanes(Counter(topic.learnt.speed.lane for topic in topics))

    def _status(self, topic: Topic, now: int) -> TopicStatus:
        """Where things that are known of a topic do not go together, it cannot be said how far it is."""
        state, sums = self._context.state(topic.name), topic.catalog.kept
        try:
            with only_foreseen:
                return _status_of(topic, state, now)
        except OffloadError as error:
            word = _word(topic, state)
            return TopicStatus(topic.name, word, sums.segments, sums.entries, sums.size, 0, 0, 0, str(error))


def _status_of(topic: Topic, state: TopicState, now: int) -> TopicStatus:
    segment = state.open
    sums = topic.catalog.kept
    start = segments.next_position(segment, topic.info.ledgers) if segment else topic.begin()
    parts = [part for each in state.unfinished for part in each.parts]
    return TopicStatus(
        topic=topic.name,
        state=_word(topic, state),
        segments=sums.segments,
        entries=sums.entries + sum(p.entries for p in parts),
        size=sums.size + sum(p.size for p in parts),
        lag_bytes=_lag(topic, state, topic.info.sums.object_bytes(start, topic.last)),
        lag_ms=now - segment.assigned_at if segment else 0,
        pinned_bytes=topic.info.sums.object_bytes(topic.begin(), topic.last),
        alarm=topic.pin.alarm
        or topic.committed.catalog_error
        or topic.poll.error
        or topic.pin.error
        or next((f.reason for f in (state.failure, *(a.failure for a in state.ahead)) if f is not None), ""),
    )


def _lag(topic: Topic, state: TopicState, behind: int) -> int:
    """What is behind the open segment's uploaded part, without what is uploaded of those ahead."""
    sums = topic.info.sums
    return behind - sum(sums.object_bytes(a.segment.start, a.segment.covered) for a in state.ahead)


def _word(topic: Topic, state: TopicState) -> str:
    if state.failure is not None:
        return "Failed"
    if state.unfinished:
        return str(state.unfinished[0].status)
    return "Paused" if topic.retirement is not None and not state.releasing else "Caught up"
