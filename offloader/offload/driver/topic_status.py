"""How the running application stands, for people and for metrics: one frozen line a topic.

The driver's thread makes a topic's line anew only where something is known of it that was not: with 100,000 topics
most lines are those of the last look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offloader.errors import OffloadError
from offloader.metadata.state import TopicState
from offloader.metrics import TopicLag
from offloader.model import Failure, FailureKind, Lane, OpenSegment, TopicName
from offloader.offload.core import segments
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.feature import TopicFeature, troubles
from offloader.offload.driver.work import only_foreseen
from offloader.offload.live.status import Filling, TopicStatus, Trouble

STATE_EVERY_MS = 1_000
SHARE = 20  # a look takes a twentieth of the thread's time at most
_OF_KINDS = {FailureKind.DATA_LOST: "data-lost", FailureKind.UPLOAD_GONE: "abandoned"}


@dataclass(frozen=True, slots=True)
class _Told:
    """A line, and all that it was made of."""

    basis: tuple[object, ...]
    status: TopicStatus


class TopicStatuses:
    """How all topics stood a moment ago, in `latest`: any thread may read it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._due = 0
        self._agenda = context.changes.agenda()
        self._told: dict[TopicName, _Told] = {}
        self._paused: dict[TopicName, None] = {}
        self._states: Counter[str] = Counter()  # of `latest`
        self._lines: dict[TopicName, TopicStatus] = {}
        self.latest: tuple[TopicStatus, ...] = ()
        self.lanes: Counter[Lane] = Counter()

    def tell(self, topics: Mapping[TopicName, Topic], now: int) -> bool:
        """Look again, and tell the metrics; False: it is not time."""
        if now < self._due:
            return False
        metrics = self._context.metrics
        unseen = bool(topics) and all(topic.poll.error for topic in topics.values())
        metrics.health.checked("pulsar", "no topic could be looked at" if unseen else "")
        self.latest = self._look(topics, now)
        metrics.topics(Lags(self.latest, now))
        metrics.topic_states(self._states)
        kept = Counter[str]()
        for name in self._paused:
            kept[name.namespace] += self._lines[name].pinned_bytes
        metrics.paused(kept)
        for kind, backlog in self._context.work.backlog().items():
            metrics.work(kind, backlog.queued, backlog.running, backlog.oldest_ms / 1000)
        metrics.topic_lanes(self.lanes)
        took = self._context.clock_ms() - now
        self._due = now + max(STATE_EVERY_MS, SHARE * took)
        return True

    def _look(self, topics: Mapping[TopicName, Topic], now: int) -> tuple[TopicStatus, ...]:
        """All lines: anew those of topics of which something changed."""
        states, changed = self._context.journal.topics, False
        for name in self._agenda.names(topics, now):
            topic, known = topics.get(name), self._told.get(name)
            if topic is None:
                changed = self._forget(name) or changed
            else:
                state = states.get(name)
                basis = _basis(topic, state)
                if known is None or known.basis != basis:
                    status = _since(_status(self._context.features, topic, state or TopicState(name)), known, now)
                    self._put(topic, _Told(basis, status))
                    changed = True
            self._agenda.rest(name)
        return tuple(self._lines.values()) if changed else self.latest

    def _put(self, topic: Topic, told: _Told) -> None:
        name, before = topic.name, self._lines.get(topic.name)
        if before is not None:
            self._count(before, -1)
        self._told[name], self._lines[name] = told, told.status
        self._count(told.status, 1)
        if topic.paused:
            self._paused[name] = None
        else:
            self._paused.pop(name, None)

    def _forget(self, name: TopicName) -> bool:
        if self._told.pop(name, None) is None:
            return False
        self._count(self._lines.pop(name), -1)
        self._paused.pop(name, None)
        return True

    def _count(self, status: TopicStatus, number: int) -> None:
        self.lanes[status.lane] += number
        self._states[status.state] += number
        if not self._states[status.state]:
            del self._states[status.state]


def _since(status: TopicStatus, before: _Told | None, now: int) -> TopicStatus:
    """With how long the same has been wrong."""
    if status.trouble is None:
        return status
    former = before.status.trouble if before is not None else None
    lasts = former is not None and former.alarm == status.trouble.alarm
    return replace(status, trouble=replace(status.trouble, since=former.since if lasts and former else now))


