"""Retention of the archive in the running application: by policy, on request, undone, held, released, gone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest

from offloader.archive.archive import Archive
from offloader.archive.following.live import FollowLimits, Live
from offloader.archive.items import ArchivedEntry, Missing
from offloader.archive.opened import OpenArchive
from offloader.archive.reading.stores import Stores
from offloader.archive.selection import Selection
from offloader.metadata import layout, requests
from offloader.metadata.requests import Request, RequestKind, RequestOutcome
from offloader.metadata.state import CatalogHead, OpenTopic
from offloader.model import TopicName
from offloader.offload.driver import retaining
from offloader.operations.verify.verify import verify
from offloader.storage.memory import MemoryStore
from tests.examples import few
from tests.invariants import check_invariants
from tests.offload.simulation import Simulation
from tests.truth import truth_of_cluster

TOPIC = TopicName.parse("public/default/t")
OTHER = TopicName.parse("public/default/other")
MINUTE = 60_000


def started(retention: str = "", **settings: object) -> Simulation:
    sim = Simulation(1, roll="10s", retention=retention, **settings)
    for topic in (TOPIC, OTHER):
        sim.cluster.create(topic)
    sim.rounds(4)
    return sim


def sealed(sim: Simulation, segments: int) -> None:
    """So many more segments of the topic."""
    for _ in range(segments):
        sim.produce(TOPIC, 5)
        sim.produce(OTHER, 1)
        sim.settle()


def head(sim: Simulation) -> CatalogHead:
    return sim.context.catalogs.head(TOPIC)


def deleted(sim: Simulation) -> int:
    return sum(each.segments for each in head(sim).removed.ranges)


def ask(sim: Simulation, kind: RequestKind, hold: str = "") -> RequestOutcome:
    sim.serve_requests()
    request = requests.submit(sim.store, "sim", Request(kind, TOPIC, sim.clock.now, "test", None, hold), sim.uuid)
    sim.rounds(3)
    outcome = requests.outcome_of(sim.store, "sim", request)
    assert outcome is not None
    return outcome


def wait(sim: Simulation, ms: int) -> None:
    """Time passes, and the application looks."""
    sim.clock.now += ms
    sim.rounds(3, step_ms=21_000)


def data_objects(sim: Simulation) -> int:
    keys = (layout.parse_topic_key(key) for key, _ in sim.store.list(layout.topic_folder(TOPIC)))
    return sum(key is not None and key.kind is layout.KeyKind.DATA for key in keys)


def checked(sim: Simulation) -> None:
    check_invariants(sim.store, {topic: truth_of_cluster(sim.cluster, topic) for topic in (TOPIC, OTHER)})
    items = list(Archive(OpenArchive(Stores.of(sim.store))).topic(TOPIC).items())
    assert all(isinstance(item, ArchivedEntry) or item.deleted for item in items if not _gap(item))


def _gap(item: ArchivedEntry | Missing) -> bool:
    return isinstance(item, Missing) and item.kind is not None


def test_segments_go_by_policy_and_offloading_goes_on():
    sim = started("archiveRetentionTimeInMinutes: 30")
    sealed(sim, 3)
    before = len(sim.context.catalogs.load(TOPIC).segments)
    wait(sim, 31 * MINUTE)
    pending = head(sim).removed.pending
    assert pending is not None
    assert pending.policy == "archiveRetentionTimeInMinutes 30"
    assert data_objects(sim) == before
    wait(sim, sim.grace_ms)
    assert deleted(sim) == before - 1, "the newest stays"
    assert data_objects(sim) == 1
    sealed(sim, 2)
    checked(sim)
    assert verify(sim.store, [TOPIC]).deleted >= before - 1
    sim.close()


YEAR = "archiveRetentionTimeInMinutes: 525600"
DAYS_400 = 400 * 24 * 60 * MINUTE


def test_a_host_whose_clock_is_ahead_for_a_while_deletes_nothing_that_is_young(caplog):
    sim = started(YEAR)
    sealed(sim, 3)
    sim.host_ahead_ms = DAYS_400
    sim.kill()  # it starts with the wrong clock
    wait(sim, sim.grace_ms)
    wait(sim, sim.grace_ms)
    assert head(sim).removed.pending is None
    assert "policies of time wait: this host's clock is 400 days ahead of the" in caplog.text
    sim.host_ahead_ms = 0
    caplog.clear()
    wait(sim, sim.grace_ms)
    assert (head(sim).removed.pending, deleted(sim)) == (None, 0)
    assert "policies of time wait" not in caplog.text
    wait(sim, DAYS_400)
    wait(sim, sim.grace_ms)
    assert deleted(sim) > 0, "once it is old, it goes"
    checked(sim)
    sim.close()


def test_what_is_recorded_to_go_by_its_age_waits_while_clocks_differ_and_goes_on_afterwards():
    sim = started("archiveRetentionTimeInMinutes: 30")
    sealed(sim, 3)
    wait(sim, 31 * MINUTE)
    pending = head(sim).removed.pending
    assert pending is not None
    sim.broker_ahead_ms = -6 * MINUTE
    wait(sim, 10 * sim.grace_ms)
    assert head(sim).removed.pending == pending
    assert head(sim).removed.begun is None
    outcome = ask(sim, RequestKind.ARCHIVE_RETENTION)
    assert "waits: this host's clock is 6 minutes ahead of the broker's" in outcome.message or (
        "waits: the store's clock is 6 minutes ahead of the broker's" in outcome.message
    )
    sim.broker_ahead_ms = 0
    wait(sim, 2 * MINUTE)
    assert deleted(sim) > 0
    checked(sim)
    sim.close()


def test_a_host_whose_clock_is_ahead_makes_no_grace_shorter():
    """With files its clock is the store's, too: the broker's says how long it was."""
    sim = started(grace_ms=24 * 60 * MINUTE)
    sealed(sim, 3)
    assert ask(sim, RequestKind.ARCHIVE_DELETE).ok
    store = sim.store
    assert isinstance(store, MemoryStore)
    sim.host_ahead_ms = DAYS_400
    store.backing.clock_ms = lambda: sim.clock.now + sim.host_ahead_ms
    wait(sim, 10 * MINUTE)
    assert head(sim).removed.begun is None
    assert ask(sim, RequestKind.ARCHIVE_UNDELETE).ok
    sim.close()


def test_without_a_clock_of_another_host_policies_of_time_wait_and_others_go_on(caplog):
    sim = started("archiveRetentionTimeInMinutes: 30")
    sim.own_clock = False
    sim.kill()
    sealed(sim, 3)
    wait(sim, 31 * MINUTE)
    wait(sim, sim.grace_ms)
    assert (head(sim).removed.pending, deleted(sim)) == (None, 0)
    assert "policies of time wait: only this host tells the time" in caplog.text
    outcome = ask(sim, RequestKind.ARCHIVE_RETENTION)
    assert "nothing is due but by age: only this host tells the time" in outcome.message
    assert ask(sim, RequestKind.ARCHIVE_DELETE).ok
    wait(sim, sim.grace_ms)
    assert deleted(sim) > 0, "a request has no age"
    sim.close()


def test_without_a_policy_nothing_goes_and_there_is_one_look_a_listing_until_something_is_asked_for():
    sim = started()
    sealed(sim, 2)
    asked: list[str] = []
    plain = sim.store.list

    def counted(prefix: str = "", start_after: str = "") -> Iterator[tuple[str, int]]:
        asked.append(prefix)
        return plain(prefix, start_after)

    sim.store.list = counted
    sim.retaining.visit_all()
    assert asked == [layout.archive_deletions_folder("memory")]
    assert deleted(sim) == 0
    for _ in range(3):
        wait(sim, 10 * MINUTE)
    assert asked.count(layout.archive_deletions_folder("memory")) == 1
    assert ask(sim, RequestKind.ARCHIVE_DELETE).message.startswith("deletion 0")
    wait(sim, 10 * MINUTE)
    assert asked.count(layout.archive_deletions_folder("memory")) > 1
    sim.close()


def test_a_deletion_on_request_is_taken_back_and_afterwards_everything_reads_again():
    sim = started()
    sealed(sim, 3)
    outcome = ask(sim, RequestKind.ARCHIVE_DELETE)
    assert outcome.ok, outcome.message
    assert head(sim).removed.pending is not None
    again = ask(sim, RequestKind.ARCHIVE_DELETE)
    assert not again.ok
    assert "is under way" in again.message
    undone = ask(sim, RequestKind.ARCHIVE_UNDELETE)
    assert undone.ok, undone.message
    wait(sim, 10 * sim.grace_ms)
    assert deleted(sim) == 0
    items = list(Archive(OpenArchive(Stores.of(sim.store))).topic(TOPIC).items())
    assert not [item for item in items if isinstance(item, Missing) and item.deleted]
    nothing = ask(sim, RequestKind.ARCHIVE_UNDELETE)
    assert (nothing.ok, "no deletion is under way" in nothing.message) == (False, True)
    checked(sim)
    sim.close()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_taken_back_with_a_hold_is_not_deleted_again_by_policy(restarted):
    sim = started("archiveRetentionTimeInMinutes: 30")
    sealed(sim, 3)
    wait(sim, 31 * MINUTE)
    assert head(sim).removed.pending is not None
    undone = ask(sim, RequestKind.ARCHIVE_UNDELETE)
    assert "until its policy deletes it again (archiveRetentionTimeInMinutes 30)" in undone.message
    wait(sim, MINUTE)
    assert head(sim).removed.pending is not None, "it was reverted, as was said"
    held = ask(sim, RequestKind.ARCHIVE_HOLD, "court")
    assert "all of it can be read again, and is held by court" in held.message
    if restarted:
        sim.kill()
    wait(sim, 10 * sim.grace_ms)
    assert (head(sim).removed.pending, deleted(sim)) == (None, 0)
    assert "is held by court" in ask(sim, RequestKind.ARCHIVE_DELETE).message
    assert "nothing goes: held by court" in ask(sim, RequestKind.ARCHIVE_RETENTION).message
    assert sim.retaining._retention.lift_hold(TOPIC) == "the hold court is lifted: its policies say again what goes"
    checked(sim)
    assert "no hold was placed" in ask(sim, RequestKind.ARCHIVE_LIFT_HOLD).message
    wait(sim, MINUTE)
    assert head(sim).removed.pending is not None
    sim.close()


def test_all_topics_are_looked_at_some_at_a_time(monkeypatch):
    """Of a hundred thousand, that may take longer than the grace: requests come in between."""
    monkeypatch.setattr(retaining, "AT_A_TIME", 1)
    sim = started("archiveRetentionTimeInMinutes: 30")
    sealed(sim, 3)
    sim.clock.now += 31 * MINUTE
    visited: list[TopicName] = []
    visit = sim.retaining._retention.visit

    def seen(topic: TopicName, *, noted: bool = True) -> str:
        visited.append(topic)
        return visit(topic, noted=noted)

    object.__setattr__(sim.retaining._retention, "visit", seen)
    assert (sim.retaining.visit_all(), visited) == ([TOPIC], [OTHER])
    visited.clear()
    wait(sim, 10 * MINUTE)
    assert visited == [OTHER, TOPIC] * (len(visited) // 2), "each in its turn"
    assert head(sim).removed.pending is not None
    sim.close()


def test_a_hold_takes_back_what_is_under_way_and_lets_nothing_else_go():
    sim = started("archiveRetentionTimeInMinutes: 30")
    sealed(sim, 3)
    wait(sim, 31 * MINUTE)
    assert head(sim).removed.pending is not None
    sim.retention += '\nhold: "court order 12"'
    sim.kill()
    wait(sim, 10 * sim.grace_ms)
    assert head(sim).removed.pending is None
    assert deleted(sim) == 0
    outcome = ask(sim, RequestKind.ARCHIVE_DELETE)
    assert (outcome.ok, "held by court order 12" in outcome.message) == (False, True)
    checked(sim)
    sim.close()


def test_of_a_released_topic_everything_goes_on_request():
    sim = started()
    sealed(sim, 2)
    sim.release(TOPIC)
    sim.rounds(60)
    claim = head(sim).claim
    assert claim is not None
    assert claim.application == ""
    before = len(sim.context.catalogs.load(TOPIC).segments)
    outcome = ask(sim, RequestKind.ARCHIVE_DELETE)
    assert outcome.ok, outcome.message
    wait(sim, sim.grace_ms)
    assert (deleted(sim), data_objects(sim)) == (before, 0)
    checked(sim)
    sim.close()


def test_what_is_claimed_again_before_the_second_look_keeps_its_newest_segment():
    sim = started()
    sealed(sim, 2)
    properties = sim.cluster.namespace("public/default").properties
    sim.release(TOPIC)
    properties["offloader.enabled"] = "false"
    sim.rounds(60)
    assert ask(sim, RequestKind.ARCHIVE_DELETE).ok
    properties["offloader.enabled"] = "true"
    sim.rounds(10)
    claim = head(sim).claim
    assert claim is not None
    assert claim.application == "sim"
    wait(sim, sim.grace_ms)
    assert deleted(sim) == 0
    assert head(sim).removed.pending is None
    checked(sim)
    sim.close()


def test_the_archive_of_a_deleted_topic_goes_when_its_time_is_over():
    sim = started("deletedTopicRetentionTimeInMinutes: 60")
    sealed(sim, 2)
    before = len(sim.context.catalogs.load(TOPIC).segments)
    sim.cluster.delete(TOPIC)
    for _ in range(12):
        sim.produce(OTHER, 1)
        wait(sim, 0)
    gone = head(sim).removed.gone
    assert gone is not None
    assert head(sim).removed.pending is None
    assert data_objects(sim) == before
    wait(sim, 61 * MINUTE)
    for _ in range(12):
        wait(sim, 0)
    assert (deleted(sim), data_objects(sim)) == (before, 0)
    assert head(sim).removed.ranges[0].whole
    sim.close()


NEW = TopicName.parse("public/default/new")


@pytest.mark.parametrize("restarted", few([False, True], 1))
def test_no_archive_goes_because_the_cluster_was_rebuilt_under_its_name(restarted):
    """Each new topic is claimed and has ledgers that are known, and each lost one is missing: that proves nothing."""
    sim = started("deletedTopicRetentionTimeInMinutes: 60")
    sealed(sim, 2)
    before = data_objects(sim)
    sim.cluster.rebuild()
    sim.cluster.create(NEW)
    for _ in range(12):
        sim.produce(NEW, 3)
        wait(sim, 0)
    if restarted:
        sim.kill()
    for _ in range(4):
        wait(sim, 61 * MINUTE)
        for _ in range(12):
            sim.produce(NEW, 1)
            wait(sim, 0)
    new = sim.context.catalogs.head(NEW)
    assert new.segments > 0, "the rebuilt cluster's topics are offloaded"
    assert (head(sim).removed.gone, head(sim).removed.pending) == (None, None)
    assert (deleted(sim), data_objects(sim)) == (0, before)
    sim.close()


def test_a_topic_that_was_claimed_later_does_not_say_that_another_one_was_deleted():
    """Of a topic that was quiet since, no later topic knows whether this cluster ever had it."""
    sim = started("deletedTopicRetentionTimeInMinutes: 0")
    sealed(sim, 2)
    sim.clock.now += MINUTE
    sim.cluster.create(NEW)
    sim.rounds(4)
    sim.produce(NEW, 3)
    sim.settle()
    for topic in (TOPIC, OTHER):
        sim.cluster.delete(topic)
    for _ in range(24):
        sim.produce(NEW, 1)
        wait(sim, 0)
    assert head(sim).removed.gone is None
    sim.close()


def rolled_back(sim: Simulation) -> Callable[[], None]:
    """Pulsar's metadata are those of another day, in which the topic is not. Returns what brings it back."""
    topic = sim.cluster.state.topics.pop(TOPIC)
    topic.load += 1

    def restored() -> None:
        sim.cluster.state.topics[TOPIC] = topic
        sim.cluster.unload(TOPIC)

    return restored


