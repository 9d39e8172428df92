"""Topics go to the shards that they are dealt to: no entry twice, none missing, and at every moment one shard knows
what is begun."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from offloader.bridge.log import BridgeLog
from offloader.errors import HeldByShardError, OvertakenError
from offloader.metadata.catalog import Catalogs
from offloader.metadata.deal import ALONE, Deal
from offloader.metadata.layout import claim_key
from offloader.metadata.state import CloseRequest
from offloader.model import Position, RollReason, TopicName
from offloader.offload.driver import retiring
from offloader.offload.driver.adoption import adopt
from offloader.offload.driver.discovery import DiscoveredTopics
from offloader.offload.driver.passing_on import PassingOn
from offloader.offload.driver.work import Attempt, WorkKind
from tests.bridge.driver.simulation import ReadablePolicies
from tests.examples import few
from tests.in_turn import InTurn
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

TOPICS = [TopicName.parse(f"public/default/t{number}") for number in range(12)]
TWO = Deal("sim", 0, 2)
MOVING = [topic for topic in TOPICS if TWO.index_of(topic) == 1]


@dataclass
class Shard(Simulation):
    others: bool = True  # whether the others are there, and deal as this one does
    deal: Deal = field(default_factory=lambda: TWO)

    def agrees(self, name: str) -> bool:
        return self.others

    def owners(self) -> dict[TopicName, str]:
        heads = Catalogs(self.store, "").heads(TOPICS).found
        return {topic: head.claim.application for topic, head in heads.items() if head.claim is not None}


def alone(seed: int = 1) -> Shard:
    """An application that has all topics, with something in each."""
    first = Shard(seed, roll="5s", deal=Deal("sim"))
    for topic in TOPICS:
        first.cluster.create(topic)
    first.rounds(2)
    for topic in TOPICS:
        first.produce(topic, 7)
    first.settle()
    for topic in TOPICS:
        first.produce(topic, 3)
    first.rounds(1)
    return first


def sharded(first: Shard) -> Shard:
    """The same, started anew as the first of two shards."""
    first.deal = TWO
    first.kill()
    return first


def second(first: Shard) -> Shard:
    return Shard(
        first.seed, roll="5s", application="sim~1", cluster_of=first, store=first.store, deal=Deal("sim", 1, 2)
    )


def together(*shards: Shard, rounds: int = 60) -> None:
    for _ in range(rounds):
        for shard in shards:
            shard.rounds(1, step_ms=2_000)


def check(*shards: Shard) -> None:
    for shard in shards:
        shard.settle()
    truths = {topic: truth_of_cluster(shards[0].cluster, topic) for topic in TOPICS}
    assert shards[0].store is not None
    check_invariants(shards[0].store, truths, at_rest=True)
    assert all(not Catalogs(shards[0].store, "").load(topic).losses for topic in TOPICS)


@pytest.mark.parametrize("seed", few(range(5), 1))
def test_topics_go_where_they_are_dealt_to_and_nothing_is_missing(seed: int) -> None:
    first = sharded(alone(seed))
    other = second(first)
    for _ in range(20):
        for topic in TOPICS:
            first.produce(topic, 1)
        together(first, other, rounds=3)
    together(first, other)
    assert first.owners() == {topic: TWO.owner_of(topic) for topic in TOPICS}
    assert set(other.registry.topics) == set(MOVING)
    assert set(first.registry.topics) == set(TOPICS) - set(MOVING)
    assert not any(state.passed_to for state in first.journal.topics.values())
    assert set(first.context.catalogs.claimed()) == set(first.registry.topics)
    assert set(other.context.catalogs.claimed()) == set(MOVING)
    check(first, other)
    reasons = {s.roll_reason for topic in MOVING for s in Catalogs(first.store, "").load(topic).segments}
    assert RollReason.PASSED_ON in reasons


def test_a_shard_that_is_not_there_gets_nothing_and_its_topics_go_on() -> None:
    first = sharded(alone())
    first.others = False
    together(first, rounds=20)
    for topic in TOPICS:
        first.produce(topic, 5)
    check(first)
    assert set(first.owners().values()) == {"sim"}


def test_what_was_to_go_stays_where_the_other_shard_goes_away_first() -> None:
    first = sharded(alone())
    first.rounds(2)
    assert {name for name, topic in first.registry.topics.items() if topic.retirement is not None} == set(MOVING)
    first.others = False
    together(first, rounds=3)
    assert all(topic.retirement is None for topic in first.registry.topics.values())
    check(first)


def test_a_topic_that_another_shard_has_is_waited_for_and_nothing_is_asked_meanwhile() -> None:
    first = sharded(alone())
    first.others = False
    other = second(first)
    together(first, other, rounds=3)
    assert other.registry.waiting == len(MOVING)
    assert not other.registry.refused
    assert other.registry.settled
    with pytest.raises(HeldByShardError):
        adopt(other.context, MOVING[0], other.config.policies.of(MOVING[0]), Attempt())


class Never(InTurn):
    """Nothing is ever done."""

    def submit(self, call: object, /, *args: object, **named: object) -> object:  # type: ignore[override]
        return NotDone()


class NotDone:
    def add_done_callback(self, _: object) -> None:
        pass


@pytest.mark.parametrize("claimed", few([False, True], 1))
def test_a_shard_that_ends_between_its_record_and_the_claim_has_begun_nothing_and_the_next_process_goes_on(
    claimed: bool,
) -> None:
    first = sharded(alone())
    first.executors[WorkKind.CLAIM] = Never()
    other = second(first)
    together(first, other, rounds=20)
    leaving = {state.topic for state in first.journal.topics.values() if state.passed_to}
    assert leaving == set(MOVING)
    assert not leaving & set(first.registry.topics)
    for topic in MOVING:
        first.produce(topic, 5)
        if claimed:
            catalogs = Catalogs(first.store, "sim")
            catalogs.pass_on(catalogs.head(topic), "sim~1", 1)
    first.kill()
    together(first, other)
    assert set(other.registry.topics) == set(MOVING)
    check(first, other)


def test_a_process_that_was_paused_in_the_middle_of_it_passes_on_what_its_successor_would() -> None:
    first = sharded(alone())
    first.executors[WorkKind.CLAIM] = Never()
    together(first, rounds=20)
    zombie, zombies_passing = first.context, first.passing_on
    heads = {topic: zombie.catalogs.head(topic) for topic in MOVING}
    first.pins.close()  # its brokers have noticed
    first.start()
    other = second(first)
    with pytest.raises(OvertakenError):
        zombies_passing._claim(MOVING[0], "sim~1")
    for head in heads.values():
        zombie.catalogs.pass_on(head, "sim~1", 2)  # it had asked before it was paused
    together(first, other)
    assert first.owners() == {topic: TWO.owner_of(topic) for topic in TOPICS}
    check(first, other)


@pytest.mark.large
def test_topics_come_back_where_there_is_one_shard_again() -> None:
    first = sharded(alone())
    other = second(first)
    together(first, other)
    first.deal = Deal("sim")
    first.kill()
    other.deal = Deal("sim", 1, 1)  # nothing is dealt to it: whoever runs it has it end
    other.kill()
    for topic in TOPICS:
        first.produce(topic, 5)
    for shard in (first, other):
        for _ in range(3):
            shard.rounds(20, step_ms=2_000)
    first.clock.now += 600_000
    together(first, other)
    assert set(first.owners().values()) == {"sim"}
    assert not other.registry.topics
    assert not other.journal.topics
    check(first)


def test_topics_that_are_paused_go_too_and_the_other_shard_holds_their_subscriptions() -> None:
    first = alone()
    first.settle()
    first.enabled = False
    other = second(sharded(first))
    other.enabled = False
    other.kill()
    together(first, other)
    assert first.owners() == {topic: TWO.owner_of(topic) for topic in TOPICS}
    assert set(other.registry.topics) == set(MOVING)
    assert all(other.pins.holds(topic) for topic in MOVING)
    check(first, other)


def test_the_claim_of_a_topic_that_is_not_listed_any_more_goes_to_the_shard_that_decides_of_its_archive() -> None:
    first = alone()
    first.settle()
    first.close()
    gone = MOVING[0]
    first.cluster.delete(gone)
    first.deal = TWO
    first.start()
    other = second(first)
    together(first, other)
    assert first.owners() == {topic: TWO.owner_of(topic) for topic in TOPICS}
    assert not first.driver.state(gone).passed_to


def test_a_shard_that_is_to_end_says_when_nothing_is_left() -> None:
    first = Shard(1, roll="5s", deal=Deal("sim", 0, 1))
    for topic in TOPICS:
        first.cluster.create(topic)
    ending = Shard(1, roll="5s", application="sim~1", cluster_of=first, store=first.store, deal=Deal("sim", 1, 2))
    ending.rounds(2)
    assert set(ending.registry.topics) == set(MOVING)
    ending.deal = Deal("sim", 1, 1)
    ending.kill()
    passing = ending.passing_on
    gone = [passing.all_gone]
    together(first, ending)
    assert [*gone, passing.all_gone] == [False, True]
    assert set(first.registry.topics) == set(TOPICS)


def test_an_application_without_shards_says_how_to_get_their_topics() -> None:
    first = sharded(alone())
    other = second(first)
    together(first, other)
    first.deal = ALONE
    first.kill()
    first.rounds(3)
    assert set(first.registry.refused) == set(MOVING)
    assert "with shards: {count: 1} in the configuration its topics come here" in first.registry.refused[MOVING[0]]


def test_a_record_that_comes_late_is_taken_back_where_more_was_decided_meanwhile() -> None:
    first = sharded(alone())
    first.others = False
    together(first, rounds=3)
    for topic in MOVING:
        first.produce(topic, 3)
    first.rounds(3)
    name = next(topic for topic in MOVING if first.driver.state(topic).open is not None)
    first.journal.record([replace(first.driver.state(name), passed_to="sim~1")])
    first.rounds(3)
    assert not first.driver.state(name).passed_to
    assert name in first.registry.topics
    check(first)


def test_a_subscription_that_the_former_process_still_holds_is_no_trouble_at_first() -> None:
    first = sharded(alone())
    first.others = False
    first.rounds(2)
    held = first.pins
    first.start()  # beside the one that has the subscriptions
    first.rounds(3)
    assert not first.registry.topics
    assert not first.registry.refused
    assert not first.registry.settled
    first.rounds(10, step_ms=10_000)
    assert set(first.registry.refused) == set(TOPICS)
    held.close()
    first.rounds(10)
    assert set(first.registry.topics) == set(TOPICS)
    assert not first.registry.refused


@pytest.mark.large
def test_a_topic_that_brokers_are_to_read_stays_and_goes_on_being_offloaded() -> None:
    """The journal remembers it until it is released: it would end here, and nobody would have what follows."""
    first = sharded(alone())
    name = MOVING[0]
    first.journal.record([replace(first.driver.state(name), handed_over=True)])
    other = second(first)
    together(first, other)
    assert set(other.registry.topics) == set(MOVING[1:])
    for topic in TOPICS:
        first.produce(topic, 3)
    check(first, other)
    first.journal.record([replace(first.driver.state(name), handed_over=False)])
    together(first, other)
    assert set(other.registry.topics) == set(MOVING)
    check(first, other)


@pytest.mark.large
def test_a_topic_that_the_list_of_claims_has_lost_is_passed_on_all_the_same() -> None:
    """Whoever waits for it tells its owner, who knows of what is dealt to others by that list alone."""
    first = alone()
    first.settle()
    first.close()
    assert first.store is not None
    first.store.delete([claim_key("sim", topic) for topic in MOVING])
    first.deal = TWO
    first.start()
    together(first, second(first), rounds=3)
    other = second(first)
    together(first, other)
    assert first.owners() == {topic: TWO.owner_of(topic) for topic in TOPICS}
    assert set(other.registry.topics) == set(MOVING)
    check(first, other)


def test_what_is_not_listed_any_more_is_passed_on_once() -> None:
    first = alone()
    first.settle()
    first.close()
    first.cluster.delete(MOVING[0])
    first.deal = TWO
    first.start()
    first.registry.found._interval_ms = 3_600_000
    passed: list[TopicName] = []
    passing = first.passing_on
    begin = passing._begin

    def counted(name: TopicName) -> None:
        passed.append(name)
        begin(name)

    passing._begin = counted
    together(first, rounds=20)
    assert passed.count(MOVING[0]) <= 2  # journaled, and looked at while it is under way


def test_topics_that_are_gone_are_asked_about_once_however_often_the_list_of_claims_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = sharded(alone())
    first.settle()
    gone = TOPICS[3]
    first.cluster.delete(gone)
    asked: list[TopicName] = []

    def is_open(_: BridgeLog, name: TopicName) -> bool:
        asked.append(name)
        return False

    monkeypatch.setattr(BridgeLog, "is_open", is_open)
    policies: Any = ReadablePolicies(first.context.policies, SimpleNamespace(readable=True))
    found = DiscoveredTopics(replace(first.context, policies=policies), 1_000, [])
    for _ in range(5):
        _, claims = found._discover(set())
        assert claims.absent == {gone}
    assert asked == [gone]
    first.cluster.create(gone)
    assert found._discover(set())[1].absent == set()
    first.cluster.delete(gone)
    assert found._discover(set())[1].absent == {gone}
    assert asked == [gone, gone]


def waits_for_its_turn(first: Shard) -> TopicName:
    """A topic that has come to its end for another shard, before more was written into it."""
    name, passing = MOVING[0], first.passing_on
    passing._is_over = lambda topic: False
    first.rounds(40)
    retirement = first.registry.topics[name].retirement
    assert retirement is not None
    assert retirement.reason is RollReason.PASSED_ON
    first.produce(name, 5)
    first.rounds(5)
    return name


def last_of(first: Shard, name: TopicName) -> tuple[int, int]:
    return max((e.ledger, e.entry) for e in first.cluster.entries(name))


@pytest.mark.large
def test_a_topic_that_waits_for_its_turn_is_released_only_up_to_its_present_end() -> None:
    first = sharded(alone())
    name = waits_for_its_turn(first)
    first.release(name)
    first.rounds(60, step_ms=2_000)
    assert name not in first.registry.topics
    end = first.context.catalogs.head(name).end
    assert end is not None
    assert (end.ledger, end.entry) == last_of(first, name)


@pytest.mark.large
def test_a_topic_that_waits_for_its_turn_goes_on_where_somebody_asks_for_more_of_it() -> None:
    first = sharded(alone())
    name = waits_for_its_turn(first)
    wanted = CloseRequest("id", Position(0, *last_of(first, name)))
    assert retiring.end_asked_for(first.registry.topics[name], first.clock.now) is None, "its end is to be looked up"
    first.journal.record([replace(first.driver.state(name), requests=(wanted,))])
    first.driver._passing_on = PassingOn(first.context, first.registry, first.agrees)
    other = second(first)
    together(first, other)
    end = first.context.catalogs.head(name).end
    assert end is not None
    assert (end.ledger, end.entry) == last_of(first, name)
    first.journal.record([replace(first.driver.state(name), requests=())])  # who asked has the answer
    together(first, other)
    assert set(other.registry.topics) == set(MOVING)
    check(first, other)
