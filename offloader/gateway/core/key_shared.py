"""Key_Shared: which consumer gets which keys, by their hashes; each key goes to one consumer, in order."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Protocol

from offloader.gateway.core.events import Decision, DispatchLimits, KeyPolicy
from offloader.gateway.core.hashing import POINTS, name_hash, range_slot, ring_slot
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.shared import Sharing
from offloader.gateway.core.waiting import EntryQueue, Subscriber
from offloader.gateway.values import STICKY_HASHES, ErrorCode, RefusedError
from offloader.model import Place


class Keys(Protocol):
    """The slots, 1..65535, of consumers that are there. `sticky`: the hash of a key, 31 bits."""

    def join(self, consumer: Subscriber) -> Iterable[int]:
        """The slots that are its own now. Raises RefusedError, then has changed nothing."""
        ...

    def leave(self, consumer: Subscriber) -> Iterable[int]:
        """The slots that were its own."""
        ...

    def slot(self, sticky: int) -> int: ...

    def owner(self, sticky: int) -> Subscriber | None: ...


class AutoSplit:
    """Brokers' ring: each consumer has points by its name, and the keys up to each of them.

    Consumers of the same name are told apart by the lowest number that is free."""

    def __init__(self) -> None:
        self._points: list[int] = []
        self._at: dict[int, list[Subscriber]] = {}  # the first one has the point
        self._names: dict[str, NameNumbers] = {}
        self._known: dict[Subscriber, tuple[int, array[int]]] = {}  # its number, and its points

    def join(self, consumer: Subscriber) -> Iterable[int]:
        number = self._names.setdefault(consumer.name, NameNumbers()).take()
        points = array("H", ring_points(consumer.name, number))
        self._known[consumer] = number, points
        for point in points:
            if point not in self._at:
                insort(self._points, point)
            self._at.setdefault(point, []).append(consumer)
        return self._slots(consumer, points)

    def leave(self, consumer: Subscriber) -> Iterable[int]:
        number, points = self._known.pop(consumer)
        slots = self._slots(consumer, points)
        if self._names[consumer.name].give_back(number):
            del self._names[consumer.name]
        for point in points:
            self._at[point].remove(consumer)
            if not self._at[point]:
                del self._at[point]
                del self._points[bisect_left(self._points, point)]
        return slots

    def slot(self, sticky: int) -> int:
        return ring_slot(sticky)

    def owner(self, sticky: int) -> Subscriber | None:
        if not self._points:
            return None
        at = bisect_left(self._points, self.slot(sticky))
        return self._at[self._points[at % len(self._points)]][0]

    def _slots(self, consumer: Subscriber, points: Iterable[int]) -> list[int]:
        """Those up to each of its points that no other consumer has."""
        slots: list[int] = []
        for point in points:
            if self._at[point][0] is consumer:
                at = bisect_left(self._points, point)
                if at:
                    slots.extend(range(self._points[at - 1] + 1, point + 1))
                else:
                    slots.extend(range(1, point + 1))
                    slots.extend(range(self._points[-1] + 1, STICKY_HASHES))
        return slots


class NameNumbers:
    """Numbers of consumers that have the same name, the lowest first."""

    def __init__(self) -> None:
        self._free: list[int] = []  # a heap, of those below `_next`
        self._next = 0

    def take(self) -> int:
        """The lowest one that is free."""
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> bool:
        """Whether all are free now."""
        heappush(self._free, number)
        return len(self._free) == self._next


def ring_points(name: str, number: int) -> Iterable[int]:
    """Of a consumer, each once."""
    return dict.fromkeys(ring_slot(name_hash(f"{name}\0{number}\0{point}")) for point in range(POINTS))


class Sticky:
    """Each consumer has the ranges that it named. Keys in no range wait for somebody who has them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int, Subscriber]] = []  # in order, none overlaps another

    def join(self, consumer: Subscriber) -> Iterable[int]:
        wanted = list(consumer.joining.key_policy.ranges or ())
        if not wanted:
            raise RefusedError(ErrorCode.CONSUMER_ASSIGN, "Ranges for KeyShared policy must not be empty.")
        if any(first > last for first, last in wanted):
            raise RefusedError(ErrorCode.CONSUMER_ASSIGN, "Fixed hash range start > end")
        ours = [(first, last, consumer) for first, last in wanted]
        ranges = sorted([*self._ranges, *ours], key=lambda each: each[:2])
        for (_, last, one), (first, _, other) in pairwise(ranges):
            if first <= last:
                name = (other if one is consumer else one).name
                raise RefusedError(ErrorCode.CONSUMER_ASSIGN, f"Range conflict with consumer {name}")
        self._ranges = ranges
        return _slots_of(ours)

    def leave(self, consumer: Subscriber) -> Iterable[int]:
        slots = _slots_of(each for each in self._ranges if each[2] is consumer)
        self._ranges = [each for each in self._ranges if each[2] is not consumer]
        return slots

    def slot(self, sticky: int) -> int:
        return range_slot(sticky)

    def owner(self, sticky: int) -> Subscriber | None:
        slot = self.slot(sticky)
        at = bisect_right(self._ranges, slot, key=lambda each: each[0]) - 1
        if at < 0 or self._ranges[at][1] < slot:
            return None
        return self._ranges[at][2]