@pytest.mark.parametrize("restarted", few([False, True], 1))
def test_the_time_of_a_topic_that_was_there_again_counts_from_its_last_end(restarted):
    """It came back as it was, so nobody had to claim it again."""
    sim = started("deletedTopicRetentionTimeInMinutes: 43200")
    sealed(sim, 2)
    restored = rolled_back(sim)
    looks(sim, 12)
    first = head(sim).removed.gone
    assert first is not None
    restored()
    if restarted:
        sim.kill()
    looks(sim, 2)
    sim.until_believed()
    sealed(sim, 1)
    assert TOPIC in sim.registry.topics
    assert head(sim).removed.gone is None
    wait(sim, 100 * 24 * 60 * MINUTE)
    sealed(sim, 1)
    deleted_at = sim.clock.now
    sim.cluster.delete(TOPIC)
    looks(sim, 14)
    gone = head(sim).removed.gone
    assert gone is not None
    assert gone.at > deleted_at
    assert head(sim).removed.pending is None
    sim.kill()
    looks(sim, 14)
    assert head(sim).removed.gone == gone, "a start forgets nothing"
    sim.close()


def looks(sim: Simulation, count: int) -> None:
    """So many looks; the other topic shows that it is our cluster."""
    for _ in range(count):
        sim.produce(OTHER, 1)
        wait(sim, 0)


