"""Who has a topic: a living gateway keeps it, a dead one's is taken, and nobody takes from each other for ever."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import pytest

from offloader._proto import metadata_pb2 as pb
from offloader.errors import OutcomeUnknownError, StoreUnavailableError
from offloader.gateway.owners.claim_log import ClaimLog
from offloader.gateway.owners.owners import TopicOwners
from offloader.gateway.protocol.answers import Address
from offloader.gateway.topics.workers import Workers
from offloader.gateway.values import LookUpAgainError
from offloader.metadata.envelope import wrap
from offloader.metadata.layout import GATEWAYS, gateway_claims_folder
from offloader.model import TopicName
from offloader.storage.memory import MemoryStore
from tests.fakes.faulty import Effect, FaultyStore, StoreFault, StoreFaults

AWAY = 30.0
FIRST_TRUCE = 10.0
IDLE = 60.0
LATE = 5.0

TOPIC = TopicName("acme", "orders", "placed")
OTHER = TopicName("acme", "orders", "paid")


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time a test moves."""

    moved = 0.0

    def time(self) -> float:
        return super().time() + self.moved


@dataclass
class Gateways:
    """Gateways over one bucket. `dead`: the addresses at which nobody answers."""

    loop: Clock
    store: MemoryStore = field(default_factory=MemoryStore)
    dead: set[str] = field(default_factory=set)
    lost: list[tuple[str, TopicName]] = field(default_factory=list)
    workers: Workers = field(default_factory=Workers)
    tokens: Iterator[int] = field(default_factory=itertools.count)

    def start(self, at: str, *faults: StoreFault) -> TopicOwners:
        async def is_living(address: Address) -> bool:
            return address.url not in self.dead

        async def made() -> TopicOwners:
            store = FaultyStore(self.store, StoreFaults(faults))
            claims = ClaimLog(store, lambda: f"t{next(self.tokens)}")
            name = f"{at}-{next(self.tokens)}"
            owners = TopicOwners(claims, name, lambda: Address(at), is_living, self.workers, lambda: 17)
            owners.lost = lambda topic: self.lost.append((at, topic))
            return owners

        return self.loop.run_until_complete(made())

    def where(self, owners: TopicOwners, topic: TopicName = TOPIC) -> str:
        return self.loop.run_until_complete(owners.address(topic)).url

    def own(self, owners: TopicOwners, topic: TopicName = TOPIC) -> Callable[[], bool]:
        async def owned() -> Callable[[], bool]:
            found = await owners.own(topic)
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # former claims are removed
            return found

        return self.loop.run_until_complete(owned())

    def refused(self, owners: TopicOwners, topic: TopicName = TOPIC) -> bool:
        with pytest.raises(LookUpAgainError):
            self.own(owners, topic)
        return True

    def done(self, work: Awaitable[list]) -> None:
        async def waited() -> list:
            return await work

        assert not self.loop.run_until_complete(waited())


@pytest.fixture
def gateways() -> Iterator[Gateways]:
    loop = Clock()
    made = Gateways(loop)
    yield made
    made.workers.close()
    loop.close()


def test_looking_a_topic_up_writes_nothing_and_readers_need_no_owner(gateways) -> None:
    one = gateways.start("a")
    assert gateways.where(one) == "a"
    assert not list(gateways.store.list(GATEWAYS))


