"""A topic, a cursor and consumers around a dispatcher: whatever it decides is checked against the rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from offloader.gateway.core.dispatcher import Dispatcher
from offloader.gateway.core.events import (
    ActiveChanged,
    CloseConsumer,
    ConsumerKey,
    Deliver,
    DispatchLimits,
    EndReached,
    EntryAck,
    Joining,
    ReadAgain,
    ReadBehind,
)
from offloader.gateway.values import ServedEntries, ServedEntry, SubscriptionType
from offloader.model import Place

LIMITS = DispatchLimits(failover_delay_ms=0)
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
    SubscriptionType.KEY_SHARED,
)


def entry(number: int, *, messages: int = 1, sticky: int = 1, deliver_at: int = 0, size: int = 10) -> ServedEntry:
    """Three entries a ledger."""
    return ServedEntry((number // 3, number % 3), bytes(size), 0, messages, sticky, deliver_at)


def entries(count: int, *, messages: int = 1) -> list[ServedEntry]:
    return [entry(number, messages=messages) for number in range(count)]


def bits(messages: int) -> int:
    return (1 << messages) - 1


@dataclass
class Taker:
    """A consumer, as clients see it."""

    joining: Joining
    permits: int = 0
    unacknowledged: int = 0
    blocked: bool = False
    active: bool = False
    epoch: int | None = None
    got: list[Place] = field(default_factory=list)


class Delivery(NamedTuple):
    """Of one entry."""

    consumer: ConsumerKey
    entry: ServedEntry
    redeliveries: int
    epoch: int | None


class World:
    """Reads are carried out when they are decided, and answered when a test says so (`answer`), or at once."""

    def __init__(
        self,
        topic: Iterable[ServedEntry],
        limits: DispatchLimits = LIMITS,
        *,
        partition: int = -1,
        at_once: bool = True,
    ) -> None:
        self.limits = limits
        self.dispatcher = Dispatcher("persistent://public/default/topic", partition=partition, limits=limits)
        self.at_once = at_once
        self.topic = list(topic)
        self.by_place = {each.place: each for each in self.topic}
        self.left = {each.place: bits(each.messages) for each in self.topic}  # what is not acknowledged
        self.takers: dict[ConsumerKey, Taker] = {}
        self.now = 0
        self.reads: dict[int, tuple[ReadBehind | ReadAgain, ServedEntries]] = {}  # under way, with the answer to come
        self.deliveries: list[Delivery] = []
        self.told: list[ActiveChanged] = []
        self.closed: list[ConsumerKey] = []
        self.ended: list[ConsumerKey] = []
        self.forget()

    def forget(self) -> None:
        """The dispatcher knows of nothing that was delivered."""
        self.holders: dict[Place, ConsumerKey] = {}
        self.counts: dict[Place, int] = {}
        self.waiting_again: set[Place] = set()
        self.last: Place = (-1, -1)  # that was delivered in this epoch
        self.subscription_blocked = False
        for taker in self.takers.values():
            taker.unacknowledged, taker.blocked = 0, False

    @property
    def mode(self) -> Any:
        """What the dispatcher keeps: only a look into it shows that nothing is kept for ever."""
        return self.dispatcher._mode

    @property
    def kind(self) -> SubscriptionType | None:
        return next((taker.joining.type for taker in self.takers.values()), None)

    @property
    def unacknowledged(self) -> int:
        return sum(taker.unacknowledged for taker in self.takers.values())

    def got(self, key: ConsumerKey) -> list[Place]:
        return [each.entry.place for each in self.deliveries if each.consumer == key]

    # Events

    def join(self, joining: Joining) -> None:
        known = joining.key in self.takers
        self.dispatcher.join(joining)
        if not known:
            self.takers[joining.key] = Taker(joining, epoch=joining.epoch, active=joining.type == EXCLUSIVE)
        self.carry_out()

    def leave(self, key: ConsumerKey) -> None:
        taker = self.takers.pop(key)
        if not self.takers:
            self.forget()
        elif taker.joining.type.is_shared:
            for place in [place for place, holder in self.holders.items() if holder == key]:
                self.give_back(place)
            self.unblock()
        self.dispatcher.leave(key)
        self.carry_out()

    def flow(self, key: ConsumerKey, permits: int) -> None:
        self.takers[key].permits += permits
        self.dispatcher.flow(key, permits)
        self.carry_out()

    def all_of(self, place: Place) -> int:
        """The messages of an entry, as bits; of one that is not there yet some."""
        known = self.by_place.get(place)
        return bits(4 if known is None else known.messages)

    def acknowledge(self, *acknowledged: tuple[Place, int]) -> None:
        for place, left in acknowledged:
            self.shrink(place, left)
        self.unblock()
        self.dispatcher.acknowledge([EntryAck(*each) for each in acknowledged])
        self.carry_out()

    def acknowledge_up_to(self, place: Place, left: int = 0) -> None:
        if self.kind is not None and not self.kind.is_shared:
            for each in [each for each in self.left if each < place]:
                self.shrink(each, 0)
            self.shrink(place, left)
        self.dispatcher.acknowledge_up_to(place, left)
        self.carry_out()

    def redeliver(self, key: ConsumerKey, places: Sequence[Place] | None = None, epoch: int | None = None) -> None:
        taker = self.takers[key]
        if taker.joining.type.is_shared:
            for place in [each for each, holder in self.holders.items() if holder == key]:
                if places is None or place in places:
                    self.counts[place] = self.counts.get(place, 0) + 1
                    taker.unacknowledged -= self.left[place].bit_count()
                    self.give_back(place)
            self.unblock()
        else:
            if epoch is not None:
                taker.epoch = max(epoch, -1 if taker.epoch is None else taker.epoch)
            if taker.active:
                self.last = (-1, -1)
        self.dispatcher.redeliver(key, places, epoch)
        self.carry_out()

    def seek(self, to: int) -> None:
        """So many entries are acknowledged, and no others."""
        self.left = {each.place: bits(each.messages) if n >= to else 0 for n, each in enumerate(self.topic)}
        self.takers.clear()
        self.forget()
        self.dispatcher.reset()
        self.carry_out()

    def tick(self, now: int) -> None:
        self.now = max(self.now, now)
        self.dispatcher.tick(now)
        self.carry_out()

    def grow(self, *more: ServedEntry) -> None:
        self.topic.extend(more)
        self.by_place |= {each.place: each for each in more}
        self.left |= {each.place: bits(each.messages) for each in more}
        self.dispatcher.more()
        self.carry_out()

    def answer(self, request: int) -> None:
        decision, read = self.reads.pop(request)
        if isinstance(decision, ReadBehind):
            self.dispatcher.arrived(request, read)
        else:
            self.dispatcher.arrived_again(request, read.entries)
        self.carry_out()

    def fail(self, request: int) -> None:
        del self.reads[request]
        self.dispatcher.failed(request)
        self.carry_out()

    def answer_all(self) -> None:
        while self.reads:
            self.answer(min(self.reads))

    # What holds of acknowledgements

    def shrink(self, place: Place, left: int) -> None:
        if place not in self.left:
            return
        kept = self.left[place] & left
        holder = self.takers.get(self.holders.get(place))
        if holder is not None:
            holder.unacknowledged -= (self.left[place] ^ kept).bit_count()
        self.left[place] = kept
        if not kept:
            self.holders.pop(place, None)
            self.counts.pop(place, None)
            self.waiting_again.discard(place)

    def give_back(self, place: Place) -> None:
        del self.holders[place]
        self.waiting_again.add(place)

    def unblock(self) -> None:
        for taker in self.takers.values():
            if taker.unacknowledged <= self.limits.unacknowledged_of_consumer // 2:
                taker.blocked = False
        if self.unacknowledged <= self.limits.unacknowledged_of_subscription // 2:
            self.subscription_blocked = False

    # What is decided

    def carry_out(self) -> None:
        for decision in self.dispatcher.decisions():
            if isinstance(decision, Deliver):
                assert decision.size == sum(len(each.data) for each in decision.entries)
                assert decision.messages == sum(each.messages_left for each in decision.entries)
                for entry in decision.entries:
                    self.deliver(Delivery(decision.consumer, entry, decision.redeliveries, decision.epoch))
            elif isinstance(decision, (ReadBehind, ReadAgain)):
                self.begin(decision)
            elif isinstance(decision, ActiveChanged):
                self.told.append(decision)
                taker = self.takers[decision.consumer]
                if decision.is_active and not taker.active:
                    self.last = (-1, -1)  # it begins at the mark-delete position
                taker.active = decision.is_active
            elif isinstance(decision, CloseConsumer):
                self.closed.append(decision.consumer)
            else:
                assert isinstance(decision, EndReached)
                self.ended.append(decision.consumer)
        if self.at_once:
            self.answer_all()

    def begin(self, decision: ReadBehind | ReadAgain) -> None:
        assert not any(type(other) is type(decision) for other, _ in self.reads.values()), "two reads of a kind"
        if isinstance(decision, ReadBehind):
            found = [each for each in self.topic if decision.after is None or each.place > decision.after]
            found = self.cut(decision, found)
            answer = ServedEntries(self.unacknowledged_of(found), found[-1].place if found else None)
        else:
            assert decision.places
            answer = ServedEntries(self.unacknowledged_of(self.by_place[each] for each in decision.places), None)
        self.reads[decision.request] = decision, answer

    def cut(self, decision: ReadBehind, found: list[ServedEntry]) -> list[ServedEntry]:
        size = 0
        for number, each in enumerate(found[: decision.most_entries]):
            size += len(each.data)
            if size > decision.most_bytes:
                return found[: max(number, 1)]
        return found[: decision.most_entries]

    def unacknowledged_of(self, found: Iterable[ServedEntry]) -> list[ServedEntry]:
        return [
            each if self.left[each.place] == bits(each.messages) else each._replace(left=self.left[each.place])
            for each in found
            if self.left[each.place]
        ]

    def deliver(self, delivery: Delivery) -> None:
        key, place = delivery.consumer, delivery.entry.place
        taker = self.takers[key]
        assert taker.permits > 0, "permits are never exceeded but by one entry"
        assert self.left[place], "nothing that is acknowledged is delivered"
        assert delivery.entry.bits == self.left[place], "and of a batch only what is left"
        assert delivery.entry.data == self.by_place[place].data
        assert delivery.entry.deliver_at <= self.now or not taker.joining.type.is_shared, "delayed messages wait"
        if taker.joining.type.is_shared:
            self.check_shared(delivery, taker)
        else:
            self.check_single(delivery, taker)
        taker.permits -= self.left[place].bit_count()
        taker.got.append(place)
        self.deliveries.append(delivery)

    def check_single(self, delivery: Delivery, taker: Taker) -> None:
        assert taker.active
        assert delivery.epoch == taker.epoch
        assert delivery.redeliveries == 0
        following = [place for place, left in self.left.items() if left and place > self.last]
        assert delivery.entry.place == min(following), "in order, nothing left out, nothing twice in an epoch"
        self.last = delivery.entry.place

    def check_shared(self, delivery: Delivery, taker: Taker) -> None:
        key, place = delivery.consumer, delivery.entry.place
        assert place not in self.holders, "no two consumers at a time"
        assert delivery.redeliveries == self.counts.get(place, 0)
        assert delivery.epoch is None
        assert not taker.blocked, "too many unacknowledged messages"
        assert not self.subscription_blocked, "too many of the subscription"
        if self.kind == SHARED:
            able = [each for each in self.takers.values() if each.permits > 0 and not each.blocked]
            assert taker.joining.priority == min(each.joining.priority for each in able)
            is_new = place not in self.waiting_again and not delivery.entry.deliver_at
            assert not is_new or not self.waiting_again, "what is redelivered goes before what is new"
        else:
            self.check_key(delivery, taker)
        self.waiting_again.discard(place)
        self.holders[place] = key
        taker.unacknowledged += self.left[place].bit_count()
        taker.blocked = 0 < self.limits.unacknowledged_of_consumer <= taker.unacknowledged
        if 0 < self.limits.unacknowledged_of_subscription <= self.unacknowledged:
            self.subscription_blocked = True

    def check_key(self, delivery: Delivery, taker: Taker) -> None:
        policy, sticky, place = taker.joining.key_policy, delivery.entry.sticky, delivery.entry.place
        if policy.ranges is not None:
            assert any(first <= sticky <= last for first, last in policy.ranges)
        if policy.out_of_order:
            return
        same_key = [each for each in self.topic if each.sticky == sticky and self.left[each.place]]
        for each in same_key:
            assert self.holders.get(each.place, delivery.consumer) == delivery.consumer, "a key is at one consumer"
        if not delivery.entry.deliver_at:
            before = [each.place for each in same_key if each.place < place and not each.deliver_at]
            assert all(each in self.holders for each in before), "entries of a key are delivered in order"

    # The end

    def settle(self) -> None:
        """Whoever is there takes and acknowledges all it gets, until nothing happens any more."""
        self.tick(10**15)
        progress = -1
        while progress != len(self.deliveries):
            progress = len(self.deliveries)
            self.answer_all()
            self.acknowledge(*[(each.entry.place, 0) for each in self.deliveries])
            for key in list(self.takers):
                self.flow(key, 100)
            self.answer_all()

    def never_got(self) -> list[Place]:
        return [place for place, left in self.left.items() if left]
