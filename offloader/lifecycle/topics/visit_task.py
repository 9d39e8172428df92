"""`lifecycle.visitUnloaded`: the application looks for topics that nobody has loaded, and visits them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator

from offloader.lifecycle.topics.unloaded import CANNOT_BE_VISITED, QUIET_MS, UnloadedTopic
from offloader.lifecycle.topics.visit_outcome import UnloadedLook, VisitCounts, VisitOutcome
from offloader.lifecycle.topics.visit_plan import VisitBasis
from offloader.lifecycle.topics.visiting import STATISTICS_MS, VisitParts
from offloader.model import TopicName

log = logging.getLogger(__name__)

SHARE_MS = 30_000
"""One call takes so long, at most: other tasks wait in the same thread."""
DAY_MS = 86_400_000


class UnloadedTopicsTask:
    """A `LifecycleTask`. `opened`: opens what it needs, for each look at all topics anew. `interval_ms`: between two
    of these. `stopping`: whether to end soon.

    What it remembers is only what was in vain: a restart forgets that, at the price of one more visit.
    """

    name = "unloaded-topics"

    def __init__(
        self,
        opened: Callable[[], VisitParts],
        interval_ms: int,
        clock_ms: Callable[[], int],
        counts: VisitCounts,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._opened = opened
        self._interval_ms = interval_ms
        self._clock_ms = clock_ms
        self._stopping = stopping
        self._counts = counts
        self._look = UnloadedLook()
        self._troubles: dict[str, int] = {}
        self._parts: VisitParts | None = None
        self._basis: VisitBasis | None = None
        self._to_plan: deque[str] = deque()
        self._due: deque[UnloadedTopic] = deque()
        self._in_vain: dict[TopicName, int] = {}
        self._basis_ms = 0
        self._begun_ms: int | None = None

    def run(self) -> float:
        now = self._clock_ms()
        wait = self._until_next(now)
        if self._parts is None and not self._to_plan and wait > 0:
            return wait
        try:
            self._parts = self._parts or self._begin(now)
            self._go_on(self._parts, now)
        except BaseException:
            self._end()  # the namespaces that are left have their turn when this is tried again
            raise
        if self._to_plan or self._due:
            return 0.0
        self._end()
        self._tell_look(self._look)
        return self._until_next(self._clock_ms())

    def _begin(self, now_ms: int) -> VisitParts:
        parts = self._parts = self._opened()
        if not self._to_plan:
            self._begun_ms, self._look = now_ms, UnloadedLook()
            self._in_vain = {topic: until for topic, until in self._in_vain.items() if until > now_ms}
            self._to_plan.extend(parts.reader.namespaces())
        return parts

    def _end(self) -> None:
        parts, self._parts, self._basis = self._parts, None, None
        self._due.clear()
        if parts is not None:
            parts.close()

    def _until_next(self, now_ms: int) -> float:
        """Seconds. A clock that was put back makes nobody wait longer than an interval."""
        if self._begun_ms is None:
            return 0.0
        left = self._begun_ms + self._interval_ms - now_ms
        return min(max(left, 0), self._interval_ms) / 1000

    def _go_on(self, parts: VisitParts, begun_ms: int) -> None:
        """Plan until something is due, then visit, both within a share of time."""
        while self._is_left(begun_ms) and not self._due and self._to_plan:
            self._plan(parts, self._to_plan.popleft())
        outcomes = list(parts.round.visit(self._share(begun_ms))) if self._due else []
        for outcome in outcomes:
            self._take(outcome)
        if outcomes:
            _tell(outcomes)

    def _share(self, begun_ms: int) -> Iterator[UnloadedTopic]:
        while self._due and self._is_left(begun_ms):
            yield self._due.popleft()

    def _is_left(self, begun_ms: int) -> bool:
        return abs(self._clock_ms() - begun_ms) < SHARE_MS and not self._stopping()

    def _plan(self, parts: VisitParts, namespace: str) -> None:
        now = self._clock_ms()
        if self._basis is None or not 0 <= now - self._basis_ms < STATISTICS_MS:
            self._basis, self._basis_ms = parts.planner.basis(), now
        for one in parts.planner.plan(parts.reader, namespace, self._basis):
            in_vain = self._in_vain.get(one.topic, 0) > now
            self._look.take(one, now, in_vain=in_vain)
            if isinstance(one, UnloadedTopic) and one.due(now) and not in_vain:
                self._due.append(one)

    def _take(self, outcome: VisitOutcome) -> None:
        self._counts.visited(outcome.end.name.lower().replace("_", " "), outcome.freed)
        log.debug("%s: %s, %d bytes freed %s", outcome.topic, outcome.end, outcome.freed, outcome.why or outcome.left)
        if outcome.in_vain:
            time_ms = outcome.planned.retention.time_ms
            pause = max(QUIET_MS, min(DAY_MS if time_ms is None else time_ms, DAY_MS))
            self._in_vain[outcome.topic] = self._clock_ms() + pause

    def _tell_look(self, look: UnloadedLook) -> None:
        """What an operator has to do something about is told once, until it is more or less."""
        self._counts.unloaded_topics(look.due, look.not_freed, look.passed_over)
        troubles = {str(why): look.passed_over[str(why)] for why in look.first if why in CANNOT_BE_VISITED}
        for why, first in look.first.items():
            if str(why) in troubles and troubles[str(why)] != self._troubles.get(str(why)):
                log.warning(
                    "%d topics that nobody has loaded cannot be visited, %s; the first: %s: %s",
                    troubles[str(why)], why, first.topic, first.detail or why,
                    extra={"see": "unloaded-not-visited"},
                )  # fmt: skip
        self._troubles = troubles


def _tell(outcomes: list[VisitOutcome]) -> None:
    freed = sum(one.freed for one in outcomes)
    log.info("%d topics that nobody had loaded were visited: retention freed %d bytes", len(outcomes), freed)
    troubled = [one for one in outcomes if one.why or one.left_by_mistake]
    if troubled:
        first = troubled[0]
        log.warning(
            "%d of %d visits of unloaded topics did not go as they should; the first: %s: %s",
            len(troubled), len(outcomes), first.topic, first.why or first.left,
            extra={"see": "unloaded-topics"},
        )  # fmt: skip