@pytest.mark.parametrize("asked", [False, True])
def test_no_start_takes_back_the_deletion_of_a_deleted_topic(asked):
    """A start forgets what was looked at: that proves nothing."""
    sim = started("" if asked else "deletedTopicRetentionTimeInMinutes: 60", grace_ms=24 * 60 * MINUTE)
    sealed(sim, 2)
    before = len(sim.context.catalogs.load(TOPIC).segments)
    sim.cluster.delete(TOPIC)
    if asked:
        ask(sim, RequestKind.ARCHIVE_DELETE)
    looks(sim, 12)
    if asked:  # some of it was under way: now it is proven, and all of it goes
        assert ask(sim, RequestKind.ARCHIVE_UNDELETE).ok
        assert f"{before} segments" in ask(sim, RequestKind.ARCHIVE_DELETE).message
    else:
        wait(sim, 61 * MINUTE)
    pending = head(sim).removed.pending
    assert pending is not None
    slots = head(sim).next_slot
    for _ in range(6):
        sim.kill()
        looks(sim, 1)
        sim.clock.now += 3 * 60 * MINUTE
    assert (head(sim).removed.pending, head(sim).next_slot) == (pending, slots)
    sim.clock.now += sim.grace_ms
    looks(sim, 12)
    assert (deleted(sim), data_objects(sim)) == (before, 0)
    sim.close()


