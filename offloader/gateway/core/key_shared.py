"""Key_Shared: each key goes to one consumer, in order."""

from __future__ import annotations

from collections.abc import Callable

from offloader.gateway.core.consumer import Consumer
from offloader.gateway.core.events import Decision, KeyPolicy, Limits
from offloader.gateway.core.keys import AutoSplit, Keys, Sticky
from offloader.gateway.core.reading import Reading
from offloader.gateway.core.sharing import Sharing
from offloader.gateway.core.waiting import Lane
from offloader.model import Place


class KeyShared(Sharing):
    """A lane for each key with entries that wait or are not acknowledged. A key that is to go to another consumer waits
    until the former one holds none of it any more (PIP-379), except where its consumers allow another order."""

    def __init__(self, policy: KeyPolicy, limits: Limits, reading: Reading, decide: Callable[[Decision], None]) -> None:
        super().__init__(limits, reading, decide)
        self._any_order = policy.out_of_order
        self._keys: Keys = AutoSplit() if policy.ranges is None else Sticky()
        self._lanes: dict[int, Lane] = {}
        self._to_serve: dict[Consumer, None] = {}  # consumers that can take entries, and may have some
        self._without_bytes: dict[Lane, None] = {}  # lanes whose first entry has to be read again

    def join(self, consumer: Consumer) -> None:
        self._keys.join(consumer)
        super().join(consumer)
        self._assign_anew()

    def leave(self, consumer: Consumer) -> None:
        self._keys.leave(consumer)
        super().leave(consumer)
        self._assign_anew()

    def _assign_anew(self) -> None:
        """The lanes go to other consumers, perhaps."""
        self._without_bytes.clear()
        for consumer in self._consumers:
            consumer.lanes.clear()
        for lane in self._lanes.values():
            lane.target, lane.queued = self._keys.owner(lane.sticky), False
        for lane in list(self._lanes.values()):
            self._wake(lane)

    def _lane(self, sticky: int) -> Lane:
        lane = self._lanes.get(sticky)
        if lane is None:
            lane = self._lanes[sticky] = Lane(sticky)
            lane.target = self._keys.owner(sticky)
        return lane

    def _wake(self, lane: Lane) -> None:
        if lane.queued:
            return
        if lane.first(self._items) is None:
            self._drop_where_idle(lane)
        elif lane.target is not None and not self._is_held_elsewhere(lane):
            lane.queued = True
            lane.target.lanes.append(lane)
            self.flow(lane.target)

    def _is_held_elsewhere(self, lane: Lane) -> bool:
        return lane.holder is not None and lane.holder is not lane.target and not self._any_order

    def _enable(self, consumer: Consumer) -> None:
        if consumer.lanes:
            self._to_serve[consumer] = None

    def _dispatch(self) -> None:
        while self._to_serve and not self._blocked:
            self._serve(self._to_serve.popitem()[0])

    def _serve(self, consumer: Consumer) -> None:
        """Keys take turns."""
        while consumer.lanes and consumer.can_take and not self._blocked:
            lane = consumer.lanes.popleft()
            item = lane.first(self._items)
            if item is None or self._is_held_elsewhere(lane):
                lane.queued = False
                self._drop_where_idle(lane)
            elif item.entry is None:
                lane.queued = False
                self._without_bytes[lane] = None
            else:
                self._deliver(consumer, lane, item, item.entry)
                consumer.lanes.append(lane)

    def _drop_where_idle(self, lane: Lane) -> None:
        if not lane.held and lane.first(self._items) is None:
            self._lanes.pop(lane.sticky, None)
            self._without_bytes.pop(lane, None)

    def _to_read_again(self) -> list[Place]:
        """As much as its consumer takes of each lane. Lanes of which nothing is read now come here again later."""
        if not self._without_bytes:
            return []
        found: list[Place] = []
        size = self._reading.most_bytes
        permits = {each: each.permits if each.can_take else 0 for each in self._consumers}
        lanes, self._without_bytes = self._without_bytes, {}
        for lane in lanes:
            if lane.queued or lane.target is None:
                continue
            room = self._reading.most_entries - len(found)
            items = lane.next_items(self._items, permits[lane.target], room, size)
            permits[lane.target] -= sum(item.messages_left for item in items)
            to_read = [item for item in items if item.entry is None]
            found.extend(item.place for item in to_read)
            size -= sum(item.size for item in to_read)
            if not to_read:
                self._wake(lane)
        return found

    def _looks_further(self) -> bool:
        return any(each.can_take and not each.lanes for each in self._consumers)
