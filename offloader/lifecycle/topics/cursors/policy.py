"""The policy that marks subscriptions which nobody has used for long.

It looks at nodes first; a topic is loaded only for a subscription that its node says nobody has used for so long, and
the broker's own look decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from offloader.errors import DamagedRecordError, OffloadError, OvertakenError, TopicNotFoundError
from offloader.lifecycle.clocks import Clocks
from offloader.lifecycle.deletion.marking import Marker, MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import LedgerType, subscription_record_name
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.timing import DeletionBounds
from offloader.lifecycle.topics.cursors.former import FormerRemoval
from offloader.lifecycle.topics.cursors.kinds import SubscriptionKind, why_by_name_only
from offloader.lifecycle.topics.cursors.removal import BY_POLICY
from offloader.lifecycle.topics.cursors.stored import StoredCursor, StoredTopic, last_activity
from offloader.model import TopicName

log = logging.getLogger(__name__)

TOPICS_A_ROUND = 500  # whose nodes are read


class MarkCounts(Protocol):
    """Who counts what is done about subscriptions."""

    def cursor_removal(self, outcome: str) -> None:
        """Something was done about one."""
        ...


OpenSubscriptions = Callable[[ExitStack], SubscriptionSide]
"""Opens their side; what must be closed is left with the stack. Raises OffloadError."""


@dataclass
class UnusedSubscriptions:
    """Reaches ZooKeeper, bookies and brokers only while it works. `after_ms`: the policy's age. `interval`: seconds
    between rounds. `former`: what earlier versions have recorded, read once a round."""

    open_side: OpenSubscriptions
    queue: DeletionQueue
    after_ms: int
    interval: float
    counts: MarkCounts
    clocks: Clocks
    bounds: DeletionBounds = field(default_factory=DeletionBounds)
    former: Callable[[], Iterable[FormerRemoval]] = tuple
    name: str = "cursors"
    _next: TopicName | None = None
    _seen: dict[tuple[str, int], bool] = field(default_factory=dict)
    _decided: frozenset[tuple[TopicName, str]] = frozenset()

    def run(self) -> float:
        """See LifecycleTask. One round: marks in some topics; the next one goes on behind them."""
        if doubt := self.clocks.compare().doubt:
            log.warning("policies of time wait: %s", f"removeCursorsAfter: {doubt}", extra={"see": "clocks-in-doubt"})
            return self.interval
        pending = self._count_pending()
        if pending < self.bounds.number:
            self._decided = frozenset((one.topic, one.subscription) for one in self.former() if self._counts(one))
            with ExitStack() as stack:
                self._mark(self.open_side(stack), self.bounds.number - pending)
        return self.interval

    def _count_pending(self) -> int:
        """Each version of a record is read once: it never changes, and may be megabytes."""
        known, now = self._seen, dict[tuple[str, int], bool]()

        def passed_over(name: str, slot: int) -> bool:
            if (name, slot) in known:
                now[name, slot] = known[name, slot]
            return (name, slot) in known

        for one in self.queue.readable_of(LedgerType.SUBSCRIPTION, passed_over):
            now[one.record.name, one.slot] = not one.record.has_ended
        self._seen = now
        return sum(now.values())

    def _mark(self, side: SubscriptionSide, room: int) -> None:
        """Brokers are asked, and topics loaded, only so often a round; the next one goes on there."""
        asked = 0
        for topic in self._some_topics(side):
            for name in self._unused(side, topic):
                if asked >= min(room, self.bounds.a_round):
                    self._next = topic.topic
                    return
                asked += self._try_mark(side, topic.topic, name)

    def _try_mark(self, side: SubscriptionSide, topic: TopicName, name: str) -> bool:
        """Whether its broker was asked, who may know of a later activity than the node."""
        if (topic, name) in self._decided:
            return False
        try:
            former = self.queue.read(subscription_record_name(str(topic), name))
            if former is not None and (not former.record.has_ended or self._is_recent(former.record.ended_at)):
                return False
            look = side.brokers.look(topic, name)
            if look is None or look.last_active_ms > self.clocks.now_ms() - self.after_ms:
                return True
            now = self.clocks.now_ms
            marker = Marker(self.queue, now, None, by_name=True, dry=False, ours_ms=now)
            mark = side.mark(side.plan(topic, name), marker, BY_POLICY)
            if mark.outcome is MarkOutcome.MARKED:
                self.counts.cursor_removal("marked")
                log.info("%s: subscription %s is marked: nobody has used it for long", topic, name)
            else:
                log.info("%s: subscription %s stays: %s", topic, name, mark.why)
        except OvertakenError:
            raise
        except OffloadError as error:
            log.warning(
                "%s: subscription %s could not be looked at: %s", topic, name, error, extra={"see": "cursor-removal"}
            )
        return True

    def _is_recent(self, ended_at: int) -> bool:
        """Somebody wanted it back, or it proved to be in use: that counts as a use of it."""
        return self.clocks.now_ms() < ended_at + self.after_ms

    def _counts(self, former: FormerRemoval) -> bool:
        """Pending, or damaged: the version that began it must end it first."""
        return not former.ended_at or self._is_recent(former.ended_at)

    def _unused(self, side: SubscriptionSide, topic: StoredTopic) -> Iterator[str]:
        before = self.clocks.now_ms() - self.after_ms
        for name, cursor in topic.cursors.items():
            if side.names.kind(name) is not SubscriptionKind.USER or not _is_older(cursor, before):
                continue
            if why_by_name_only(name, cursor.state, None):  # without loading the topic
                continue
            yield name

    def _some_topics(self, side: SubscriptionSide) -> Iterator[StoredTopic]:
        """The next ones, from the one after the last round's last; then from the beginning again."""
        number = 0
        for namespace in side.stored.tree_of_topics.namespaces():
            if self._next is not None and namespace.split("/") < self._next.namespace.split("/"):
                continue
            for topic in side.stored.tree_of_topics.topics(namespace):
                if self._next is not None and topic < self._next:
                    continue
                if number == TOPICS_A_ROUND:
                    self._next = topic
                    return
                number += 1
                try:
                    yield side.stored.read(topic)
                except (TopicNotFoundError, DamagedRecordError) as error:
                    log.info("%s: its subscriptions are not looked at: %s", topic, error)
        self._next = None


def _is_older(cursor: StoredCursor, before_ms: int) -> bool:
    """By all that is stored. One that says nothing of its use is left alone."""
    active = last_activity(cursor)
    return active is not None and active < before_ms
