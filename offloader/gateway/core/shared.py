"""Shared: each entry goes to the consumer whose turn it is."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable

from offloader.gateway.core.events import Decision, DispatchLimits
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.sharing import Sharing
from offloader.gateway.core.waiting import EntryQueue, Subscriber
from offloader.model import Place


class Shared(Sharing):
    """One queue: what is redelivered goes before what is new, also where it has to be read again."""

    def __init__(self, limits: DispatchLimits, reading: ReadAhead, decide: Callable[[Decision], None]) -> None:
        super().__init__(limits, reading, decide)
        self._all = EntryQueue()
        self._turns = Turns()

    def leave(self, consumer: Subscriber) -> None:
        super().leave(consumer)
        self._turns.remove(consumer)

    def _queue(self, _sticky: int) -> EntryQueue:
        return self._all

    def _wake(self, _queue: EntryQueue) -> None:
        """It is always looked at."""

    def _enable(self, consumer: Subscriber) -> None:
        self._turns.add(consumer)

    def _dispatch(self) -> None:
        queue = self._all
        while not self._blocked:
            item = queue.first(self._items)
            if item is None or item.entry is None:
                return
            consumer = self._turns.next()
            if consumer is None:
                return
            self._deliver(consumer, queue, item, item.entry)
            self.flow(consumer)

    def _to_read_again(self) -> list[Place]:
        first = self._all.first(self._items)
        if self._blocked or first is None or first.entry is not None:
            return []
        permits = sum(each.permits for each in self._consumers if each.can_take)
        items = self._all.next_items(self._items, permits, self._reading.most_entries, self._reading.most_bytes)
        return [item.place for item in items if item.entry is None]

    def _looks_further(self) -> bool:
        return False  # whoever can take entries gets the first one


class Turns:
    """Consumers that can take entries take turns; lower priority levels go first as long as they can."""

    def __init__(self) -> None:
        self._levels: list[int] = []  # with consumers, in order
        self._queues: dict[int, deque[Subscriber]] = {}

    def add(self, consumer: Subscriber) -> None:
        """It comes last, where it is not there yet."""
        if consumer.queued:
            return
        consumer.queued = True
        queue = self._queues.get(consumer.priority)
        if queue is None:
            queue = self._queues[consumer.priority] = deque()
            insort(self._levels, consumer.priority)
        queue.append(consumer)

    def remove(self, consumer: Subscriber) -> None:
        """It is gone."""
        if consumer.queued:
            self._queues[consumer.priority].remove(consumer)
            consumer.queued = False
            self._drop_where_empty(consumer.priority)

    def next(self) -> Subscriber | None:
        """Take the one out whose turn it is."""
        while self._levels:
            level = self._levels[0]
            consumer = self._queues[level].popleft()
            consumer.queued = False
            self._drop_where_empty(level)
            if consumer.can_take:
                return consumer
        return None

    def _drop_where_empty(self, level: int) -> None:
        if not self._queues[level]:
            del self._queues[level]
            self._levels.remove(level)
