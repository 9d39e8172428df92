"""Exclusive and Failover: one consumer gets all entries, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from offloader.gateway.core.events import ActiveChanged, Decision, Deliver, DispatchLimits, EntryAck
from offloader.gateway.core.hashing import HashRanges, distance, range_slot
from offloader.gateway.core.reading import ReadAhead
from offloader.gateway.core.waiting import Subscriber
from offloader.gateway.values import ServedEntry, SubscriptionType, size_of
from offloader.model import Place

_place = attrgetter("place")


class EntriesAhead:
    """Entries that were read and that the one consumer has not taken yet, in the topic's order. `size`: bytes of all of
    them."""

    def __init__(self) -> None:
        self.size = 0
        self._entries: list[ServedEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Sequence[ServedEntry]) -> None:
        """Those that come behind all others."""
        self._entries.extend(entries)
        self.size += size_of(entries)

    def take(self, permits: int) -> tuple[list[ServedEntry], int]:
        """The first ones, until they have as many messages as there are permits, or the last one has a few more. The
        entries and how many messages they have."""
        messages = count = 0
        for entry in self._entries:
            if messages >= permits:
                break
            messages += entry.messages if entry.left is None else entry.messages_left
            count += 1
        return self._first(count), messages

    def drop_up_to(self, place: Place) -> None:
        """They are acknowledged."""
        self._first(bisect_right(self._entries, place, key=_place))

    def shrink(self, place: Place, left: int) -> bool:
        """Only these messages of an entry may still be delivered. Returns whether it is here."""
        number = bisect_left(self._entries, place, key=_place)
        if number == len(self._entries) or self._entries[number].place != place:
            return False
        entry = self._entries[number]
        kept = entry.without(left)
        if kept is not None:
            self._entries[number] = kept
        else:
            del self._entries[number]
            self.size -= len(entry.data)
        return True

    def _first(self, count: int) -> list[ServedEntry]:
        taken = self._entries[:count]
        del self._entries[:count]
        self.size -= size_of(taken)
        return taken


class SingleActive:
    """What is delivered is not remembered: whoever wants it again begins anew at the mark-delete position.

    After each event `go_on` must be called."""

    def __init__(
        self,
        kind: SubscriptionType,
        topic: str,
        partition: int,
        limits: DispatchLimits,
        reading: ReadAhead,
        decide: Callable[[Decision], None],
    ) -> None:
        self._is_failover = kind == SubscriptionType.FAILOVER
        self._topic, self._partition = topic, partition
        self._delay_ms = limits.failover_delay_ms if self._is_failover else 0
        self._reading, self._decide = reading, decide
        self._consumers: dict[Subscriber, int] = {}  # with its distance on the ring
        self._active: Subscriber | None = None
        self._takes_over_ms: int | None = None
        self._now_ms = 0
        self._ahead = EntriesAhead()

    @property
    def wake_at_ms(self) -> int | None:
        """When the active consumer takes over."""
        return self._takes_over_ms

    def join(self, consumer: Subscriber) -> None:
        on_ring = self._is_failover and self._partition < 0
        self._consumers[consumer] = distance(self._topic, consumer.name) if on_ring else 0
        if not self._choose() and self._takes_over_ms is None:
            self._tell(consumer)

    def leave(self, consumer: Subscriber) -> None:
        del self._consumers[consumer]
        self._choose()

    def may_unsubscribe(self, consumer: Subscriber) -> bool:
        return len(self._consumers) == 1 and consumer is self._active

    def flow(self, _consumer: Subscriber) -> None:
        """It has more permits: `go_on` looks at them."""

    def acknowledge(self, acknowledged: Iterable[EntryAck]) -> None:
        for place, left in acknowledged:
            if not self._ahead.shrink(place, left):
                self._reading.acknowledged(place, left)

    def acknowledge_up_to(self, place: Place, left: int) -> None:
        if left:
            self.acknowledge([EntryAck(place, left)])
            place = (place[0], place[1] - 1)
        self._ahead.drop_up_to(place)
        self._reading.acknowledged_up_to(place)

    def redeliver(self, consumer: Subscriber, _places: Sequence[Place] | None, epoch: int | None) -> None:
        """All that it has not acknowledged, also where it names some: order matters more."""
        if epoch is not None and (consumer.epoch is None or epoch > consumer.epoch):
            consumer.epoch = epoch
        if consumer is self._active:
            self._rewind()

    def came(self, entries: Sequence[ServedEntry]) -> None:
        wanted = self._active.joining.key_policy.ranges if self._active and not self._is_failover else None
        if wanted:
            ranges = HashRanges(wanted)
            entries = [each for each in entries if range_slot(each.sticky) in ranges]
        self._ahead.add(entries)

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._takes_over_ms is None:
            return
        self._takes_over_ms = min(self._takes_over_ms, now_ms + self._delay_ms)  # the clock may have been set back
        if self._takes_over_ms <= now_ms:
            self._take_over()

    def go_on(self) -> None:
        """Deliver, and read."""
        active = self._active
        if active is None or self._takes_over_ms is not None:
            return
        before = self._ahead.size
        entries, messages = self._ahead.take(active.permits)
        if entries:
            active.permits -= messages
            self._decide(Deliver(active.key, entries, messages, before - self._ahead.size, epoch=active.epoch))
        has_room = len(self._ahead) < self._reading.most_entries and self._ahead.size < self._reading.most_bytes
        if has_room and self._reading.may_go_on:
            self._reading.go_on()

    def _choose(self) -> bool:
        """Returns whether another consumer is the active one from now on."""
        ranked = sorted(self._consumers, key=lambda each: (each.priority, each.name))
        first = [each for each in ranked if each.priority == ranked[0].priority]
        if self._partition >= 0:
            chosen = first[self._partition % len(first)]
        else:
            chosen = min(reversed(first), key=self._consumers.__getitem__)  # brokers: the last one at a point has it
        if chosen is self._active:
            return False
        self._active = chosen
        self._rewind()
        if not self._delay_ms:
            self._take_over()
        elif self._takes_over_ms is None:
            self._takes_over_ms = self._now_ms + self._delay_ms
        return True

    def _take_over(self) -> None:
        self._takes_over_ms = None
        for consumer in self._consumers:
            self._tell(consumer)

    def _tell(self, consumer: Subscriber) -> None:
        if self._is_failover:
            self._decide(ActiveChanged(consumer.key, consumer is self._active))

    def _rewind(self) -> None:
        self._ahead = EntriesAhead()
        self._reading.rewind()
