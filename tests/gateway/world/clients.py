"""Clients that consume one subscription: they look up at any gateway, subscribe where they are led, acknowledge what
they get (all of it or a part, waiting for an answer or not), and begin anew when they hear nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from offloader.errors import OffloadError
from offloader.gateway.core.events import Deliver, EntryAck
from offloader.gateway.server.ports import SubscribedConsumer, Subscribing
from offloader.gateway.values import ServedEntry, SubscriptionType
from offloader.model import Place, TopicName

if TYPE_CHECKING:
    from tests.gateway.world.processes import GatewayProcess
    from tests.gateway.world.world import World

Message = tuple[Place, int]
PERMITS = 6
PATIENCE = (2, 30)  # seconds without an answer
SHARED_TYPES = (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)


class Link:
    """A connection with its one consumer; what is sent arrives in order. It is a `ConsumerPort`."""

    def __init__(self, client: Client, process: GatewayProcess) -> None:
        self.client, self.process = client, process
        self.subscribed: SubscribedConsumer | None = None
        self.gone = False  # as the gateway sees it
        self._up = self._down = 0.0
        process.links.append(self)

    # What the client sends

    def send(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        events = self.client.world.events
        self._up = max(self._up, events.now + self.client.latency())
        events.at(self._up, self.process.gated(lambda: self.process.task(work())))

    def broken(self) -> None:
        """By the gateway's end."""
        self.client.lost(self)

    async def leave(self) -> None:
        self.gone = True
        if self in self.process.links:
            self.process.links.remove(self)
        if self.subscribed is not None:
            self.subscribed.leave()

    # What the gateway sends

    def answer(self, happening: Callable[[], None]) -> None:
        if not self.process.dead:
            events = self.client.world.events
            self._down = max(self._down, events.now + self.client.latency())

            def arrived() -> None:
                if self.client.link is self:
                    happening()

            events.at(self._down, arrived)

    def deliver(self, what: Deliver) -> None:
        for entry in () if self.process.dead else what.entries:
            self.client.world.check_delivery(self, entry)
            self.answer(partial(self.client.received, entry))

    def active_changed(self, *, is_active: bool) -> None:
        """Clients do nothing because of it."""

    def end_reached(self) -> None:
        """Topics are not terminated."""

    def pass_permits_on(self) -> None:
        """All were passed on."""

    def closed(self) -> None:
        self.gone = True
        self.answer(lambda: self.client.lost(self))

    async def is_alive(self) -> bool:
        await asyncio.sleep(0.01)
        return self.client.link is self


