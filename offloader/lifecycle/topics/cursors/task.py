"""What the application does for subscriptions, beside offloading: second phases that are due, and the policy's marks.

`CursorRemovalTask` is a LifecycleTask. The policy looks at nodes first; a topic is loaded only for a subscription that
its node says nobody has used for so long, and the broker's own look decides.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from offloader.errors import DamagedRecordError, FatalError, OffloadError, OvertakenError, TopicNotFoundError
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.record_queue import DamagedRecord
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind
from offloader.lifecycle.topics.cursors.listing import last_activity
from offloader.lifecycle.topics.cursors.machine import is_forgotten
from offloader.lifecycle.topics.cursors.records import CursorName, CursorRemoval, RemovalState
from offloader.lifecycle.topics.cursors.removals import StoredRemoval
from offloader.lifecycle.topics.cursors.service import CursorRemover
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic
from offloader.model import TopicName

log = logging.getLogger(__name__)

TOPICS_A_ROUND = 500  # whose nodes are read
BY = "policy lifecycle.removeCursorsAfter"


class RemovalCounts(Protocol):
    """Who counts removals."""

    def cursor_removals_pending(self, states: Mapping[str, int], in_flight: int) -> None:
        """What a round has found: those that have not ended, by state."""
        ...

    def cursor_removal(self, outcome: str) -> None:
        """Something was done about one."""
        ...


@dataclass
class CursorRemovalTask:
    """`after_ms`: the policy's age; None: nothing is marked by itself. `interval`: seconds between rounds."""

    remover: CursorRemover
    after_ms: int | None
    interval: float
    counts: RemovalCounts
    bounds: DeletionBounds = field(default_factory=DeletionBounds)
    name: str = "cursors"
    _next: TopicName | None = None

    def run(self) -> float:
        """See LifecycleTask. One round: what is due, and marks in some topics; the next one goes on behind them."""
        pending = self._go_on()
        if self.after_ms is not None and pending < self.bounds.number:
            self._mark(self.after_ms, self.bounds.number - pending)
        return self.interval

    def _go_on(self) -> int:
        """Second phases, no more than a round has; how many removals are pending. Old records are forgotten."""
        states, begun = Counter[str](), 0
        for stored in self.remover.removals.records():
            if isinstance(stored, DamagedRecord):
                states["damaged"] += 1
                self._warn(stored.name, f"what is recorded of it cannot be read: {stored.why}")
                continue
            record = stored.record
            if record.has_ended:
                self._forget(stored)
                continue
            if begun < self.bounds.a_round and record.is_in_flight:
                after = self._step(stored)
                begun += after != record
                record = after or record
            if not record.has_ended:
                states[str(record.state)] += 1
            if record.state is RemovalState.UNDOING:
                self._warn(record.name, "its undo was interrupted: call it again")
        self.counts.cursor_removals_pending(states, states[RemovalState.MARKED] + states[RemovalState.REMOVING])
        return states.total() - states["damaged"]

    def _step(self, stored: StoredRemoval) -> CursorRemoval | None:
        """How it stands then; None: nobody can say."""
        record = stored.record
        try:
            after = self.remover.go_on(stored)
        except OvertakenError:
            raise
        except OffloadError as error:
            self.counts.cursor_removal("failed")
            self._warn(record.name, str(error))
            return None
        if after.state is RemovalState.GIVEN_UP:
            self.counts.cursor_removal("gave up")
            log.warning(
                "%s: the removal of subscription %s was given up: %s",
                after.topic, after.subscription, after.reason,
                extra={"see": "cursor-removal-given-up"},
            )  # fmt: skip
        elif after != record:
            self.counts.cursor_removal(str(after.state) if after.has_ended else "failed")
            log.info("%s: subscription %s: %s %s", record.topic, record.subscription, after.state, after.reason)
        return after

    def _warn(self, name: CursorName, why: str) -> None:
        log.warning("%s: the removal of subscription %s waits: %s", *name, why, extra={"see": "cursor-removal"})

    def _forget(self, stored: StoredRemoval) -> None:
        if is_forgotten(stored.record, self.remover.clock_ms(), self.remover.timing):
            self.remover.removals.remove(stored)

    def _mark(self, after_ms: int, room: int) -> None:
        """Brokers are asked, and topics loaded, only so often a round; the next one goes on there."""
        asked = 0
        for topic in self._some_topics():
            for name in self._unused(topic, after_ms):
                if asked >= min(room, self.bounds.a_round):
                    self._next = topic.topic
                    return
                asked += self._try_mark(topic.topic, name, after_ms)

    def _try_mark(self, topic: TopicName, name: str, after_ms: int) -> bool:
        """Whether its broker was asked, who may know of a later activity than the node."""
        try:
            former = self.remover.removals.read((topic, name))
            if former is not None and (not former.record.has_ended or self._was_decided(former, after_ms)):
                return False
            look = self.remover.brokers.look(topic, name)
            if look is None or look.last_active_ms > self.remover.clock_ms() - after_ms:
                return True
            self.remover.mark(topic, name, BY)
            self.counts.cursor_removal("marked")
            log.info("%s: subscription %s is marked: nobody has used it for long", topic, name)
        except OvertakenError:
            raise
        except FatalError as error:
            log.info("%s: subscription %s stays: %s", topic, name, error)
        except OffloadError as error:
            log.warning(
                "%s: subscription %s could not be looked at: %s", topic, name, error, extra={"see": "cursor-removal"}
            )
        return True

    def _was_decided(self, former: StoredRemoval, after_ms: int) -> bool:
        """Somebody wanted it back, or it proved to be in use: that counts as a use of it."""
        return self.remover.clock_ms() < former.record.ended_at + after_ms

    def _unused(self, topic: StoredTopic, after_ms: int) -> Iterator[str]:
        before = self.remover.clock_ms() - after_ms
        for name, cursor in topic.cursors.items():
            if self.remover.names.kind(name) is SubscriptionKind.USER and _is_older(cursor, before):
                yield name

    def _some_topics(self) -> Iterator[StoredTopic]:
        """The next ones, from the one after the last round's last; then from the beginning again."""
        number = 0
        for namespace in self.remover.stored.namespaces():
            if self._next is not None and namespace.split("/") < self._next.namespace.split("/"):
                continue
            for topic in self.remover.stored.topics(namespace):
                if self._next is not None and topic < self._next:
                    continue
                if number == TOPICS_A_ROUND:
                    self._next = topic
                    return
                number += 1
                try:
                    yield self.remover.stored.read(topic)
                except (TopicNotFoundError, DamagedRecordError) as error:
                    log.info("%s: its subscriptions are not looked at: %s", topic, error)
        self._next = None


def _is_older(cursor: StoredCursor, before_ms: int) -> bool:
    """By all that is stored. One that says nothing of its use is left alone."""
    active = last_activity(cursor)
    return active is not None and active < before_ms