def test_the_deletion_of_a_deleted_topic_is_taken_back_when_it_is_there_again():
    sim = started("deletedTopicRetentionTimeInMinutes: 60")
    sealed(sim, 2)
    sim.cluster.delete(TOPIC)
    looks(sim, 12)
    wait(sim, 61 * MINUTE)
    assert head(sim).removed.pending is not None
    sim.kill()
    sim.cluster.create(TOPIC)
    sim.produce(TOPIC, 3)
    wait(sim, 0)
    sim.rounds(20)
    wait(sim, sim.grace_ms)
    looks(sim, 12)
    assert head(sim).removed.gone is None, "another topic of that name is claimed"
    sim.close()


def test_a_topic_is_not_gone_as_long_as_a_segment_of_it_is_to_be_sealed():
    sim = started("deletedTopicRetentionTimeInMinutes: 0")
    sealed(sim, 2)
    sim.produce(TOPIC, 5)
    while not isinstance(sim.context.state(TOPIC), OpenTopic):
        sim.rounds(1)
    state = sim.context.state(TOPIC)
    assert isinstance(state, OpenTopic)
    sim.cluster.delete(TOPIC)
    sim.clock.now += 10 * MINUTE
    sim.retaining.look([sim.registry.topics[OTHER]])
    for number in range(24):  # its seal fails, and is tried again
        if number == 12:
            assert head(sim).removal is None
            sim.journal.record([state.closed()])
        sim.clock.now += 10 * MINUTE
        sim.retaining.visit_all()
    assert head(sim).removed.gone is not None
    sim.close()


