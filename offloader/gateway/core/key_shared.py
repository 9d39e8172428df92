"""Key_Shared: each key goes to one consumer, in order."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from offloader.gateway.core.events import Decision, DispatchLimits, KeyPolicy
from offloader.gateway.core.keys import AutoSplit, Keys, Sticky
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.sharing import Sharing
from offloader.gateway.core.waiting import EntryQueue, Subscriber
from offloader.model import Place


class KeyShared(Sharing):
    """One for each key with entries that wait or are not acknowledged. A key that is to go to another consumer waits
    until the former one holds none of it any more (PIP-379), except where its consumers allow another order."""

    def __init__(
        self, policy: KeyPolicy, limits: DispatchLimits, reading: ReadAhead, decide: Callable[[Decision], None]
    ) -> None:
        super().__init__(limits, reading, decide)
        self._any_order = policy.out_of_order
        self._keys: Keys = AutoSplit() if policy.ranges is None else Sticky()
        self._queues: dict[int, EntryQueue] = {}
        self._to_serve: dict[Subscriber, None] = {}  # consumers that can take entries, and may have some
        self._without_bytes: dict[EntryQueue, None] = {}  # queues whose first entry has to be read again

    def join(self, consumer: Subscriber) -> None:
        self._keys.join(consumer)
        super().join(consumer)
        self._assign_anew()

    def leave(self, consumer: Subscriber) -> None:
        self._keys.leave(consumer)
        super().leave(consumer)
        self._assign_anew()

    def _assign_anew(self) -> None:
        """The queues go to other consumers, perhaps."""
        self._without_bytes.clear()
        for consumer in self._consumers:
            consumer.queues.clear()
        for queue in self._queues.values():
            queue.target, queue.queued_at = self._keys.owner(queue.sticky), None
        for queue in list(self._queues.values()):
            self._wake(queue)

    def _queue(self, sticky: int) -> EntryQueue:
        queue = self._queues.get(sticky)
        if queue is None:
            queue = self._queues[sticky] = EntryQueue(sticky)
            queue.target = self._keys.owner(sticky)
        return queue

    def _wake(self, queue: EntryQueue) -> None:
        first = queue.first(self._items)
        if queue.queued_at is not None and (first is None or first.place >= queue.queued_at):
            return
        if first is None:
            self._drop_where_idle(queue)
        elif queue.target is not None and not self._is_held_elsewhere(queue):
            queue.queued_at = first.place
            heappush(queue.target.queues, (first.place, queue))
            self.flow(queue.target)

    def _is_held_elsewhere(self, queue: EntryQueue) -> bool:
        return queue.holder is not None and queue.holder is not queue.target and not self._any_order

    def _enable(self, consumer: Subscriber) -> None:
        if consumer.queues:
            self._to_serve[consumer] = None

    def _dispatch(self) -> None:
        while self._to_serve and not self._blocked:
            self._serve(self._to_serve.popitem()[0])

    def _serve(self, consumer: Subscriber) -> None:
        """In the order of places, as brokers do it, as far as the order of each key allows."""
        while consumer.queues and consumer.can_take and not self._blocked:
            place, queue = heappop(consumer.queues)
            if place != queue.queued_at:  # it was queued again, at an earlier place
                continue
            queue.queued_at = None
            item = queue.first(self._items)
            if item is None or self._is_held_elsewhere(queue):
                self._drop_where_idle(queue)
            elif item.place > place:
                self._wake(queue)
            elif item.entry is None:
                self._without_bytes[queue] = None
            else:
                self._deliver(consumer, queue, item, item.entry)
                self._wake(queue)

    def _drop_where_idle(self, queue: EntryQueue) -> None:
        if not queue.held and queue.first(self._items) is None:
            self._queues.pop(queue.sticky, None)
            self._without_bytes.pop(queue, None)

    def _to_read_again(self) -> list[Place]:
        """As much as its consumer takes of each queue. Lanes of which nothing is read now come here again later."""
        if not self._without_bytes:
            return []
        found: list[Place] = []
        size = self._reading.most_bytes
        permits = {each: each.permits if each.can_take else 0 for each in self._consumers}
        queues, self._without_bytes = self._without_bytes, {}
        for queue in queues:
            if queue.queued_at is not None or queue.target is None:
                continue
            room = self._reading.most_entries - len(found)
            items = queue.next_items(self._items, permits[queue.target], room, size)
            permits[queue.target] -= sum(item.messages_left for item in items)
            to_read = [item for item in items if item.entry is None]
            found.extend(item.place for item in to_read)
            size -= sum(item.size for item in to_read)
            if not to_read:
                self._wake(queue)
        return found

    def _looks_further(self) -> bool:
        return any(each.can_take and not each.queues for each in self._consumers)
