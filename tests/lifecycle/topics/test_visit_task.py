"""The application's visits: retention holds in every cluster, whoever comes and goes and whatever fails."""

from __future__ import annotations

import random

import pytest

from offloader.errors import (
    AuthorizationFailedError,
    BrokerUnavailableError,
    FatalError,
    OffloadError,
    TopicMovedError,
)
from offloader.lifecycle.topics.visit_task import UnloadedTopicsTask
from offloader.lifecycle.topics.visiting import VisitParts
from offloader.metrics import Metrics
from offloader.model import TopicName
from tests.examples import tries
from tests.lifecycle.topics.support import NAMESPACE, PIN, Idle, name

SHARE_MS = 30_000

SEEDS = tries("OFFLOADER_EXAMPLES", 15, 60)
HOUR = 3600
CALLS = ("loaded", "known", "default_retention", "namespace_retention", "trim", "use", "unload", "version")


def task_of(
    cluster: Idle, *, interval_s: int = 60, a_minute: int = 6000, metrics: Metrics | None = None
) -> UnloadedTopicsTask:
    parts = VisitParts(cluster.reader, cluster.planner, cluster.round(a_minute=a_minute))
    return UnloadedTopicsTask(lambda: parts, interval_s * 1000, lambda: cluster.now_ms, metrics or Metrics())


def run(cluster: Idle, task: UnloadedTopicsTask, seconds: float) -> None:
    """The thread that runs tasks."""
    until = cluster.now_ms + seconds * 1000
    while cluster.now_ms < until:
        try:
            wait = task.run()
        except OffloadError:
            wait = 60
        cluster.tick(min(max(wait, 0.001), max(until - cluster.now_ms, 1) / 1000))


def test_nothing_is_asked_between_two_looks() -> None:
    cluster = Idle()
    cluster.written("t", 100, 20)
    task = task_of(cluster, interval_s=HOUR)
    assert task.run() == HOUR
    before = cluster.faults.calls.total()
    cluster.tick(HOUR - 1)
    assert task.run() == 1
    assert cluster.faults.calls.total() == before


def test_each_topic_is_visited_twice_and_never_again() -> None:
    cluster = Idle()
    topics = [cluster.written(f"t{number}", 100, 20) for number in range(5)]
    run(cluster, task_of(cluster), 5 * 60)
    assert [cluster.size(topic) for topic in topics] == [0] * 5
    assert len(cluster.trimmed) == 10
    run(cluster, task_of(cluster), 3 * HOUR)
    assert len(cluster.trimmed) == 10


def test_a_restart_between_the_visits_changes_nothing() -> None:
    cluster = Idle()
    topic = cluster.written("t", 100, 20)
    for _ in range(10):
        run(cluster, task_of(cluster), 30)
    assert (cluster.size(topic), len(cluster.trimmed)) == (0, 2)


def test_one_call_takes_no_more_than_its_share_of_time() -> None:
    cluster = Idle()
    for number in range(100):
        cluster.written(f"t{number}", 100)
    cluster.tick(HOUR)
    task, began = task_of(cluster, a_minute=60), cluster.now_ms
    assert task.run() == 0
    assert cluster.now_ms - began <= SHARE_MS + 2000
    assert 28 <= len(cluster.trimmed) <= 32
    run(cluster, task, 120)
    assert len({topic for topic, _ in cluster.trimmed}) == 100


def test_what_was_in_vain_is_not_tried_again_soon() -> None:
    """A policy that nobody shows us, for example one that holds in all clusters."""
    cluster = Idle()
    topic = cluster.written("t", 100, 20)
    cluster.retention[str(topic)] = (-1, -1)
    run(cluster, task_of(cluster), HOUR)
    assert (cluster.size(topic), len(cluster.trimmed) <= 7) == (120, True)


@pytest.mark.parametrize("error", [BrokerUnavailableError, AuthorizationFailedError, FatalError])
def test_what_fails_is_tried_again_less_often(error: type[OffloadError]) -> None:
    cluster = Idle()
    cluster.written("t", 100, 20)
    cluster.faults.add("visits.trim", lambda: error("no"), times=10**6)
    run(cluster, task_of(cluster), HOUR)
    assert 1 < cluster.faults.count("visits.trim") <= 7


