"""Topics that are dealt to another shard are passed on to it.

Each is offloaded up to an end, then the journal says to whom it goes, and then its claim says so: only the claim moves,
the subscription stays. From the journal's record on nothing is begun in the topic here, whoever has this journal: a
process that was paused may still write the claim."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice

from offloader.errors import OffloadError, OvertakenError
from offloader.metadata.state import TopicState
from offloader.model import TopicName
from offloader.offload.core.retry_schedule import RetrySchedule
from offloader.offload.core.topic import Topic
from offloader.offload.driver import retiring
from offloader.offload.driver.context import Context
from offloader.offload.driver.registry import TopicRegistry
from offloader.offload.driver.work import WorkKind

log = logging.getLogger(__name__)

LOOK_MS = 1_000
AT_A_TIME = 200  # topics that wait for their claims


class PassingOn:
    """`agrees`: whether the shard of this name is there and deals as we do, so that it will keep what it gets.
    `is_asked`: whether somebody waits for an answer about a topic."""

    def __init__(
        self,
        context: Context,
        registry: TopicRegistry,
        agrees: Callable[[str], bool],
        is_asked: Callable[[TopicName], bool] = lambda _: False,
    ) -> None:
        self._context = context
        self._registry = registry
        self._agrees = agrees
        self._is_asked = is_asked
        self._look_at = 0
        self._agenda = context.changes.agenda()  # topics that may be dealt to others
        self._absent_of: frozenset[TopicName] = frozenset()
        self._absent_strangers: list[TopicName] = []
        self._retries: dict[TopicName, RetrySchedule] = {}

    def look(self, now: int) -> None:
        """Take what is due a step further."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_MS
        leaving = self._leaving(now)
        strangers = self._strangers(now)
        self._context.metrics.shard_topics(len(strangers) + len(leaving), self._registry.waiting)
        self._pass_on(strangers, max(AT_A_TIME - len(leaving), 0))

    @property
    def all_gone(self) -> bool:
        """Whether nothing is left of a shard that is to end. From any thread."""
        found = self._registry.found
        return found.complete and not (self._registry.topics or self._context.journal.topics or found.claims.listed)

    def _strangers(self, now: int) -> list[Topic]:
        """The adopted topics that are dealt to others."""
        strangers = []
        for topic in self._agenda.take(self._registry.topics, now):
            if self._context.deal.is_dealt(topic.name):
                self._agenda.rest(topic.name)
            else:
                strangers.append(topic)
        return sorted(strangers, key=lambda topic: topic.name)

    def _pass_on(self, strangers: Iterable[Topic], most: int) -> None:
        """Have them end here, and journal those that have."""
        ready: dict[TopicName, str] = {}
        for topic in strangers:
            owner = self._context.deal.owner_of(topic.name)
            if not self._agrees(owner) or self._is_needed(topic.name):
                retiring.stays(topic)
                continue
            retiring.goes_elsewhere(self._context, topic)
            if len(ready) < most and self._is_over(topic):
                ready[topic.name] = owner
        ready |= self._absent(most - len(ready))
        self._context.journal.record(TopicState(name, passed_to=owner) for name, owner in ready.items())
        for name in ready:
            self._begin(name)

    def _absent(self, most: int) -> dict[TopicName, str]:
        """Topics of ours that Pulsar does not list: whoever has them next decides what goes of their archive."""
        deal, absent = self._context.deal, self._registry.found.claims.absent
        if absent is not self._absent_of:  # there are ever more of them, and nearly all are ours
            self._absent_of = absent
            self._absent_strangers = sorted(name for name in absent if not deal.is_dealt(name))
        here = (self._context.journal.topics, self._registry.topics)
        left = (name for name in self._absent_strangers if not any(name in known for known in here))
        free = (name for name in left if not any(self._context.work.has(kind, name) for kind in WorkKind))
        return {name: deal.owner_of(name) for name in islice(free, most) if self._agrees(deal.owner_of(name))}

    def _is_needed(self, name: TopicName) -> bool:
        """Whether somebody waits for something of the topic, perhaps for more than it would end with here; or its
        journal state stays until it is released."""
        state = self._context.state(name)
        return bool(state.requests) or state.handed_over or self._is_asked(name) or self._registry.is_awaited(name)

    def _is_over(self, topic: Topic) -> bool:
        """Whether nothing of the topic is begun or remembered here."""
        name, work = topic.name, self._context.work
        remembered = replace(self._context.state(name), paused_at=0)  # whoever has it next pauses it by itself
        if not remembered.idle or not retiring.has_ended(self._context, topic):
            return False
        return not any(work.has(kind, name) for kind in WorkKind)

    def _leaving(self, now: int) -> list[TopicName]:
        """The topics of which only the claim is missing, by the journal: also those of an earlier process."""
        states = [state for state in self._context.journal.topics.values() if state.passed_to]
        for state in states:
            name, due = state.topic, self._retries.get(state.topic, RetrySchedule())
            if state != TopicState(name, passed_to=state.passed_to):
                # Its record came late, and more was decided meanwhile: no claim was written.
                self._context.journal.record([replace(state, passed_to="")])
            elif name in self._registry.topics or due.again_at <= now:
                self._begin(name)
        return [state.topic for state in states]

    def _begin(self, name: TopicName) -> None:
        """Have the claim written. Nothing more is decided about the topic here."""
        self._registry.let_go(name)
        to = self._context.journal.topics[name].passed_to
        self._context.work.post(WorkKind.CLAIM, name, partial(self._claim, name, to), partial(self._done, name))

    def _claim(self, name: TopicName, to: str) -> None:
        """Not in the driver's thread. Safe to repeat: where the claim is not ours it was written before."""
        context = self._context
        context.journal.check_from_beside()
        context.catalogs.pass_on(context.catalogs.head(name), to, context.clock_ms())
        context.catalogs.unmark(name)
        context.pins.drop(name)

    def _done(self, name: TopicName, error: OffloadError | None) -> None:
        if isinstance(error, OvertakenError):
            raise error
        if error is not None:
            retry = self._retries.get(name, RetrySchedule())
            self._retries[name] = retry.not_committed(self._context.clock_ms(), self._context.jitter())
            log.warning("cannot pass on topic=%s yet: %s", name, error, extra={"see": "not-passed-on"})
            return
        to = self._context.journal.topics[name].passed_to
        self._context.journal.record([TopicState(name)])
        self._retries.pop(name, None)
        self._context.metrics.passed_on()
        log.info("passed on topic=%s to=%s", name, to)
