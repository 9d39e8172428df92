"""Two or three gateways over one bucket, four consumers of a topic; kills, pauses and stops at random.

And what must hold whatever happens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Any

from offloader.cursors.core.cursor import Cursor
from offloader.cursors.log import CursorLog
from offloader.errors import DamagedRecordError
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.values import ServedEntry, SubscriptionType
from offloader.metadata.layout import parse_subscription_place, subscription_folder
from offloader.model import Position, TopicName
from offloader.storage.memory import MemoryStore
from tests.gateway.world.clients import Client, Link, Message, messages
from tests.gateway.world.events import Events
from tests.gateway.world.processes import LOOK, GatewayProcess
from tests.gateway.world.topic import WorldTopic

CHAOS = 60.0  # seconds of trouble
REST = 600.0  # seconds within which rest must be reached
CONSUMERS = 4
WHAT_HAPPENS = (
    "kill",
    "kill",
    "stop",
    "pause",
    "pause",
    "pause while it writes",
    "pause while it writes",
    "blind",
    "cut off",
)


class BrokenRuleError(AssertionError):
    """Something that must always hold does not."""


class World:
    """`given`: what a client has acknowledged; `confirmed`: of that what it was told to be durable."""

    def __init__(self, seed: int, what_happens: Sequence[str] = WHAT_HAPPENS) -> None:
        self.seed, self.random = seed, Random(seed)
        self.events, self.store = Events(), MemoryStore()
        self.trouble = self.random.choice([0.3, 1.0, 1.0, 3.0])
        self.what_happens = what_happens
        self.resting = False
        self.happened = Counter[str]()
        self.defects: list[BaseException] = []
        self.given = defaultdict[TopicName, set[Message]](set)
        self.confirmed = defaultdict[TopicName, set[Message]](set)
        self.received = defaultdict[TopicName, set[Message]](set)
        self.blind: set[frozenset[str]] = set()
        names = [TopicName("public", "default", f"t{number}") for number in range(self.random.choice([1, 1, 2]))]
        self.topics = {name: WorldTopic(name, self.random) for name in names}
        for topic in self.topics.values():
            topic.grow(self.random.randint(10, 30))
        self.gateways: dict[str, GatewayProcess] = {}
        for number in range(self.random.choice([2, 2, 3])):
            self._start(f"pulsar://g{number}")
        kind = self.random.choice(list(SubscriptionType))
        self.clients = [Client(self, name, kind, number) for name in names for number in range(CONSUMERS)]

    def live(self) -> None:
        """All of it. Raises BrokenRuleError."""
        for _ in range(self.random.randint(3, 8)):
            self.events.after(self.random.uniform(1, CHAOS), self._something_happens)
        for topic in self.topics.values():
            for _ in range(self.random.randint(3, 8)):
                self.events.after(self.random.uniform(1, CHAOS), partial(topic.grow, 5))
        end = self.events.now + CHAOS
        while self.events.now < end:
            self.events.run(self.events.now + 1)
            self.check()
        self._come_to_rest()
        self._check_rest()

    def close(self) -> None:
        for process in self.gateways.values():
            if not process.dead:
                process.kill()

    # What happens

    def _start(self, at: str) -> None:
        self.gateways[at] = GatewayProcess(self, at)

    def _start_again(self, at: str) -> None:
        if self.gateways[at].dead:
            self._start(at)

    def _something_happens(self) -> None:
        process = self._victim()
        what = self.random.choice(self.what_happens)
        if process.dead or process.paused or not process.begun:
            return
        self.happened[what] += 1
        again = self.random.uniform(0.5, 15)
        if what == "kill":
            process.kill()
            self.events.after(again, lambda: self._start_again(process.at))
        elif what == "stop":
            process.stop(lambda: self.events.after(again, lambda: self._start_again(process.at)))
        elif what == "blind":
            pair = frozenset(self.random.sample(sorted(self.gateways), 2))
            self.blind.add(pair)
            self.events.after(again, lambda: self.blind.discard(pair))
        elif what == "all leave":
            for client in self.clients:
                client.rest_for(self.random.uniform(5, 12))
        elif what == "cut off for good":
            process.cut_off = not any(each.cut_off for each in self.gateways.values())
        elif what == "cut off":
            process.cut_off = True
            self.events.after(self.random.uniform(5, 60), lambda: self._reaches_the_store(process))
        elif what == "pause":
            process.pause()
            self.events.after(again, lambda: self._wake(process))
        else:
            process.pauses_at_write = True

    def paused_at_write(self, process: GatewayProcess) -> None:
        """In the middle of one: what it was to write is written when it wakes. Not all clients have left it by then."""
        process.pauses_at_write = False
        process.pause()
        self.events.after(self.random.uniform(4, 15), lambda: self._wake(process))

    def _victim(self) -> GatewayProcess:
        """Mostly one that has something to lose."""
        owners = [each for each in self.gateways.values() if not each.dead and each.begun and each.owners.owned]
        return self.random.choice(owners if owners and self.random.random() < 0.8 else list(self.gateways.values()))

    def _reaches_the_store(self, process: GatewayProcess) -> None:
        process.cut_off = False

    def _wake(self, process: GatewayProcess) -> None:
        if not process.dead and process.paused:
            if self.random.random() < 0.1:
                process.kill()
                self.happened["kill"] += 1
                self._start(process.at)
            else:
                process.wake()

    def _come_to_rest(self) -> None:
        self.resting, self.trouble = True, 0.0
        self.blind.clear()
        for at, process in list(self.gateways.items()):
            process.cut_off = process.cut_off and "cut off for good" in self.what_happens
            if process.paused and not process.dead:
                process.wake()
            if process.dead:
                self._start(at)
        until = self.events.now + REST
        while not self._all_acknowledged():
            if self.events.now >= until:
                left = {str(name): sorted(self._all(name) - self.stored(name)) for name in self.topics}
                raise BrokenRuleError(f"no rest: {left}")
            self.events.run(self.events.now + 2)
            for client in self.clients:
                client.rest()
            self.check()

    def _take_over_while_idle(self) -> None:
        """Somebody takes another gateway for dead, and asks elsewhere. No client of that one has anything to say."""
        names = sorted(self.gateways)
        self.blind = {frozenset((one, other)) for one in names for other in names if one != other}
        for client in self.clients[:: len(self.clients) // len(self.topics)]:
            client.move()
        self.events.run(self.events.now + 3)
        self.blind.clear()

    def _all_acknowledged(self) -> bool:
        return all(self.stored(name) >= self._all(name) for name in self.topics)

    def _all(self, name: TopicName) -> set[Message]:
        return self.topics[name].messages

    # What must hold

    def confirm(self, topic: TopicName, given: Iterable[Message]) -> None:
        """A client was told that this is durable."""
        self.confirmed[topic] |= set(given)
        self.check(topic)

    def check(self, *names: TopicName) -> None:
        for name in names or self.topics:
            stored = self.stored(name)
            if forgotten := self.confirmed[name] - stored:
                raise BrokenRuleError(f"confirmed, and forgotten: {sorted(forgotten)}")
            if invented := stored - self.given[name]:
                raise BrokenRuleError(f"acknowledged by nobody: {sorted(invented)}")
        if self.defects:
            raise BrokenRuleError(f"a defect: {self.defects[0]!r}") from self.defects[0]

    def check_delivery(self, link: Link, entry: ServedEntry) -> None:
        """The owner delivers nothing that was confirmed. A former one may, until it notices."""
        name = link.client.topic
        served = link.process.topics.served[name].subscriptions.get("s")
        cursor: Any = served._acks.cursor if served is not None else None
        if cursor is None or cursor._log.epoch != self._newest_epoch(name):
            self.happened["delivered by a former owner"] += 1
            return
        if again := messages(entry.place, entry.bits) & self.confirmed[name]:
            raise BrokenRuleError(f"confirmed, and delivered again by the owner: {sorted(again)}")

    def stored(self, name: TopicName) -> set[Message]:
        """What whoever reads the bucket finds acknowledged."""
        log = CursorLog(self.store, subscription_folder(name, "s"), lambda: "reader")
        found = log.newest()
        if found is None:
            return set()
        cursor = Cursor(found.record.marker)
        try:
            pieces = log.pieces(cursor.named.items())
        except DamagedRecordError as error:
            raise BrokenRuleError(str(error)) from error
        for key, piece in pieces.items():
            cursor.swap_in(key, piece)
        acknowledged = set[Message]()
        for entry in self.topics[name].entries:
            position = Position(0, *entry.place)
            if cursor.is_acknowledged(position):
                acknowledged |= messages(entry.place, entry.bits)
            elif (batch := cursor.left_of(position)) is not None:
                acknowledged |= messages(entry.place, entry.bits & ~batch.left)
        return acknowledged

    def _newest_epoch(self, name: TopicName) -> int:
        folder = subscription_folder(name, "s")
        places = (parse_subscription_place(key.removeprefix(folder)) for key, _ in self.store.list(folder))
        return max(place[0] for place in places if place is not None)

    def _check_rest(self) -> None:
        for name in self.topics:
            if never := self._all(name) - self.received[name]:
                raise BrokenRuleError(f"received by nobody: {sorted(never)}")
        self._take_over_while_idle()
        self.events.run(self.events.now + 4 * LOOK)
        claims = ClaimLog(self.store, lambda: "reader")
        before = claims.newest_of_all()
        self.events.run(self.events.now + 60)
        self.check()
        if claims.newest_of_all() != before:
            raise BrokenRuleError("gateways take topics from each other though nothing happens")
        for name in self.topics:
            claim = claims.newest(name)
            assert claim is not None
            for process in [each for each in self.gateways.values() if not each.dead]:
                served = process.topics.served.get(name)
                has = served is not None and bool(served.subscriptions)
                if has and process.name != claim.gateway and not process.cut_off:  # which cannot know
                    raise BrokenRuleError(f"{process.name} still serves {name}, which is at {claim.gateway}")
            lost = [client for client in self.clients if client.topic == name and client.link is None]
            if lost and self.clients[0].kind is not SubscriptionType.EXCLUSIVE:
                raise BrokenRuleError(f"{len(lost)} clients are nowhere")
