"""Copies of what a topic has besides its entries: schemas and partitions of every topic, and its subscriptions where
`policies.archiveCursors` says so. Each is made at an interval, and soon after each seal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from offloader.config.levels import TopicPolicy
from offloader.cursors.copies import CursorCopy
from offloader.cursors.copy_store import CursorCopier, NewestCopy
from offloader.cursors.facts import FactsCopier, TopicFacts
from offloader.errors import BrokerUnavailableError, OffloadError
from offloader.lifecycle.topics.cursors.live import LiveCursors
from offloader.model import TopicName
from offloader.offload.core.topic import Topic
from offloader.offload.driver.context import Context
from offloader.offload.driver.work import WorkKind
from offloader.ports.admin import Admin

LEAST_MS = 60_000  # between two turns of a topic, however often it is sealed
log = logging.getLogger(__name__)
TOLD_EVERY_MS = 10_000
INTERVAL_MS = 3_600_000


class TopicCopying(Protocol):
    """One kind of copies."""

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """Have everything copied that is due, in the driver's thread: it only posts."""
        ...


class _Turn(NamedTuple):
    at: int
    sealed: str


class CopyTurns:
    """What was last begun of each topic."""

    def __init__(self) -> None:
        self._last: dict[TopicName, _Turn] = {}

    def due_at(self, topic: Topic, interval_ms: int) -> int:
        """When the next turn begins."""
        last = self._last.get(topic.name)
        if last is None:
            return 0
        return last.at + (interval_ms if _sealed(topic) == last.sealed else min(interval_ms, LEAST_MS))

    def begun(self, topic: Topic, now: int) -> None:
        """A turn of the topic has begun."""
        self._last[topic.name] = _Turn(now, _sealed(topic))

    def keep(self, names: Iterable[TopicName]) -> None:
        """Forget all other topics."""
        self._last = {name: self._last[name] for name in names if name in self._last}


def _sealed(topic: Topic) -> str:
    newest = topic.catalog.newest
    return "" if newest is None else newest.uuid


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
        self._agenda = context.changes.agenda()
        self._newest: dict[TopicName, NewestCopy] = {}
        self._looked_at: dict[TopicName, int] = {}  # when a look last succeeded; at first, when it was first due
        self._told_at = 0

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """See `TopicCopying`."""
        if not self._wanted:
            return
        now = self._context.clock_ms()
        for topic in self._agenda.take(topics, now):
            policy = self._policy(topic)
            due_at = self._turns.due_at(topic, policy.cursor_interval_ms)
            if not policy.archive_cursors:
                self._agenda.rest(topic.name)
                continue
            self._looked_at.setdefault(topic.name, now)
            if due_at > now:
                self._agenda.rest(topic.name, due_at)
            elif topic.readable:
                self._begin(topic, now)
        if now - self._told_at >= TOLD_EVERY_MS:
            self._told_at = now
            self._tell({name for name, topic in topics.items() if self._policy(topic).archive_cursors}, now)

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


class FactsCopying:
    """What fails is tried at the next turn."""

    def __init__(self, context: Context, states: Admin) -> None:
        self._context = context
        self._copier = FactsCopier(context.store, states, context.new_uuid)
        self._turns = CopyTurns()
        self._agenda = context.changes.agenda()
        self._known: dict[TopicName, TopicFacts] = {}

    def look(self, topics: Mapping[TopicName, Topic]) -> None:
        """See `TopicCopying`."""
        now = self._context.clock_ms()
        for topic in self._agenda.take(topics, now):
            due_at = self._turns.due_at(topic, INTERVAL_MS)
            if due_at > now:
                self._agenda.rest(topic.name, due_at)
            elif topic.readable and not topic.poll.error:
                self._begin(topic, now)
        if len(self._known) > len(topics):
            self._turns.keep(topics)
            self._known = {name: facts for name, facts in self._known.items() if name in topics}

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
