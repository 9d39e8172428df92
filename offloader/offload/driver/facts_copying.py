"""Copies of topics' schemas and partitions as part of the application: of every topic, once an hour and after seals."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from offloader.cursors.facts import FactsCopier
from offloader.cursors.facts_codec import TopicFacts
from offloader.errors import OffloadError
from offloader.model import TopicName
from offloader.offload.driver.context import Context
from offloader.offload.driver.copy_turns import CopyTurns
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind
from offloader.ports.topic_states import TopicStates

log = logging.getLogger(__name__)

INTERVAL_MS = 3_600_000


class FactsCopying:
    """What fails is tried at the next turn."""

    def __init__(self, context: Context, states: TopicStates) -> None:
        self._context = context
        self._copier = FactsCopier(context.store, states, context.new_uuid)
        self._turns = CopyTurns()
        self._known: dict[TopicName, TopicFacts] = {}

    def look(self, topics: Iterable[Topic]) -> None:
        """See `TopicCopying`."""
        now, everything = self._context.clock_ms(), list(topics)
        for topic in everything:
            if topic.readable and not topic.poll.error and self._turns.is_due(topic, INTERVAL_MS, now):
                self._begin(topic, now)
        if len(self._known) > len(everything):
            names = {topic.name for topic in everything}
            self._turns.keep(names)
            self._known = {name: facts for name, facts in self._known.items() if name in names}

    def _begin(self, topic: Topic, now: int) -> None:
        name, terminated = topic.name, topic.info.terminated
        call = partial(self._copier.take, name, now, self._known.get(name), terminated=terminated)
        if self._context.work.post(WorkKind.FACTS, name, call, partial(self._taken, name), wakes=lambda _: False):
            self._turns.begun(topic, now)

    def _taken(self, name: TopicName, answer: TopicFacts | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._context.metrics.facts_failed()
            log.warning("schemas not copied topic=%s: %s", name, answer, extra={"see": "facts-not-copied"})
        else:
            self._known[name] = answer
