"""Protected topics: looked at, acknowledged again, kept in the bucket, and told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from offloader.cursors.core.protection import TRIES
from offloader.cursors.protection_store import ProtectionStore
from offloader.errors import BrokerUnavailableError, StoreUnavailableError, TopicNotFoundError
from offloader.lifecycle.topics.pace import VisitPace
from offloader.lifecycle.topics.protecting.protector import CHANGED, REMADE, Protector
from offloader.lifecycle.topics.protecting.rounds import ProtectionRounds
from offloader.lifecycle.topics.protecting.told import LookOutcome, Told
from offloader.model import TopicName
from offloader.ports.topic_states import SubscriptionTraits
from offloader.storage.memory import MemoryStore
from tests.cursors.forgetful_broker import ForgetfulBroker

TOPIC = TopicName("public", "default", "t")
SUB = "job"


class World:
    """A topic whose subscription `job` has more holes than its broker stores. It is the protector's looks, brokers and
    statistics. `while_attached`: what happens once the protector is a consumer."""

    def __init__(self):
        self.broker = ForgetfulBroker()
        for entry in (1, 3, 5, 7, 9):
            self.broker.acknowledge(entry, stores=True)
        self.bucket = MemoryStore()
        self.tokens = map(str, count())
        self.consumers, self.type = 0, ""
        self.is_gone = False
        self.asked = 0
        self.attached = 0
        self.while_attached = lambda: None
        self.fails = None
        self.loses = False
        self.problem = None
        self.parts_at_rest = False
        self.states = self
        self.protector = self.restarted()

    def restarted(self, *, dry_run=False):
        store = ProtectionStore(self.bucket, self.tokens.__next__)
        self.protector = Protector(self, self, store, lambda: 1000, dry_run=dry_run)
        return self.protector

    # What the protector sees.

    def look(self, topic):
        assert topic == TOPIC
        self.asked += 1
        if self.fails is not None:
            raise self.fails
        return {} if self.is_gone else {SUB: self.problem or self.broker.look()}

    def has_parts(self, _topic):
        return self.parts_at_rest

    def subscriptions(self, _topic):
        return {SUB: SubscriptionTraits(False, (), self.consumers, self.type)}

    def acknowledge_as_seen(self, topic, subscription, decide):
        assert (topic, subscription) == (TOPIC, SUB)
        self.attached += 1
        self.while_attached()
        decided = decide()
        if decided is None:
            return False
        if not self.loses:
            whole = [entry for one in decided.whole for entry in one.ids]
            assert set(whole) <= self.broker.truth
            self.broker.again(whole, [one.entry for one in decided.parts])
        return True

    # What a test asks.

    def told(self, *, loaded=True):
        return self.protector.look(TOPIC, loaded=loaded)

    def one(self, **how):
        (told,) = self.told(**how)
        return told

    def protect(self):
        assert self.one().outcome is LookOutcome.NOT_YET
        assert (self.one().outcome, self.one().entries) == (LookOutcome.PROTECTED, 2)

    def saved(self):
        return ProtectionStore(self.bucket, self.tokens.__next__).read(TOPIC)


@pytest.fixture
def world():
    return World()


def test_what_was_forgotten_is_acknowledged_again_and_read_back(world):
    world.protect()
    world.broker.crash()
    told = world.one()
    assert (told.outcome, told.entries, told.batches) == (LookOutcome.RESTORED, 2, 0)
    assert told.text == f"{TOPIC} job: acknowledged again 2 entries"
    assert world.broker.acknowledged == {1, 3, 5, 7, 9}
    world.protect()


def test_a_dry_run_changes_nothing_and_says_what_it_would_do(world):
    world.restarted(dry_run=True)
    world.protect()
    assert world.saved() == {}
    world.broker.crash()
    world.consumers, world.type = 1, "Exclusive"
    for _ in range(2):
        told = world.one()
        assert (told.outcome, told.entries) == (LookOutcome.WOULD, 2)
        assert "consumers are connected, and it is Exclusive" in told.why
    assert world.broker.acknowledged == {1, 3, 5}
    assert world.attached == 0


@pytest.mark.parametrize(("kind", "joins"), [("Shared", True), ("Exclusive", False), ("Failover", False), ("", False)])
def test_it_joins_consumers_of_a_shared_subscription_only(world, kind, joins):
    world.protect()
    world.broker.crash()
    world.consumers, world.type = 2, kind
    assert world.one().outcome is (LookOutcome.RESTORED if joins else LookOutcome.WAITING)
    world.consumers = 0
    assert (world.one().outcome is LookOutcome.RESTORED) is not joins
    assert world.broker.acknowledged == {1, 3, 5, 7, 9}


def test_what_is_protected_survives_the_protector(world):
    world.protect()
    world.restarted()
    world.broker.crash()
    assert world.one().outcome is LookOutcome.RESTORED


def test_the_bucket_has_only_what_a_broker_would_forget(world):
    assert world.saved() == {}
    world.protect()
    assert world.saved().keys() == {SUB}
    world.broker.begin_reset(0)
    world.broker.finish_reset()
    assert world.one().outcome is LookOutcome.WAITING
    assert world.saved().keys() == {SUB}
    told = world.one()
    assert (told.outcome, told.is_finding) == (LookOutcome.ENDED, True)
    assert world.saved() == {}


def test_a_topic_that_is_not_loaded_is_loaded_only_where_something_would_be_forgotten(world):
    assert world.told(loaded=False) == []
    assert world.asked == 0
    world.protect()
    world.broker.crash()
    assert world.one(loaded=False).outcome is LookOutcome.RESTORED


def test_a_topic_that_is_not_loaded_is_loaded_where_its_unload_has_stored_parts_of_batches(world):
    world.broker = ForgetfulBroker()
    world.broker.acknowledge_part(4, stores=False)
    world.broker.unload()
    world.parts_at_rest = True
    told = world.one(loaded=False)
    assert (told.outcome, told.batches) == (LookOutcome.RESTORED, 1)
    assert told.text.endswith("acknowledged again messages of 1 batch")
    assert world.broker.parts == {4}


def test_a_reset_between_the_look_and_the_acknowledgement_is_not_undone(world):
    def reset():
        world.broker.begin_reset(0)
        world.broker.finish_reset()

    world.protect()
    world.broker.crash()
    world.while_attached = reset
    told = world.one()
    assert (told.outcome, told.why) == (LookOutcome.WAITING, CHANGED)
    assert world.broker.acknowledged == {0}


def test_a_subscription_that_was_removed_meanwhile_is_told(world):
    world.protect()
    world.broker.crash()
    world.while_attached = world.broker.make_anew
    told = world.one()
    assert (told.outcome, told.why) == (LookOutcome.FAILED, REMADE)


def test_what_a_broker_does_not_show_is_told_and_tried_again(world):
    world.protect()
    world.broker.crash()
    world.loses = True
    assert world.one().outcome is LookOutcome.FAILED
    world.loses = False
    assert world.one().outcome is LookOutcome.RESTORED


def test_a_lost_connection_is_told_and_tried_again_as_long_as_it_takes(world):
    def lose():
        raise BrokerUnavailableError("gone")

    world.protect()
    world.broker.crash()
    world.while_attached = lose
    for _ in range(2 * TRIES):
        told = world.one()
        assert (told.outcome, told.why) == (LookOutcome.FAILED, "gone")
    world.while_attached = lambda: None
    assert world.one().outcome is LookOutcome.RESTORED


def test_what_cannot_be_read_waits_and_stays_protected(world):
    world.protect()
    world.problem = "no bookie answers"
    assert (world.one().outcome, world.one().why) == (LookOutcome.WAITING, "no bookie answers")
    assert world.saved().keys() == {SUB}
    world.problem = None
    world.broker.crash()
    assert world.one().outcome is LookOutcome.RESTORED


def test_a_removed_subscription_is_forgotten(world):
    world.protect()
    world.is_gone = True
    assert world.told() == []
    assert world.saved() == {}


def test_a_store_that_fails_is_written_at_the_next_look(world, monkeypatch):
    def fail(*_args, **_more):
        raise StoreUnavailableError("down")

    with monkeypatch.context() as patched:
        patched.setattr(world.bucket, "put", fail)
        world.one()
        with pytest.raises(StoreUnavailableError):
            world.one()
    assert world.saved() == {}
    world.one()
    assert world.saved().keys() == {SUB}


class Rounds:
    """Of one protected topic, and others."""

    def __init__(self, world, pool, topics=(TOPIC,)):
        self.stopped = False
        self.waited = []
        self.rounds = ProtectionRounds(
            world.protector, lambda: topics, lambda: {TOPIC}, pool, 2, VisitPace(600), lambda: 0, self.wait
        )

    def wait(self, seconds):
        self.waited.append(seconds)
        return self.stopped

    def news(self):
        return [one.outcome for one in self.rounds.news(self.rounds.round())]


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_only_news_are_told(world, pool):
    rounds = Rounds(world, pool)
    assert [rounds.news() for _ in range(3)] == [[]] * 3
    world.broker.crash()
    world.consumers, world.type = 1, "Exclusive"
    assert [rounds.news() for _ in range(2)] == [[LookOutcome.WAITING], []]
    world.consumers = 0
    assert [rounds.news() for _ in range(2)] == [[LookOutcome.RESTORED], []]
    world.broker.crash()
    world.fails = BrokerUnavailableError("down")
    assert [rounds.news() for _ in range(2)] == [[LookOutcome.FAILED], []]
    world.fails = TopicNotFoundError("gone")
    assert rounds.news() == []


def test_topics_are_looked_at_at_a_pace_until_it_is_stopped(world, pool):
    topics = tuple(TopicName("public", "default", f"t{number}") for number in range(5))
    rounds = Rounds(world, pool, topics)
    assert list(rounds.rounds.round()) == []
    assert rounds.waited == [0.0, 0.1, 0.1, 0.1, 0.1]  # the clock stands still
    rounds.stopped = True
    assert list(rounds.rounds.round()) == []
    assert len(rounds.waited) == 6


def test_what_is_not_asked_for_any_more_is_forgotten(world, pool):
    world.protect()
    world.protector.keep({TOPIC})
    assert world.one().outcome is LookOutcome.PROTECTED
    world.protector.keep(set())
    world.bucket = MemoryStore()
    assert world.protector.store.read(TOPIC).keys() == {SUB}


def test_each_outcome_says_what_it_means():
    texts = {one: Told(TOPIC, SUB, one, 1, 2, "because").text for one in LookOutcome}
    assert len(set(texts.values())) == len(LookOutcome)
    assert texts[LookOutcome.ENDED].endswith("is not protected any more: because")
    assert texts[LookOutcome.WOULD].endswith("would acknowledge 1 entry and messages of 2 batches; because")
    assert Told(TOPIC, "", LookOutcome.FAILED, why="down").text == f"{TOPIC}: failed: down"
    assert "would forget nothing" in Told(TOPIC, SUB, LookOutcome.PROTECTED).text