def _basis(topic: Topic, state: TopicState | None) -> tuple[object, ...]:
    """All that a line is made of. What was not replaced is the same object, so that comparing it costs nothing."""
    observed = topic.observed
    return (
        state, topic.committed, observed.info, observed.end, topic.tail, topic.rules, topic.source, topic.planned,
        topic.pin, topic.features, topic.poll.error, topic.learnt.speed.lane, topic.retirement, topic.inquiry,
    )  # fmt: skip


class Lags:
    """What metrics tell of each topic, once somebody asks."""

    def __init__(self, statuses: Sequence[TopicStatus], now: int) -> None:
        self._statuses = statuses
        self._now = now

    def __iter__(self) -> Iterator[TopicLag]:
        for s in self._statuses:
            age = s.lag_ms(self._now)  # what is pinned is as old as the open segment
            yield TopicLag(s.topic, s.lag_bytes, age, s.pinned_bytes, age)


def _status(features: Sequence[TopicFeature], topic: Topic, state: TopicState) -> TopicStatus:
    """Where things that are known of a topic do not go together, it cannot be said how far it is."""
    try:
        with only_foreseen:
            return _status_of(features, topic, state)
    except OffloadError as error:
        sums, trouble = topic.catalog.kept, Trouble(str(error), "unforeseen")
        return TopicStatus(topic.name, _word(topic, state), sums.segments, sums.entries, sums.size, trouble=trouble)


def _status_of(features: Sequence[TopicFeature], topic: Topic, state: TopicState) -> TopicStatus:
    segment = state.open
    kept, sums = topic.catalog.kept, topic.info.sums
    begin, last = topic.begin(), topic.last
    start = segments.next_position(segment, topic.info.ledgers) if segment else begin
    parts = [part for each in state.unfinished for part in each.parts]
    ahead = [each.segment for each in state.ahead]
    return TopicStatus(
        topic=topic.name,
        state=_word(topic, state),
        segments=kept.segments,
        entries=kept.entries + sum(p.entries for p in parts),
        size=kept.size + sum(p.size for p in parts),
        # What is behind the open segment's uploaded part, without what is uploaded of those ahead.
        lag_entries=sums.entries(start, last) - sum(sums.entries(s.start, s.covered) for s in ahead),
        lag_bytes=sums.object_bytes(start, last) - sum(sums.object_bytes(s.start, s.covered) for s in ahead),
        pinned_bytes=sums.object_bytes(begin, last),
        filling=_filling(topic, segment),
        ahead=len(ahead),
        lane=topic.learnt.speed.lane,
        planned_at=topic.planned.at if topic.planned.travels else 0,
        bridge=next((word for feature in features if (word := feature.word(topic))), ""),
        trouble=next(_troubles(features, topic, state), None),
    )


def _filling(topic: Topic, segment: OpenSegment | None) -> Filling | None:
    if segment is None:
        return None
    return Filling(segment.size, topic.rules.max_size, segment.assigned_at, topic.rules.roll_ms)


def _troubles(features: Sequence[TopicFeature], topic: Topic, state: TopicState) -> Iterator[Trouble]:
    """The worst first."""
    if topic.pin.alarm:
        yield Trouble(topic.pin.alarm, "pin-moved")
    yield from troubles(features, topic, endanger_data=True)
    failure = topic.committed.failure
    if failure is not None:
        yield Trouble(failure.reason, "catalog-reloaded", failure.kind, failure.attempts, failure.retry_at)
    if topic.poll.error:
        yield Trouble(topic.poll.error, "topic-silent")
    if topic.pin.error:
        yield Trouble(topic.pin.error, "not-acknowledged", retry_at=topic.pin.retry.again_at)
    for failure in _failures(state):
        sealing = state.open is not None and (state.open.sealed is not None or state.open.lost_uploads > 1)
        alarm = _OF_KINDS.get(failure.kind) or ("seal-failed" if sealing else "slice-failed")
        yield Trouble(failure.reason, alarm, failure.kind, failure.attempts, failure.retry_at)
    yield from troubles(features, topic, endanger_data=False)


def _failures(state: TopicState) -> Iterable[Failure]:
    failures = (state.failure, *(a.failure for a in state.ahead))
    return (failure for failure in failures if failure is not None and not failure.of_catalog)


def _word(topic: Topic, state: TopicState) -> str:
    if state.failure is not None:
        return "Failed"
    if state.unfinished:
        return str(state.unfinished[0].status)
    return "Paused" if topic.paused else "Caught up"