@pytest.mark.parametrize("minutes", [0, 10])
def test_what_pulsar_has_deleted_goes_where_its_retention_is_followed_and_is_not_0(minutes):
    sim = started("followPulsarRetention: true", entries_per_ledger=4)
    policies = {"retention_policies": {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}}
    sim.cluster.namespace("public/default").policies.update(policies)
    sealed(sim, 4)
    wait(sim, MINUTE)
    trimmed = head(sim).removed.trimmed
    pending = head(sim).removed.pending
    if minutes == 0:
        assert (trimmed, pending) == (None, None)
        sim.close()
        return
    assert trimmed is not None
    assert pending is not None
    assert all(each.end.ledger < trimmed.first for each in pending.ranges)
    wait(sim, sim.grace_ms)
    assert deleted(sim) > 0
    kept = sim.context.admin.topic_info(TOPIC).ledgers.spans[0].ledger
    assert all(each.end.ledger < kept for each in head(sim).removed.ranges)
    checked(sim)
    sim.close()


def test_the_ledgers_of_a_rebuilt_cluster_do_not_say_what_pulsar_has_deleted():
    """The topic of that name has the ids of the lost ledgers, and begins behind most of them."""
    sim = started("followPulsarRetention: true", entries_per_ledger=4)
    sealed(sim, 4)
    end = head(sim).end
    assert end is not None
    before = data_objects(sim)
    sim.retaining.see(sim.registry.topics.values())
    sim.cluster.rebuild()
    sim.cluster.create(TOPIC)
    sim.cluster.state.topics[TOPIC].ledgers[0].id = end.ledger
    policies = {"retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}}
    sim.cluster.namespace("public/default").policies.update(policies)
    assert sim.context.admin.topic_info(TOPIC).ledgers.spans[0].ledger == end.ledger
    sim.clock.now += MINUTE
    sim.retaining.visit_all()
    assert head(sim).removed.trimmed is None
    for _ in range(3):
        wait(sim, 20 * MINUTE)
    assert (head(sim).removed.trimmed, head(sim).removed.pending) == (None, None)
    assert (deleted(sim), data_objects(sim)) == (0, before)
    sim.close()


def test_no_start_takes_back_what_goes_with_pulsar_and_a_retention_of_0_does():
    """Right behind a start no topic is known, and so not whether its retention is followed."""
    sim = started("followPulsarRetention: true", entries_per_ledger=4, grace_ms=24 * 60 * MINUTE)
    policies = sim.cluster.namespace("public/default").policies
    policies["retention_policies"] = {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}
    sealed(sim, 4)
    wait(sim, MINUTE)
    pending, slots = head(sim).removed.pending, head(sim).next_slot
    assert pending is not None
    for _ in range(3):
        sim.kill()
        sim.clock.now += 3 * 60 * MINUTE
        sim.retaining.visit_all()  # nothing is known yet
        assert (head(sim).removed.pending, head(sim).next_slot) == (pending, slots)
    sim.clock.now += sim.grace_ms
    sim.retaining.visit_all()
    assert head(sim).removed.pending == pending, "nothing begins before it is known"
    sim.rounds(10)
    policies["retention_policies"] = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    wait(sim, 10 * MINUTE)
    assert (head(sim).removed.pending, deleted(sim)) == (None, 0)
    sim.close()


def test_who_asks_is_answered_by_the_topics_of_now_and_not_by_those_of_the_last_look():
    sim = Simulation(1, roll="10s", retention="followPulsarRetention: true", entries_per_ledger=4)
    sim.cluster.create(OTHER)
    sim.rounds(4)
    sim.retaining._look_at = sim.clock.now + 10**12  # the next look by itself is far away
    sim.cluster.create(TOPIC)
    policies = {"retention_policies": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}}
    sim.cluster.namespace("public/default").policies.update(policies)
    sim.until_believed()
    sealed(sim, 4)
    assert ask(sim, RequestKind.ARCHIVE_RETENTION).message.startswith("deletion 0")
    sim.close()


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_kills_of_the_application_at_any_round_lose_nothing(seed):
    rng = random.Random(seed)
    sim = started("archiveRetentionTimeInMinutes: 5", grace_ms=3 * MINUTE)
    for _ in range(25):
        sim.produce(TOPIC, rng.randint(0, 6))
        wait(sim, rng.choice([0, 0, MINUTE]))
        if rng.random() < 0.2:
            sim.kill()
    sim.settle()
    wait(sim, 20 * MINUTE)
    wait(sim, 20 * MINUTE)
    assert deleted(sim) > 0
    checked(sim)
    sim.close()