def _slots_of(ranges: Iterable[tuple[int, int, Subscriber]]) -> list[int]:
    """Those in a consumer's ranges."""
    return [slot for first, last, _ in ranges for slot in range(max(first, 1), min(last + 1, STICKY_HASHES))]


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
        self._in_slot: dict[int, dict[EntryQueue, None]] = {}  # the same queues
        self._to_serve: dict[Subscriber, None] = {}  # consumers that can take entries, and may have some
        self._idle: dict[Subscriber, None] = {}  # consumers that could take entries and had none, when last looked at
        self._without_bytes: dict[EntryQueue, None] = {}  # queues whose first entry has to be read again

    def join(self, consumer: Subscriber) -> None:
        slots = self._keys.join(consumer)
        super().join(consumer)
        for queue in self._assign(slots):
            self._wake(queue)

    def leave(self, consumer: Subscriber) -> None:
        queues = self._assign(self._keys.leave(consumer))
        consumer.queues.clear()
        self._idle.pop(consumer, None)
        self._to_serve.pop(consumer, None)
        super().leave(consumer)
        for queue in queues:
            self._wake(queue)

    def _assign(self, slots: Iterable[int]) -> list[EntryQueue]:
        """Queues of these slots, which go to other consumers now; those of all others stay where they are."""
        queues = [queue for slot in slots for queue in self._in_slot.get(slot, ())]
        for queue in queues:
            queue.target, queue.queued_at = self._keys.owner(queue.sticky), None
            self._without_bytes.pop(queue, None)
        return queues

    def _queue(self, sticky: int) -> EntryQueue:
        queue = self._queues.get(sticky)
        if queue is None:
            queue = self._queues[sticky] = EntryQueue(sticky)
            queue.target = self._keys.owner(sticky)
            self._in_slot.setdefault(self._keys.slot(sticky), {})[queue] = None
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
        (self._to_serve if consumer.queues else self._idle)[consumer] = None

    def _dispatch(self) -> None:
        while self._to_serve and not self._blocked:
            self._serve(self._to_serve.popitem()[0])

    def _serve(self, consumer: Subscriber) -> None:
        """In the order of places, as brokers do it, as far as the order of each key allows."""
        while consumer.queues and consumer.can_take and not self._blocked:
            place, queue = heappop(consumer.queues)
            if place != queue.queued_at or queue.target is not consumer:  # it was queued again, or elsewhere
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
        if consumer.can_take and not consumer.queues:
            self._idle[consumer] = None

    def _drop_where_idle(self, queue: EntryQueue) -> None:
        if not queue.held and queue.first(self._items) is None:
            if self._queues.pop(queue.sticky, None) is not None:
                slot = self._keys.slot(queue.sticky)
                del self._in_slot[slot][queue]
                if not self._in_slot[slot]:
                    del self._in_slot[slot]
            self._without_bytes.pop(queue, None)

    def _to_read_again(self) -> list[Place]:
        """As much as its consumer takes of each queue. Lanes of which nothing is read now come here again later."""
        if not self._without_bytes:
            return []
        found: list[Place] = []
        size = self._reading.most_bytes
        permits: dict[Subscriber, int] = {}
        queues, self._without_bytes = self._without_bytes, {}
        for queue in queues:
            if queue.queued_at is not None or queue.target is None:
                continue
            target = queue.target
            left = permits.setdefault(target, target.permits if target.can_take else 0)
            room = self._reading.most_entries - len(found)
            items = queue.next_items(self._items, left, room, size)
            permits[target] -= sum(item.messages_left for item in items)
            to_read = [item for item in items if item.entry is None]
            found.extend(item.place for item in to_read)
            size -= sum(item.size for item in to_read)
            if not to_read:
                self._wake(queue)
        return found

    def _looks_further(self) -> bool:
        while self._idle:
            consumer = next(iter(self._idle))
            if consumer.can_take and not consumer.queues:
                return True
            del self._idle[consumer]
        return False
