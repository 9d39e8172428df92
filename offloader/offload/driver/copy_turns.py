"""When something is copied of a topic besides its entries: at an interval, and soon after each seal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from offloader.model import TopicName
from offloader.offload.driver.topic import Topic

LEAST_MS = 60_000  # between two turns of a topic, however often it is sealed


class TopicCopying(Protocol):
    """One kind of copies."""

    def look(self, topics: Iterable[Topic]) -> None:
        """Have everything copied that is due, in the driver's thread: it only posts."""
        ...


class _Turn(NamedTuple):
    at: int
    sealed: str


class CopyTurns:
    """What was last begun of each topic."""

    def __init__(self) -> None:
        self._last: dict[TopicName, _Turn] = {}

    def is_due(self, topic: Topic, interval_ms: int, now: int) -> bool:
        """Whether a turn begins now."""
        last = self._last.get(topic.name)
        if last is None:
            return True
        waited = now - last.at
        sealed = _sealed(topic) != last.sealed
        return waited >= interval_ms or (sealed and waited >= LEAST_MS)

    def begun(self, topic: Topic, now: int) -> None:
        """A turn of the topic has begun."""
        self._last[topic.name] = _Turn(now, _sealed(topic))

    def keep(self, names: Iterable[TopicName]) -> None:
        """Forget all other topics."""
        self._last = {name: self._last[name] for name in names if name in self._last}


def _sealed(topic: Topic) -> str:
    newest = topic.catalog.newest
    return "" if newest is None else newest.uuid
