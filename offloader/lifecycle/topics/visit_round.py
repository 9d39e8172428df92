"""Makes many visits, few at a time and within a rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from offloader.ahead import map_ahead
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.unloaded import UnloadedTopic
from offloader.lifecycle.topics.visit_outcome import VisitEnd, VisitOutcome
from offloader.lifecycle.topics.visiting import TopicVisitor
from offloader.ports.visits import TopicVisits

STATISTICS_MS = 60_000  # as often brokers renew them


@dataclass(frozen=True)
class VisitClock:
    """Time, and how to let it pass (seconds)."""

    now_ms: Callable[[], int]
    sleep: Callable[[float], object]


@dataclass(frozen=True, slots=True)
class VisitRate:
    """As the configuration has them."""

    at_once: int
    a_minute: int


class VisitRound:
    """One at a time makes rounds."""

    def __init__(self, visitor: TopicVisitor, brokers: TopicVisits, clock: VisitClock, rate: VisitRate) -> None:
        self._visitor = visitor
        self._brokers = brokers
        self._clock = clock
        self._at_once = rate.at_once
        self._pace = VisitPace(rate.a_minute)
        self._loaded: Mapping[str, str] = {}
        self._asked_ms: int | None = None
        self._refused: set[str] = set()

    def visit(self, topics: Iterable[UnloadedTopic]) -> Iterator[VisitOutcome]:
        """In their order. In a namespace where one is not permitted, no other one is tried. Raises OffloadError."""
        self._refused.clear()
        with ThreadPoolExecutor(self._at_once, "visits") as pool:  # whatever happens, what was loaded is unloaded
            for outcome in map_ahead(pool, self._visit, self._paced(topics), self._at_once):
                if outcome.end is VisitEnd.NOT_PERMITTED:
                    self._refused.add(outcome.topic.namespace)
                yield outcome

    def _paced(self, topics: Iterable[UnloadedTopic]) -> Iterator[UnloadedTopic]:
        """Runs in the thread that takes the outcomes."""
        for topic in topics:
            if topic.topic.namespace not in self._refused:
                wait_ms = self._pace.wait_ms(self._clock.now_ms())
                if wait_ms > 0:
                    self._clock.sleep(wait_ms / 1000)
                self._look()
            yield topic

    def _look(self) -> None:
        now = self._clock.now_ms()
        if self._asked_ms is None or not 0 <= now - self._asked_ms < STATISTICS_MS:
            self._loaded = self._brokers.loaded()
            self._asked_ms = now

    def _visit(self, topic: UnloadedTopic) -> VisitOutcome:
        if topic.topic.namespace in self._refused:
            why = f"a visit in {topic.topic.namespace} was not permitted: no other is tried there"
            return VisitOutcome(topic, VisitEnd.NOT_PERMITTED, why=why)
        return self._visitor.visit(topic, self._loaded)
