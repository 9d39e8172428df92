"""One service over all sides, killed at any write to the bucket, to ZooKeeper or to a broker: each marked ledger, each
object and each subscription is deleted exactly once or told, none is told twice, none is lost. The queue is in the
bucket whose objects go."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random

import pytest

from integration.soak import SOAK
from offloader.lifecycle.bucket.quarantine import ObjectQuarantine
from offloader.lifecycle.bucket.side import BucketSide
from offloader.lifecycle.deletion.marking import Marker, MarkOutcome
from offloader.lifecycle.deletion.queue import DeletionQueue
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, LedgerType
from offloader.lifecycle.deletion.service import DeletionRules, LedgerDeletionService
from offloader.lifecycle.deletion.subscription_side import SubscriptionSide
from offloader.lifecycle.deletion.timing import DeletionBounds, DeletionTiming
from offloader.lifecycle.topics.cursors.kinds import SubscriptionNames
from offloader.lifecycle.topics.cursors.nodes import StoredTopics
from offloader.metadata import layout
from offloader.model import TopicName
from offloader.ports.subscriptions import SubscriptionLook
from offloader.storage.forwarding import ForwardingStore
from tests.archive.support import TOPIC
from tests.examples import few
from tests.fakes.cluster_subscriptions import HeldCursor, MemorySubscriptions
from tests.fakes.ledger_metadata import MemoryMetadata
from tests.invariants import check_invariants
from tests.lifecycle.bucket.support import a_uuid, archive, scanner
from tests.lifecycle.bucket.test_bucket_side import strays

from .cluster import DyingNodes, KilledError
from .test_service import DELETED, Setting, Told

LEDGERS, SEGMENTS, SUBSCRIPTIONS, KILLS = (1000, 334, 500, 100) if SOAK else (40, 14, 20, 20)
OBJECTS = 3 * SEGMENTS  # data, index, and the record beside them
WRITES = 3 * (LEDGERS + OBJECTS + SUBSCRIPTIONS) // KILLS  # of a life, about
READS = ("read", "stat", "list", "list_uploads", "keeps_versions")
KEPT = (DeletionState.KEPT, DeletionAnswer.DOES_NOT_MATCH)
IN_USE = (DeletionState.KEPT, DeletionAnswer.STILL_IN_USE)
PARTS = (layout.data_key, layout.index_key, layout.record_key)


class Life:
    """A process. It dies before or after one of its writes, and does nothing more."""

    def __init__(self, rng: Random | None = None) -> None:
        self._left = rng.randrange(1, WRITES) if rng else -1
        self._with_effect = bool(rng and rng.random() < 0.5)
        self._lock = threading.Lock()
        self.dead = False

    def write(self, work):
        with self._lock:
            self.alive()
            self._left -= 1
            self.dead = self._left == 0
            if self.dead and not self._with_effect:
                raise KilledError
            answer = work()
            self.alive()
            return answer

    def alive(self) -> None:
        if self.dead:
            raise KilledError


class MortalStore(ForwardingStore):
    """What a process has of the bucket. `deleted`: objects that a call of any process has taken away."""

    def __init__(self, store, life: Life, deleted: Counter[str]) -> None:
        super().__init__(store)
        self._life, self._deleted = life, deleted

    def delete_if(self, key: str, etag: str) -> bool:
        def counted() -> bool:
            there = self.store.stat(key) is not None
            done = self.store.delete_if(key, etag)
            self._deleted[key] += there and done
            return done

        return self._life.write(counted)

    def _call(self, verb, key, work):
        if verb not in READS:
            return self._life.write(work)
        self._life.alive()
        return work()


class MortalNodes(DyingNodes):
    """What it has of ZooKeeper."""

    def __init__(self, cluster, life: Life) -> None:
        super().__init__(cluster, Random(0))
        self._life = life

    def set(self, path, value, version):
        return self._life.write(lambda: super(MortalNodes, self).set(path, value, version))

    def multi(self, operations):
        self._life.write(lambda: super(MortalNodes, self).multi(operations))


class MortalBrokers:
    """What it has of brokers. `deleted`: subscriptions that a call of any process has taken away."""

    def __init__(self, brokers: MemorySubscriptions, life: Life, deleted: Counter[str]) -> None:
        self._brokers, self._life, self._deleted = brokers, life, deleted

    def look(self, topic: TopicName, subscription: str) -> SubscriptionLook | None:
        self._life.alive()
        return self._brokers.look(topic, subscription)

    def delete(self, topic: TopicName, subscription: str) -> None:
        def counted() -> None:
            self._brokers.delete(topic, subscription)
            self._deleted[f"subscription {subscription} of {topic}"] += 1

        self._life.write(counted)


class ToldByName(Told):
    def ended(self, record):
        self.ends.append(record.name)


class ClusterClock:
    """ZooKeeper's, the store's and ours."""

    def __init__(self, network) -> None:
        self._network = network

    def __call__(self) -> int:
        return self.now

    @property
    def now(self) -> int:
        return int(self._network.now * 1000)

    @now.setter
    def now(self, ms: int) -> None:
        self._network.now = ms / 1000


class AllSides(Setting):
    """Ledgers, objects and subscriptions are marked; then some are in use again, and one segment is another one."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rng = Random(seed)
        self.timing = DeletionTiming(max_tries=30, kept=2**50)
        self.bounds = DeletionBounds(percent=100, a_round=WRITES)
        self.clock = ClusterClock(self.cluster.network)
        self.made, _ = archive(self.clock)
        self.store = self.made.store
        self.queue = self.queue_over(self.store)
        self.gone: Counter[str] = Counter()
        self.told = ToldByName()
        self.on()
        self._ledgers()
        self._objects()
        self._subscriptions()

    def queue_over(self, store, check_owner=lambda: None) -> DeletionQueue:
        return DeletionQueue(store, "memory", lambda: f"t{next(self.numbers)}", check_owner)

    def _ledgers(self) -> None:
        self.ids = set(range(1, LEDGERS + 1))
        open_ones = set(self.rng.sample(sorted(self.ids), LEDGERS // 4))
        for ledger in sorted(self.ids):
            self.cluster.ledger(ledger, "t", 0, is_open=ledger in open_ones)
        self.cluster.ledger(9000, "t")
        self.cluster.list_ledgers("t", 9000)
        self.later()
        assert len(self.mark().marks) == LEDGERS
        self.in_use = set(self.rng.sample(sorted(self.ids), LEDGERS // 10))
        others = range(9001, 9001 + LEDGERS)  # else too many of all would go
        for ledger in others:
            self.cluster.ledger(ledger, "t", 0)
        self.cluster.list_ledgers("t", *sorted(self.in_use), *others)

    def _objects(self) -> None:
        uuids = [a_uuid(number) for number in range(1, SEGMENTS + 1)]
        strays(self.made, *uuids)
        self.later()
        marking = ObjectQuarantine(self.queue, self.bounds, self.clock, "test")
        found = marking.mark(scanner(self.store, self.clock).scan())
        assert {str(one.outcome) for one in found.marks} == {"marked"}
        self.keys = {one.id for one in found.marks}
        assert len(self.keys) == OBJECTS
        another = self.rng.choice(uuids)
        self.store.put(layout.data_key(TOPIC, another), b"written again")
        self.kept = {of(TOPIC, another) for of in PARTS}

    def _subscriptions(self) -> None:
        metadata = MemoryMetadata(clock=lambda: self.clock.now / 1000)
        self.brokers = MemorySubscriptions(metadata.nodes, metadata.uri.managed_ledgers, self.clock)
        self.stored = StoredTopics(metadata, None, 0.1)
        names = [f"job {number}" for number in range(SUBSCRIPTIONS)]
        self.brokers.make(TOPIC, {1: 10, 2: 0}).cursors.update({name: HeldCursor((1, 4)) for name in names})
        self.brokers.flush()
        side = self.subscriptions(self.brokers)
        marker = Marker(self.queue, self.clock, None, by_name=True, dry=False, ours_ms=self.clock)
        for name in names:
            assert side.mark(side.plan(TOPIC, name), marker, "test").outcome is MarkOutcome.MARKED
        used = set(self.rng.sample(names, SUBSCRIPTIONS // 5))
        for name in used:
            self.brokers.acknowledge_as_a_client(TOPIC, name, (1, 7))
        self.brokers.flush()
        self.used = {f"subscription {name} of {TOPIC}" for name in used}
        self.subscribed = {f"subscription {name} of {TOPIC}" for name in names}

    def subscriptions(self, brokers) -> SubscriptionSide:
        return SubscriptionSide(self.stored, brokers, SubscriptionNames(), self.clock)

    def a_life(self, life: Life) -> bool:
        """One process, until it is killed or its round is over. Whether it was killed."""
        store = MortalStore(self.store, life, self.gone)
        sides = [
            (LedgerType.LEDGER, self.cluster.side(MortalNodes(self.cluster, life))),
            (LedgerType.OBJECT, BucketSide(store, scanner(store, self.clock))),
            (LedgerType.SUBSCRIPTION, self.subscriptions(MortalBrokers(self.brokers, life, self.gone))),
        ]
        self.rng.shuffle(sides)
        rules = DeletionRules(self.timing, self.bounds, parallelism=2)
        service = LedgerDeletionService(self.queue_over(store), dict(sides), rules, self.told, self.clock)
        try:
            assert service.round().refusals == ()
        except KilledError:
            return True
        return False

    def in_flight(self) -> bool:
        return any(one.record.is_in_flight for one in self.queue.records())


@pytest.mark.parametrize("seed", few(range(3), 1))
def test_each_marked_thing_goes_exactly_once_or_is_told_whenever_the_service_is_killed(seed: int):
    setting, kills = AllSides(seed), 0
    while kills < KILLS and setting.in_flight():
        setting.later(3 * 3600)
        kills += setting.a_life(Life(setting.rng))
    assert kills == KILLS
    while setting.in_flight():
        setting.later()
        setting.a_life(Life())
    ended = {one.record.thing: (one.record.state, one.record.answer) for one in setting.queue.records()}
    assert len(ended) == LEDGERS + OBJECTS + SUBSCRIPTIONS
    assert {ended[one] for one in setting.used} == {IN_USE}
    assert {ended[one] for one in setting.subscribed - setting.used} == {DELETED}
    assert {ended[f"ledger {ledger}"] for ledger in setting.in_use} == {IN_USE}
    assert {ended[f"ledger {ledger}"] for ledger in setting.ids - setting.in_use} == {DELETED}
    assert {ended[key] for key in setting.keys - setting.kept} == {DELETED}
    assert Counter(ended[key] for key in setting.kept) == {KEPT: 1, (DeletionState.GIVEN_UP, None): 2}
    assert setting.ids & setting.cluster.ledger_ids() == setting.in_use
    assert setting.cluster.deleted == dict.fromkeys(setting.ids - setting.in_use, 1)
    assert setting.gone == dict.fromkeys((setting.keys - setting.kept) | (setting.subscribed - setting.used), 1)
    assert len(setting.brokers.topics[TOPIC].cursors) == len(setting.used)
    assert {key for key in setting.keys if setting.store.stat(key)} == setting.kept
    assert len(setting.told.ends) == len(set(setting.told.ends))
    assert len(setting.told.given_up) == len(setting.kept) - 1  # what waits for data that stay
    print(f"seed {seed}: {kills} kills, {len(setting.cluster.deleted)} ledgers and {len(setting.gone)} others deleted")
    setting.store.delete(list(setting.kept))
    check_invariants(setting.store, {})