def test_the_first_who_subscribes_has_the_topic_and_all_others_are_led_there(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    is_ours = gateways.own(one)
    assert is_ours()
    assert (gateways.where(one), gateways.where(two)) == ("a", "a")
    assert gateways.where(two, OTHER) == "b"
    assert gateways.refused(two)
    assert is_ours()


def test_a_dead_gateways_topic_is_the_next_ones(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    is_ours = gateways.own(one)
    gateways.dead.add("a")
    assert gateways.where(two) == "b"
    gateways.own(two)
    gateways.dead.clear()
    gateways.done(one.look())
    assert gateways.lost == [("a", TOPIC)]
    assert not is_ours()
    assert gateways.where(one) == "b"
    assert gateways.refused(one)


def test_a_claim_that_cannot_be_read_keeps_nobody_from_noticing_the_others(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    for topic in (TOPIC, OTHER):
        gateways.own(one, topic)
    gateways.dead.add("a")
    for topic in (TOPIC, OTHER):
        gateways.own(two, topic)
    newest = max(key for key, _ in gateways.store.list(gateway_claims_folder(TOPIC)))
    whole, _ = gateways.store.read(newest)
    gateways.store.put(newest, wrap("t", pb.Body(), format_version=99))  # which a gateway of tomorrow wrote
    assert len(gateways.loop.run_until_complete(one.look())) == 1
    assert gateways.lost == [("a", OTHER)]
    gateways.store.put(newest, whole)
    gateways.done(one.look())
    assert gateways.lost == [("a", OTHER), ("a", TOPIC)]


def test_who_was_overtaken_notices_also_at_the_next_lookup(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    gateways.own(one)
    gateways.dead.add("a")
    gateways.own(two)
    assert gateways.where(one) == "b"
    assert gateways.lost == [("a", TOPIC)]
    gateways.done(one.look())
    assert gateways.lost == [("a", TOPIC)]


def test_a_gateway_that_was_started_again_takes_what_the_process_before_it_had(gateways) -> None:
    gateways.own(gateways.start("a"))
    again, two = gateways.start("a"), gateways.start("b")
    assert gateways.where(two) == "a"
    assert gateways.where(again) == "a"
    gateways.own(again)
    assert gateways.where(two) == "a"


def test_who_stops_gives_its_topics_to_anybody_and_takes_none(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    gateways.own(one)
    gateways.own(one, OTHER)
    gateways.done(one.release())
    assert gateways.refused(one)
    assert gateways.where(two) == "b"
    gateways.own(two)
    assert len(list(gateways.store.list(GATEWAYS))) == 2  # numbers are fences, one stays of each topic


def test_two_who_cannot_reach_each_other_do_not_take_a_topic_from_each_other_for_ever(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    gateways.dead |= {"a", "b"}
    turns, moved = 0, 0.0
    for _ in range(1000):
        for owners in (one, two):
            gateways.done(owners.look())
            try:
                gateways.own(owners)
            except LookUpAgainError:
                continue
        turns = len(gateways.lost)
        gateways.loop.moved += LATE / 5
        moved += LATE / 5
    assert 2 <= turns <= 2 * (moved / FIRST_TRUCE) ** 0.5  # each time they wait twice as long


def test_who_was_paused_believes_that_the_other_one_is_dead_when_it_is(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    gateways.own(one)
    gateways.dead.add("a")
    gateways.own(two)
    gateways.loop.moved += 2 * LATE  # the pause of the first one
    gateways.done(one.look())
    gateways.dead = {"b"}
    gateways.own(one)
    assert gateways.where(one) == "a"


def test_a_claim_whose_answer_was_lost_is_found(gateways) -> None:
    one = gateways.start("a", StoreFault("put", Effect.LOST))
    with pytest.raises(OutcomeUnknownError):
        gateways.own(one)
    assert gateways.own(one)()
    assert not gateways.lost


def test_many_who_subscribe_at_the_same_time_need_one_claim(gateways) -> None:
    one = gateways.start("a")

    async def all_of_them() -> list[Callable[[], bool]]:
        return await asyncio.gather(*(one.own(TOPIC) for _ in range(20)))

    assert all(is_ours() for is_ours in gateways.loop.run_until_complete(all_of_them()))
    assert not gateways.lost


def pass_time(gateways: Gateways, owners: TopicOwners, seconds: float) -> None:
    for _ in range(int(seconds)):
        gateways.loop.moved += 1
        gateways.done(owners.watch())


def test_a_gateway_that_does_not_reach_the_store_leaves_its_topics_to_others_until_it_does(gateways) -> None:
    away = StoreFault("*", times=10**6)
    one, two = gateways.start("a", away), gateways.start("b")
    told: list[str] = []
    one.away = lambda: told.append("away")
    away.times = 0
    gateways.own(one)
    away.times = 10**6
    pass_time(gateways, one, AWAY - 1)
    assert not one.is_away
    assert gateways.where(two) == "a"
    pass_time(gateways, one, 3)
    assert one.is_away
    with pytest.raises(StoreUnavailableError, match="30 s"):
        gateways.where(one)
    gateways.dead.add("a")  # it gives no sign of life
    gateways.own(two)
    away.times = 0
    gateways.done(one.look())
    assert not one.is_away
    assert (told, gateways.lost) == (["away"], [("a", TOPIC)])
    assert gateways.where(one) == "b"


def test_a_gateway_that_was_paused_has_not_lost_the_store(gateways) -> None:
    one = gateways.start("a")
    gateways.own(one)
    gateways.loop.moved += 10 * AWAY
    gateways.done(one.watch())
    assert not one.is_away


def test_a_gateway_without_topics_has_nothing_to_leave(gateways) -> None:
    one = gateways.start("a", StoreFault("*", times=10**6))
    pass_time(gateways, one, 2 * AWAY)
    assert not one.is_away


def test_what_nobody_uses_is_given_back_and_is_the_next_ones(gateways) -> None:
    one, two = gateways.start("a"), gateways.start("b")
    is_ours = gateways.own(one)
    gateways.done(one.give_back(TOPIC))
    assert is_ours(), "somebody has just asked for it"
    gateways.loop.moved += IDLE + 1
    gateways.done(one.give_back(TOPIC))
    assert not is_ours()
    assert not gateways.lost
    assert gateways.where(two) == "b"
    gateways.own(two)
    assert gateways.where(one) == "b"
    assert one.counts == {"claimed": 1, "overtaken": 0, "released": 1}


def test_a_look_asks_once_for_all_topics(gateways) -> None:
    asked: list[str] = []
    one = gateways.start("a", StoreFault("list", Effect.HOOK, times=1000, hook=lambda: asked.append("list")))
    topics = [TopicName("acme", "orders", f"t{number}") for number in range(50)]
    for topic in topics:
        gateways.own(one, topic)
    asked.clear()
    gateways.done(one.look())
    assert len(asked) == 1
    assert one.owned.keys() == set(topics)