def test_trouble_is_told_once_a_share_and_names_its_alarm(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Idle()
    for number in range(3):
        cluster.written(f"t{number}", 100, 20)
    cluster.tick(HOUR)
    cluster.faults.add("visits.trim", lambda: BrokerUnavailableError("no"), times=2)
    task_of(cluster).run()
    (record,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert record.__dict__["see"] == "unloaded-topics"
    assert "2 of 3 visits" in record.getMessage()


def value(metrics: Metrics, series: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"offloader_visits_{series}", labels)


def test_what_visits_free_and_what_stays_and_why_is_counted() -> None:
    cluster, metrics = Idle(), Metrics()
    cluster.written("freed", 100, 20)
    cluster.subscribe(cluster.written("pinned", 70, 20), PIN, (-1, -1))
    cluster.subscribe(cluster.written("read", 60, 20), "slow", (-1, -1))
    vain = cluster.written("vain", 50, 20)
    cluster.retention[str(vain)] = (-1, -1)
    cluster.tick(HOUR)
    task = task_of(cluster, interval_s=30, metrics=metrics)
    task.run()
    first_ledgers = value(metrics, "freed_bytes_total")
    assert (value(metrics, "total", end="trimmed"), first_ledgers) == (len(cluster.trimmed), 100)
    assert value(metrics, "due_topics") == len(cluster.trimmed)
    assert value(metrics, "not_freed_bytes", reason="due") == 120 + 70
    assert value(metrics, "not_freed_bytes", reason="pin") == 90
    assert value(metrics, "not_freed_bytes", reason="user") == 80
    run(cluster, task, 300)
    assert value(metrics, "freed_bytes_total") == 120
    assert value(metrics, "due_topics") == 0
    assert value(metrics, "not_freed_bytes", reason="due") is None
    assert value(metrics, "not_freed_bytes", reason="in vain") == 70


def test_a_topic_that_cannot_be_visited_is_told_until_it_can_be(caplog: pytest.LogCaptureFixture) -> None:
    """A load would drop a last ledger that BookKeeper does not have from the list, without a word."""
    cluster, metrics = Idle(), Metrics()
    topic = cluster.written("t", 100, 20)
    cluster.tick(HOUR)
    cluster.metadata.cluster.delete_ledger(cluster.topics[topic].ledgers[-1].id)
    task = task_of(cluster, interval_s=30, metrics=metrics)
    run(cluster, task, 300)
    (told,) = (one for one in caplog.records if one.levelname == "WARNING")
    assert told.__dict__["see"] == "unloaded-not-visited"
    assert str(topic) in told.getMessage()
    assert value(metrics, "passed_over_topics", reason="BookKeeper does not have its last ledger") == 1


def three_namespaces(cluster: Idle) -> list[TopicName]:
    topics = [TopicName.parse(f"acme/{letter}/t") for letter in "abc"]
    for topic in topics:
        cluster.retention[topic.namespace] = (1, -1)
        cluster.connect(topic)
        cluster.produce(topic, 1, 10)
        cluster.shut(topic)
    cluster.tick(HOUR)
    return topics


def test_one_namespace_s_trouble_is_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Idle()
    topics = three_namespaces(cluster)
    cluster.faults.add("visits.known", lambda: AuthorizationFailedError("403"))
    run(cluster, task_of(cluster, interval_s=HOUR), 60)
    assert [topic for topic, _ in cluster.trimmed] == topics[1:]
    assert [one.__dict__["see"] for one in caplog.records if one.levelname == "WARNING"] == ["unloaded-not-visited"]


def test_after_an_error_it_goes_on_with_the_namespaces_that_are_left() -> None:
    cluster = Idle()
    topics = three_namespaces(cluster)
    task = task_of(cluster, interval_s=HOUR)
    cluster.faults.add("visits.loaded", lambda: BrokerUnavailableError("away"), after=1)
    with pytest.raises(BrokerUnavailableError):
        task.run()
    run(cluster, task, 60)
    assert [topic for topic, _ in cluster.trimmed] == topics[1:]


def test_what_it_needs_is_open_only_while_it_works() -> None:
    cluster = Idle()
    for number in range(40):
        cluster.written(f"t{number}", 100)
    cluster.tick(HOUR)
    opened: list[str] = []

    def parts() -> VisitParts:
        opened.append("open")
        return VisitParts(cluster.reader, cluster.planner, cluster.round(a_minute=60), lambda: opened.append("close"))

    task = UnloadedTopicsTask(parts, HOUR * 1000, lambda: cluster.now_ms, Metrics())
    assert opened == []
    assert task.run() == 0
    assert opened == ["open"]
    assert task.run() > 0
    assert opened == ["open", "close"]


def test_a_stop_begins_no_visit() -> None:
    cluster = Idle()
    for number in range(10):
        cluster.written(f"t{number}", 100)
    cluster.tick(HOUR)
    task = UnloadedTopicsTask(
        lambda: VisitParts(cluster.reader, cluster.planner, cluster.round()),
        HOUR * 1000,
        lambda: cluster.now_ms,
        Metrics(),
        lambda: len(cluster.trimmed) >= 3,
    )
    task.run()
    assert 3 <= len(cluster.trimmed) <= 4


class World:
    """Clients that come and go at random, for some time; then nobody comes any more."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = Idle(seed=seed)
        self.cluster.retention[NAMESPACE] = self.rng.choice([(1, -1), (1, 1), (0, 0), (1, 0)])
        self.topics = [name(f"t{number}") for number in range(self.rng.randint(1, 6))]
        for topic in self.topics:
            self.cluster.connect(topic)
        self.cluster.on_use = self.maybe_connect

    def maybe_connect(self, topic: TopicName) -> None:
        """Somebody comes just while we look who is there."""
        if self.rng.random() < 0.05:
            self.cluster.connect(topic)

    def step(self) -> None:
        cluster, topic = self.cluster, self.rng.choice(self.topics)
        found = cluster.topics[topic]
        match self.rng.randrange(9):
            case 0:
                cluster.connect(topic)
            case 1:
                cluster.leave(topic)
            case 2 | 3 if found.loaded and not found.terminated:
                cluster.produce(topic, self.rng.randint(1, 9), self.rng.randint(1, 2**20))
            case 4 if found.loaded and not found.terminated and found.ledgers[-1].entries:
                cluster.roll(topic)
            case 5 if found.loaded:
                cluster.shut(topic)
            case 6 if found.loaded:
                cluster.crash(topic)
            case 7 if found.loaded:
                self.move(topic)
            case 8 if found.loaded:
                cluster.check_retention(topic)
        cluster.tick(self.rng.choice([0.1, 1, 30, 300]))

    def move(self, topic: TopicName) -> None:
        places = [(one.id, entry) for one in self.cluster.topics[topic].ledgers for entry in range(-1, one.entries)]
        before = self.cluster.topics[topic].cursors.get("s", (-1, -1))
        self.cluster.subscribe(topic, "s", max(before, self.rng.choice(places)))

    def fail_at_random(self) -> None:
        for call in CALLS:
            errors = [lambda: BrokerUnavailableError("503"), lambda: TopicMovedError("moved")]
            self.cluster.faults.at_random(0.1, f"visits.{call}", errors)


@pytest.mark.explores
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_loaded_topics_are_not_touched_and_expired_data_go(seed: int) -> None:
    world = World(seed)
    cluster, task = world.cluster, task_of(world.cluster)
    world.fail_at_random()
    for _ in range(world.rng.randint(1, 80)):
        world.step()
        if world.rng.random() < 0.5:
            run(cluster, task, 0.001)
    cluster.faults.clear()
    cluster.on_use = lambda _: None
    for topic in world.topics:
        if cluster.topics[topic].loaded:
            world.rng.choice([cluster.shut, cluster.crash])(topic)
    visits = len(cluster.trimmed)
    run(cluster, task, HOUR)
    assert not any(by_others for _, by_others in cluster.trimmed), "a loaded topic was visited"
    assert not any(one.loaded for one in cluster.topics.values())
    for topic in world.topics:
        left = [one for one in cluster.topics[topic].ledgers if one.entries]
        if left:  # a subscription holds it, and with it all that follows
            places = cluster.topics[topic].cursors.values()
            assert any(place < (left[0].id, left[0].entries - 1) for place in places), "it should be gone"
    expected = 2 * len(world.topics)
    assert len(cluster.trimmed) - visits <= expected, "more than two visits"
