"""Shared: each entry goes to the consumer whose turn it is. `Sharing`: what Shared and Key_Shared have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush

from offloader.gateway.core.events import Decision, Deliver, DispatchLimits, EntryAck
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.waiting import EntryQueue, Item, Subscriber
from offloader.gateway.values import ServedEntry
from offloader.model import Place


class Sharing(ABC):
    """What is read, sent, given back, acknowledged and delayed. Each entry that is read and not acknowledged is known,
    most of them without their bytes.

    After each event `go_on` must be called. An event costs as much as it names entries; a consumer that leaves, as much
    as it holds."""

    def __init__(self, limits: DispatchLimits, reading: ReadAhead, decide: Callable[[Decision], None]) -> None:
        self._limits, self._reading, self._decide = limits, reading, decide
        self._consumers: dict[Subscriber, None] = {}
        self._items: dict[Place, Item] = {}
        self._delayed: list[tuple[int, Place]] = []  # a heap; acknowledged ones stay in it until their time
        self._now_ms = 0
        self._waiting = 0  # entries in queues, and those of them whose bytes are in memory
        self._loaded = 0
        self._loaded_bytes = 0
        self._unacknowledged = 0
        self._blocked = False  # by the bound of the subscription

    # What Shared and Key_Shared do in their own ways

    @abstractmethod
    def _queue(self, sticky: int) -> EntryQueue:
        """Where entries of a key wait."""

    @abstractmethod
    def _wake(self, queue: EntryQueue) -> None:
        """The queue's first entry may be deliverable now."""

    @abstractmethod
    def _enable(self, consumer: Subscriber) -> None:
        """The consumer can take entries, perhaps since now."""

    @abstractmethod
    def _dispatch(self) -> None:
        """Deliver what can be delivered."""

    @abstractmethod
    def _to_read_again(self) -> list[Place]:
        """Entries that could be delivered if their bytes were there."""

    @abstractmethod
    def _looks_further(self) -> bool:
        """Whether somebody can take entries, but none of those that are in memory."""

    # Events

    @property
    def wake_at_ms(self) -> int | None:
        """When the next delayed entry is due."""
        return self._delayed[0][0] if self._delayed else None

    def join(self, consumer: Subscriber) -> None:
        self._consumers[consumer] = None

    def leave(self, consumer: Subscriber) -> None:
        """Others get what it has not acknowledged. That is no redelivery: nothing is counted."""
        consumer.gone = True
        del self._consumers[consumer]
        self._free(consumer, consumer.unacknowledged)
        self._give_back(consumer.sent.values())

    def may_unsubscribe(self, consumer: Subscriber) -> bool:
        return len(self._consumers) == 1 and consumer in self._consumers

    def flow(self, consumer: Subscriber) -> None:
        """It has more permits."""
        if consumer.can_take:
            self._enable(consumer)

    def acknowledge(self, acknowledged: Iterable[EntryAck]) -> None:
        for place, left in acknowledged:
            item = self._items.get(place)
            if item is None:
                self._reading.acknowledged(place, left)
            else:
                self._shrink(item, left)

    def redeliver(self, consumer: Subscriber, places: Sequence[Place] | None, _epoch: int | None) -> None:
        """Those of these entries that the consumer holds; None: all of them. Epochs are for those who get all alone."""
        if places is None:
            items, consumer.sent = list(consumer.sent.values()), {}
        else:
            items = [consumer.sent.pop(place) for place in places if place in consumer.sent]
        for item in items:
            item.redeliveries += 1
        self._free(consumer, sum(item.messages_left for item in items))
        self._give_back(items)

    def came(self, entries: Sequence[ServedEntry]) -> None:
        for entry in entries:
            item = self._items[entry.place] = Item(entry)
            if entry.deliver_at > self._now_ms:
                heappush(self._delayed, (entry.deliver_at, entry.place))
                continue
            queue = self._queue(entry.sticky)
            queue.fresh[entry.place] = item
            item.waits = True
            self._waiting += 1
            self._load(item, entry)
            self._wake(queue)
        self._dispatch()
        self._unload_surplus(entries)

    def came_again(self, asked: Sequence[Place], entries: Sequence[ServedEntry] | None) -> None:
        """Entries that were asked for; those that are missing cannot be delivered any more. None: the read failed."""
        found = None if entries is None else {entry.place: entry for entry in entries}
        for place in asked:
            item = self._items.get(place)
            if item is None:
                continue
            if found is not None:
                entry = found.get(place)
                if entry is None or entry.left is not None:
                    self._shrink(item, 0 if entry is None or entry.left is None else entry.left)
                if entry is not None and item.messages_left:
                    self._load(item, entry)
            self._wake(self._queue(item.sticky))
        self._dispatch()
        self._unload_surplus(entries or ())

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        while self._delayed and self._delayed[0][0] <= now_ms:
            item = self._items.get(heappop(self._delayed)[1])
            if item is not None:
                self._wait_now(item)

    def go_on(self) -> None:
        """Deliver, and read."""
        self._dispatch()
        if self._reading.may_read_again:
            places = self._to_read_again()
            if places:
                self._reading.read_again(places)
        if self._reading.may_go_on and self._has_room():
            self._reading.go_on()

    # Parts of them

    def _has_room(self) -> bool:
        if self._waiting >= self._limits.look_ahead_entries or len(self._delayed) >= self._limits.delayed_entries:
            return False
        if self._loaded < self._reading.most_entries and self._loaded_bytes < self._reading.most_bytes:
            return True
        return not self._blocked and self._reading.may_read_again and self._looks_further()

    def _deliver(self, consumer: Subscriber, queue: EntryQueue, item: Item, entry: ServedEntry) -> None:
        queue.pop(item)
        self._unload(item)
        self._waiting -= 1
        item.waits = False
        item.holder = consumer
        consumer.sent[item.place] = item
        queue.held += 1
        queue.holder = consumer
        messages = item.messages_left
        consumer.permits -= messages
        consumer.unacknowledged += messages
        self._unacknowledged += messages
        if 0 < self._limits.unacknowledged_of_consumer <= consumer.unacknowledged:
            consumer.blocked = True
        if 0 < self._limits.unacknowledged_of_subscription <= self._unacknowledged:
            self._blocked = True
        if item.left != entry.left:
            entry = entry._replace(left=item.left)
        self._decide(Deliver(consumer.key, [entry], messages, item.size, item.redeliveries))

    def _shrink(self, item: Item, left: int) -> None:
        """Wherever it is. What is acknowledged as a whole is forgotten."""
        acknowledged = item.shrink(left)
        if item.holder is not None:
            self._free(item.holder, acknowledged)
        if item.left != 0:
            return
        del self._items[item.place]
        if item.waits:
            queue = self._queue(item.sticky)
            queue.fresh.pop(item.place, None)
            self._waiting -= 1
            self._unload(item)
            self._wake(queue)
        elif item.holder is not None:
            del item.holder.sent[item.place]
            self._release(item)

    def _free(self, consumer: Subscriber, messages: int) -> None:
        """It holds so many messages less. A consumer, or all of them, go on at half of the bound, as with brokers."""
        consumer.unacknowledged -= messages
        self._unacknowledged -= messages
        if consumer.blocked and consumer.unacknowledged <= self._limits.unacknowledged_of_consumer // 2:
            consumer.blocked = False
            self.flow(consumer)
        if self._blocked and self._unacknowledged <= self._limits.unacknowledged_of_subscription // 2:
            self._blocked = False
            for each in self._consumers:
                self.flow(each)

    def _give_back(self, items: Collection[Item]) -> None:
        """Their consumer does not hold them any more: others get them."""
        queues: dict[EntryQueue, None] = {}
        for item in items:
            item.holder, item.waits = None, True
            queue = self._queue(item.sticky)
            queue.held -= 1
            heappush(queue.returned, item.place)
            queues[queue] = None
        self._waiting += len(items)
        for queue in queues:
            if not queue.held:
                queue.holder = None
            self._wake(queue)

    def _release(self, item: Item) -> None:
        """It is acknowledged."""
        queue = self._queue(item.sticky)
        queue.held -= 1
        if not queue.held:
            queue.holder = None
            self._wake(queue)

    def _wait_now(self, item: Item) -> None:
        """Its time has come."""
        queue = self._queue(item.sticky)
        heappush(queue.returned, item.place)
        item.waits = True
        self._waiting += 1
        self._wake(queue)

    def _load(self, item: Item, entry: ServedEntry) -> None:
        item.entry = entry
        self._loaded += 1
        self._loaded_bytes += item.size

    def _unload(self, item: Item) -> None:
        if item.entry is not None:
            item.entry = None
            self._loaded -= 1
            self._loaded_bytes -= item.size

    def _unload_surplus(self, entries: Sequence[ServedEntry]) -> None:
        """Of what has just come and still waits, the last ones: they will be read again."""
        for entry in reversed(entries):
            if self._loaded <= self._limits.read_ahead_entries and self._loaded_bytes <= self._limits.read_ahead_bytes:
                return
            item = self._items.get(entry.place)
            if item is not None:
                self._unload(item)


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
