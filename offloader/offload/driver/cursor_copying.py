"""Copies of topics' subscriptions as part of the application: `policies.archiveCursors`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from offloader.config.levels import TopicPolicy
from offloader.cursors.copier import CursorCopier, NewestCopy
from offloader.cursors.copies import CursorCopy
from offloader.errors import BrokerUnavailableError, OffloadError
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.model import TopicName
from offloader.offload.driver.context import Context
from offloader.offload.driver.copy_turns import CopyTurns
from offloader.offload.driver.topic import Topic
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

TOLD_EVERY_MS = 10_000


class CursorCopying:
    """A look at a topic waits for no other topic's, but for a thread of its pool. What fails is tried at the next
    turn."""

    def __init__(self, context: Context, cursors: LiveCursors) -> None:
        self._context = context
        self._cursors = cursors
        self._copier = CursorCopier(context.store, context.new_uuid)
        self._wanted = context.policies.any_says("archive_cursors")
        self._policies: dict[TopicName, TopicPolicy] = {}
        self._turns = CopyTurns()
        self._newest: dict[TopicName, NewestCopy] = {}
        self._looked_at: dict[TopicName, int] = {}  # when a look last succeeded; at first, when it was first due
        self._told_at = 0

    def look(self, topics: Iterable[Topic]) -> None:
        """See `TopicCopying`."""
        if not self._wanted:
            return
        now, chosen = self._context.clock_ms(), [topic for topic in topics if self._policy(topic).archive_cursors]
        for topic in chosen:
            self._looked_at.setdefault(topic.name, now)
            if topic.readable and self._turns.is_due(topic, self._policy(topic).cursor_interval_ms, now):
                self._begin(topic, now)
        if now - self._told_at >= TOLD_EVERY_MS:
            self._told_at = now
            self._tell({topic.name for topic in chosen}, now)

    def _policy(self, topic: Topic) -> TopicPolicy:
        found = self._policies.get(topic.name)
        if found is None:
            found = self._policies[topic.name] = self._context.policies.of(topic.name)
        return found

    def _begin(self, topic: Topic, now: int) -> None:
        name, known = topic.name, self._newest.get(topic.name)
        ledgers = frozenset(span.ledger for span in topic.info.ledgers.spans)
        call = partial(self._copy, name, topic.incarnation, ledgers, known, loaded=not topic.poll.error)
        if self._context.work.post(WorkKind.CURSORS, name, call, partial(self._taken, name), wakes=lambda _: False):
            self._turns.begun(topic, now)

    def _copy(
        self, name: TopicName, incarnation: int, ledgers: frozenset[int], known: NewestCopy | None, *, loaded: bool
    ) -> NewestCopy:
        """Not in the driver's thread. `loaded`: its broker answers the pin's consumer, and so has it loaded."""
        at = self._context.clock_ms()
        found = self._cursors.read(name, loaded=loaded)
        if ledgers and not ledgers & found.ledgers:
            raise BrokerUnavailableError(f"{name}: it has none of the ledgers that it had: maybe another of its name")
        return self._copier.take(CursorCopy(name, incarnation, at, found.cursors), self._version, known)

    def _version(self) -> str:
        try:
            return self._cursors.states.version()
        except OffloadError as error:  # a copy needs no version
            log.debug("the brokers' version is not known: %s", error)
            return ""

    def _taken(self, name: TopicName, answer: NewestCopy | OffloadError) -> None:
        if isinstance(answer, OffloadError):
            self._newest.pop(name, None)  # a copy may have been written all the same
            self._context.metrics.cursor_copy_failed(name)
            log.warning("subscriptions not copied topic=%s: %s", name, answer, extra={"see": "cursors-not-copied"})
            return
        self._newest[name] = answer
        self._looked_at[name] = self._context.clock_ms()
        if answer.written:
            self._context.metrics.cursors_copied(name)

    def _tell(self, names: set[TopicName], now: int) -> None:
        self._turns.keep(names)
        self._newest = {name: one for name, one in self._newest.items() if name in names}
        self._looked_at = {name: at for name, at in self._looked_at.items() if name in names}
        self._context.metrics.cursor_copies(max((now - at for at in self._looked_at.values()), default=0) / 1000)