class Ticks:
    """Seconds that advance whenever somebody asks or waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("seed", few(range(8), 3))
def test_a_follower_has_each_entry_or_is_told_while_segments_go(seed):
    rng = random.Random(seed)
    sim = started("archiveRetentionTimeInMinutes: 5", grace_ms=3 * MINUTE, entries_per_ledger=rng.choice([3, 20]))
    sealed(sim, 2)
    ticks = Ticks()
    reached = lambda: nullcontext((sim.cluster.source, sim.cluster.admin))  # noqa: E731
    live = Live(reached, FollowLimits(idle=0.2, trouble=60.0), ticks, ticks.pause)
    got: list[tuple[int, int]] = []
    told: list[Missing] = []
    position = None
    for _ in range(12):
        following = Archive(OpenArchive(Stores.of(sim.store)), pulsar=live).topic(TOPIC)
        start = None if position is None else position.next_entry
        for number, item in enumerate(following.runs(Selection(start), follow=True)):
            if isinstance(item, Missing):
                assert item.deleted or item.kind is not None, item
                told.append(item)
            else:
                got += [entry.position.place for entry in item.entries()]
            position = item.end
            if number >= rng.choice([0, 3, 100]):
                break
        sim.produce(TOPIC, rng.randint(0, 6))
        wait(sim, rng.choice([0, MINUTE, 4 * MINUTE]))
    following = Archive(OpenArchive(Stores.of(sim.store)), pulsar=live).topic(TOPIC)
    for item in following.runs(Selection(None if position is None else position.next_entry), follow=True):
        if isinstance(item, Missing):
            told.append(item)
        else:
            got += [entry.position.place for entry in item.entries()]
    assert got == sorted(set(got)), "an entry twice, or out of order"
    written = [(e.ledger, e.entry) for e in sim.cluster.entries(TOPIC) if e.delivered]
    passed = [p for p in written if p not in got and not any(m.start.place <= p <= m.end.place for m in told)]
    assert passed == []
    assert deleted(sim) > 0
    sim.close()
