"""Under which uuids brokers have offloaded ledgers. Each answer has all of a topic's list: one is for many copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from offloader.model import TopicName
from offloader.ports.admin import Admin

KNOWN_MS = 60_000


class _Known(NamedTuple):
    at: int
    uuids: Mapping[int, str]


class OffloadedCopies:
    """For the topics that are taken over now. From any thread; at any time by one for each topic."""

    def __init__(self, admin: Admin, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._clock_ms = clock_ms
        self._known: dict[TopicName, _Known] = {}

    def uuid(self, topic: TopicName, ledger: int) -> str | None:
        """As brokers said within a minute; None: they say now that they have not offloaded the ledger."""
        now, known = self._clock_ms(), self._known.get(topic)
        if known is None or not 0 <= now - known.at < KNOWN_MS or ledger not in known.uuids:
            known = _Known(now, self._admin.offloaded_copies(topic))
            self._known[topic] = known
        return known.uuids.get(ledger)

    def doubt(self, topic: TopicName) -> None:
        """What a copy was made by was wrong: brokers are asked again."""
        self._known.pop(topic, None)

    def forget_old(self) -> None:
        """What nobody goes by any more."""
        now = self._clock_ms()
        for topic, known in list(self._known.items()):
            if not 0 <= now - known.at < KNOWN_MS:
                self._known.pop(topic, None)
