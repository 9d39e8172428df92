"""Rounds of looks at many topics: at a pace, several at a time, and what has changed is told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

from offloader.ahead import map_ahead
from offloader.errors import OffloadError, TopicNotFoundError
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.protecting.protector import Protector
from offloader.lifecycle.topics.protecting.told import LookOutcome, Told
from offloader.model import TopicName

QUIET = (LookOutcome.PROTECTED, LookOutcome.NOT_YET)


@dataclass
class ProtectionRounds:
    """`loaded`: the topics that brokers have loaded. `wait`: so many seconds, or until it is stopped: then True."""

    protector: Protector
    topics: Callable[[], Iterable[TopicName]]
    loaded: Callable[[], Collection[TopicName]]
    pool: Executor
    at_once: int
    pace: VisitPace
    clock_ms: Callable[[], int]
    wait: Callable[[float], bool]
    _told: dict[tuple[TopicName, str], tuple[LookOutcome, str]] = field(default_factory=dict, init=False)

    def round(self) -> Iterator[Told]:
        """Look at each topic once, and tell everything. Raises what brokers and metadata service raise where they do
        not say which topics there are."""
        loaded, topics = self.loaded(), list(self.topics())
        self.protector.keep(set(topics))

        def look(topic: TopicName) -> list[Told]:
            return self._look(topic, loaded=topic in loaded)

        for told in map_ahead(self.pool, look, self._paced(topics), self.at_once):
            yield from told

    def news(self, told: Iterable[Told]) -> Iterator[Told]:
        """What an operator has not been told before."""
        for one in told:
            key, said = (one.topic, one.subscription), (one.outcome, one.why)
            if one.outcome in QUIET:
                self._told.pop(key, None)
            elif one.outcome is LookOutcome.RESTORED or self._told.get(key) != said:
                self._told[key] = said
                yield one

    def _paced(self, topics: Iterable[TopicName]) -> Iterator[TopicName]:
        for topic in topics:
            if self.wait(self.pace.wait_ms(self.clock_ms()) / 1000):
                return
            yield topic

    def _look(self, topic: TopicName, *, loaded: bool) -> list[Told]:
        try:
            return self.protector.look(topic, loaded=loaded)
        except TopicNotFoundError:  # deleted meanwhile
            return []
        except OffloadError as error:
            return [Told(topic, "", LookOutcome.FAILED, why=str(error))]