class Client:
    """One consumer's. `held`: what it has got and not acknowledged: the messages that are left, as bits."""

    numbers = itertools.count()

    def __init__(self, world: World, topic: TopicName, kind: SubscriptionType, number: int) -> None:
        self.world, self.topic, self.kind, self.number = world, topic, kind, number
        self.link: Link | None = None
        self.held: dict[Place, ServedEntry] = {}
        self.patience = self.random.uniform(*PATIENCE)
        self.later(self.random.uniform(0, 2), self.look_up)

    @property
    def random(self) -> Any:
        return self.world.random

    def latency(self) -> float:
        return float(self.random.uniform(0.0005, 0.01))

    def later(self, seconds: float, happening: Callable[[], None]) -> None:
        self.world.events.after(seconds, happening)

    # Connecting

    def look_up(self, at: str = "") -> None:
        process = self.world.gateways[at or self.random.choice(sorted(self.world.gateways))]
        link = self.link = self._connect(process)
        if link is None:
            return

        async def work() -> None:
            try:
                address = await process.topics.address(self.topic, "")
            except OffloadError:
                link.answer(self._again)
            else:
                link.answer(lambda: self.subscribe(address.url))

        link.send(work)

    def subscribe(self, at: str) -> None:
        self._give_up()
        process = self.world.gateways[at]
        link = self.link = self._connect(process)
        if link is None:
            return
        asked = Subscribing(self.topic, "s", self.kind, earliest=True, consumer_name=f"c{self.number}")

        async def work() -> None:
            try:
                subscribed = await process.topics.subscribe(asked, link, "")
            except OffloadError:
                link.answer(self._again)
                return
            if link.gone:
                subscribed.leave()
                return
            link.subscribed = subscribed
            link.answer(lambda: self.flow(PERMITS))

        link.send(work)

    def lost(self, link: Link) -> None:
        """The gateway has closed it."""
        if self.link is link:
            self.link = None
            self.held.clear()
            self.later(self.random.uniform(0.05, 1), self._look_up_if_nowhere)

    def _connect(self, process: GatewayProcess) -> Link | None:
        if process.dead or not process.begun:
            self.later(self.random.uniform(0.05, 1), self._look_up_if_nowhere)
            return None
        link = Link(self, process)
        self.later(self.patience, lambda: self._check(link))
        return link

    def _check(self, link: Link) -> None:
        """As by PING; and a SUBSCRIBE that is not answered."""
        if self.link is not link:
            return
        if link.process.paused or link.process.dead or link.subscribed is None:
            self._again()
        else:
            self.later(self.patience, lambda: self._check(link))

    def _again(self) -> None:
        self._give_up()
        self.later(self.random.uniform(0.1, 1.5), self._look_up_if_nowhere)

    def _look_up_if_nowhere(self) -> None:
        if self.link is None:
            self.look_up()

    def _give_up(self) -> None:
        if self.link is not None:
            self.link.send(self.link.leave)
        self.link = None
        self.held.clear()

    def rest_for(self, seconds: float) -> None:
        """It closes its consumer, and comes back."""
        self._give_up()
        self.later(seconds, self._look_up_if_nowhere)

    def move(self) -> None:
        """To another gateway."""
        here = self.link.process.at if self.link is not None else ""
        self._give_up()
        self.look_up(self.random.choice(sorted(self.world.gateways.keys() - {here})))

    # Consuming

    def flow(self, permits: int) -> None:
        link = self.link
        assert link is not None

        async def work() -> None:
            if link.subscribed is not None and not link.gone:
                link.subscribed.flow(permits)

        link.send(work)

    def received(self, entry: ServedEntry) -> None:
        self.world.received[self.topic] |= messages(entry.place, entry.bits)
        self.held[entry.place] = entry
        link = self.link

        def taken() -> None:
            if self.link is link:
                self._think(entry)

        self.later(self.random.uniform(0.01, 2), taken)

    def _think(self, entry: ServedEntry) -> None:
        self.flow(entry.messages_left)
        if self.held.get(entry.place) is not entry:
            return
        chance = self.random.random()
        if self.world.resting or chance < 0.6:
            self.acknowledge([entry])
        elif chance < 0.7:
            left = self.random.getrandbits(entry.messages) & entry.bits
            if left and left != entry.bits:
                self.acknowledge([entry], left)
        elif chance < 0.8:
            self._redeliver(entry)
        elif chance < 0.9 and self.kind not in SHARED_TYPES:
            self._acknowledge_up_to(entry)

    def rest(self) -> None:
        """All that it has is acknowledged, until it is heard that this is durable."""
        if self.held and self.link is not None:
            self.acknowledge(list(self.held.values()), wait=True)

    def acknowledge(self, entries: Sequence[ServedEntry], left: int = 0, *, wait: bool | None = None) -> None:
        link = self.link
        assert link is not None
        acks = [EntryAck(entry.place, left) for entry in entries]
        given = {one for entry in entries for one in messages(entry.place, all_of(entry) & ~left)}
        self._send(link, given, lambda to: to.acknowledge(acks), wait=wait)
        for entry in entries:
            rest = entry.without(left)
            if rest is None and not self.world.resting:
                self.held.pop(entry.place, None)
            elif rest is not None:
                self.held[entry.place] = rest

    def _acknowledge_up_to(self, entry: ServedEntry) -> None:
        link = self.link
        assert link is not None
        given = {one for one in self.world.topics[self.topic].messages if one[0] <= entry.place}
        self._send(link, given, lambda to: to.acknowledge_up_to(entry.place, 0))
        for place in [place for place in self.held if place <= entry.place]:
            del self.held[place]

    def _send(
        self, link: Link, given: set[Message], say: Callable[[SubscribedConsumer], None], *, wait: bool | None = None
    ) -> None:
        self.world.given[self.topic] |= given
        waits = self.random.random() < 0.7 if wait is None else wait

        async def work() -> None:
            if link.subscribed is None or link.gone:
                return
            say(link.subscribed)
            if not waits:
                return
            try:
                await link.subscribed.durable()
            except OffloadError:
                return
            link.answer(lambda: self._confirmed(given))

        link.send(work)

    def _confirmed(self, given: set[Message]) -> None:
        self.world.confirm(self.topic, given)
        if self.world.resting:
            for place in [place for place in self.held if messages(place, self.held[place].bits) <= given]:
                del self.held[place]

    def _redeliver(self, entry: ServedEntry) -> None:
        link = self.link
        assert link is not None
        places = [entry.place] if self.kind in SHARED_TYPES else None
        if places is None:
            self.held.clear()
        else:
            self.held.pop(entry.place, None)

        async def work() -> None:
            if link.subscribed is not None and not link.gone:
                link.subscribed.redeliver(places, None)

        link.send(work)


def all_of(entry: ServedEntry) -> int:
    return (1 << entry.messages) - 1


def messages(place: Place, bits: int) -> set[Message]:
    return {(place, index) for index in range(bits.bit_length()) if bits >> index & 1}
