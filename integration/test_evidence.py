"""What is deleted, created again, moved or lost, on a real Pulsar: the driver as it is, its batches without Spark, its
time the test's own."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from integration.conftest import PULSAR_SETTINGS
from integration.ingress import Answer, Ingress, default_backend, empty_pulsar
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import until
from integration.starting import started
from offloader.metadata.state import TopicCatalog
from offloader.model import Position, TopicName
from offloader.pulsar.admin import AdminClient
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.pin import BrokerPins
from offloader.pulsar.settings import PulsarSettings
from tests.invariants import check_invariants
from tests.offload.simulation import Clock, Simulation
from tests.truth import TrueEntry, Truth

pytestmark = pytest.mark.pulsar

WITNESS = TopicName.parse("public/default/witness")
PIN = "__offloader"
NAMES = itertools.count()
SETTINGS = {**PULSAR_SETTINGS, "messageExpiryCheckIntervalInMinutes": "1", "backlogQuotaCheckIntervalInSeconds": "1"}


class RealCluster:
    """A real Pulsar where the simulation expects its own, behind an ingress. `pins` are made as a process makes
    them."""

    name = "standalone"
    stored = None

    def __init__(self, pulsar: PatientPulsar, ingress: Ingress) -> None:
        self.pulsar, self.ingress = pulsar, ingress
        self.settings = PulsarSettings(service_url=pulsar.service_url, admin_url=ingress.url, operation_timeout=10)
        self.admin = AdminClient(self.settings)
        self.source = BrokerSource(self.settings)

    def pins(self) -> BrokerPins:
        return BrokerPins(self.settings)


class World:
    """One topic and a witness, offloaded by a driver of their own."""

    def __init__(self, pulsar: PatientPulsar, ingress: Ingress, name: str, **options: object) -> None:
        self.pulsar, self.ingress = pulsar, ingress
        self.topic = TopicName.parse(f"public/default/{name}")
        for topic in (self.topic, WITNESS):
            if str(topic) not in pulsar.admin("GET", "persistent/public/default").json():
                pulsar.admin("PUT", topic.rest_path)
        clock = Clock(int(time.time() * 1000))
        self.cluster = RealCluster(pulsar, ingress)
        parts = SimpleNamespace(cluster=self.cluster, clock=clock)
        self.sim = Simulation(
            1, cluster_of=cast("Any", parts), roll="10s", entries_per_ledger=None, **cast("Any", options)
        )
        self.producer = Transactions(pulsar.service_url)
        self.written: dict[TopicName, list[tuple[int, int]]] = {self.topic: [], WITNESS: []}

    def until(self, there: Callable[[], object], step_ms: int = 5_000) -> None:
        """Rounds, with time that passes, until it is so."""
        deadline = time.monotonic() + HANGS
        while time.monotonic() < deadline:
            self.sim.rounds(1, step_ms=step_ms)
            if there():
                return
            time.sleep(0.02)
        raise AssertionError(f"it did not happen: {self.sim.journal.topics}, {self.sim.registry.refused}")

    def produce(self, count: int, topic: TopicName | None = None) -> None:
        topic = topic or self.topic
        self.written[topic] += [self.producer.send(str(topic), b"x" * 100) for _ in range(count)]

    def unload(self) -> None:
        self.pulsar.admin("PUT", f"{self.topic.rest_path}/unload")
        self.producer.forget(str(self.topic))

    def stats(self) -> dict[str, Any]:
        """The topic's managed ledger as its broker has it; the topic is loaded for that."""
        return cast("dict[str, Any]", self.pulsar.admin("GET", f"{self.topic.rest_path}/internalStats").json())

    def pin(self) -> tuple[int, int] | None:
        """Where it stands; None: there is none."""
        cursor = self.stats()["cursors"].get(PIN)
        return (
            None
            if cursor is None
            else cast("tuple[int, int]", tuple(int(x) for x in cursor["markDeletePosition"].split(":")))
        )

    def pin_is_at_the_end(self) -> bool:
        pin = self.pin()
        return pin is not None and pin >= max(self.written[self.topic])

    def pin_is_in_the_last_ledger(self) -> bool:
        """As far as a backlog quota moves it: an entry is left."""
        pin = self.pin()
        return pin is not None and pin[0] >= max(self.written[self.topic])[0]

    def passed(self, places: Iterable[tuple[int, int]]) -> set[int]:
        """The ledgers of which the pin keeps none of these places."""
        pin, ends = self.pin(), dict(sorted(places))
        return {ledger for ledger, last in ends.items() if pin is None or (ledger, last) <= pin}

    def trim(self, places: Iterable[tuple[int, int]]) -> None:
        """Have Pulsar trim until it lists no ledger of these places any more that the pin has passed: it does so behind
        its answer, and behind a load."""
        doomed = self.passed(places)
        assert doomed

        def gone() -> bool:
            self.pulsar.admin("POST", f"{self.topic.rest_path}/trim")
            return doomed.isdisjoint(span["ledgerId"] for span in self.stats()["ledgers"])

        until(gone)

    @property
    def catalog(self) -> TopicCatalog:
        return self.sim.context.catalogs.load(self.topic)

    def offloaded(self) -> bool:
        end = self.catalog.end
        last = max(self.written[self.topic])
        return end is not None and (end.ledger, end.entry) >= last and self.sim.driver.state(self.topic).open is None

    def adopted(self) -> bool:
        return {self.topic, WITNESS} <= set(self.sim.registry.topics)

    def check(self) -> None:
        """What must always hold; every entry that was written is in the archive or in a loss."""
        entries = {place: TrueEntry(None) for place in self.written[self.topic]}
        check_invariants(self.sim.store, {self.topic: Truth(entries, None)}, at_rest=True)

    def close(self) -> None:
        self.sim.close()
        self.producer.close()
        self.cluster.source.close()
        self.cluster.admin.close()


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    with started(tmp_path_factory.mktemp("pulsar"), lambda f: PatientPulsar(f, configuration=SETTINGS)) as standalone:
        yield standalone


@pytest.fixture
def world(pulsar: PatientPulsar) -> Iterator[Callable[..., World]]:
    made: list[World] = []
    with Ingress(pulsar.admin_url) as ingress:

        def make(**options: object) -> World:
            made.append(World(pulsar, ingress, f"t{next(NAMES)}", **options))
            made[0].until(made[0].adopted)
            return made[0]

        yield make
        for one in made:
            one.close()


def offloaded_with_an_open_segment(world: World) -> None:
    world.produce(5)
    world.until(world.offloaded)
    world.produce(5)
    world.until(lambda: world.sim.driver.state(world.topic).open is not None, step_ms=1)


@pytest.mark.parametrize("lie", ["everything", "the topic", "another Pulsar"])
def test_an_ingress_that_fails_or_leads_elsewhere_deletes_nothing(world: Callable[..., World], lie: str) -> None:
    there = world()
    offloaded_with_an_open_segment(there)
    own = f"{there.topic.rest_path}/"

    def the_topic(path: str) -> Answer:
        return default_backend(path) if path.startswith(own) else None

    there.ingress.answer = {"everything": default_backend, "the topic": the_topic, "another Pulsar": empty_pulsar}[lie]
    there.unload()  # the driver looks again
    there.produce(3)
    there.sim.rounds(30, step_ms=5_000)  # two minutes and a half
    assert there.topic in there.sim.registry.topics
    there.ingress.answer = lambda _: None
    there.until(there.offloaded)
    assert not there.catalog.losses
    there.check()


def test_a_deleted_topic_is_believed_to_be_after_a_minute(world: Callable[..., World]) -> None:
    there = world()
    offloaded_with_an_open_segment(there)
    there.pulsar.admin("DELETE", f"{there.topic.rest_path}?force=true")
    there.sim.rounds(5, step_ms=10_000)
    assert there.topic in there.sim.registry.topics
    there.until(lambda: there.topic not in there.sim.registry.topics, step_ms=10_000)
    assert there.catalog.losses


def test_another_time_zone_is_no_other_incarnation(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = world()
    there.produce(5)
    there.until(there.offloaded)
    before = there.pulsar.admin("GET", f"{there.topic.rest_path}/internal-info").json()["creationDate"]
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    there.pulsar.restart()
    there.producer.close()
    there.producer = Transactions(there.pulsar.service_url)
    until(lambda: there.sim.cluster.admin.topic_info(there.topic))
    there.produce(5)
    after = there.pulsar.admin("GET", f"{there.topic.rest_path}/internal-info").json()["creationDate"]
    assert before != after
    assert after.endswith("+05:45")
    there.until(there.offloaded)
    assert there.catalog.claim is not None
    assert there.catalog.claim.incarnation == 0
    assert not there.catalog.losses
    there.check()


def _post(what: str) -> Callable[[World], object]:
    return lambda world: world.pulsar.admin("POST", f"{world.topic.rest_path}/subscription/{PIN}/{what}")


def _expired(world: World) -> None:
    """A broker answers before the pin has moved, and an unload would overtake it. 409: the former one is not over."""

    def moved() -> bool:
        answer = world.pulsar.answer("POST", f"{world.topic.rest_path}/subscription/{PIN}/expireMessages/1")
        assert answer.status_code in (204, 409), answer.text
        return world.pin_is_at_the_end()

    until(moved)


def _by_policy(path: str, policy: object, moved: Callable[[World], bool]) -> Callable[[World], object]:
    """What the broker does by itself, at its next check, while a policy of the namespace says so."""

    def way(world: World) -> None:
        world.pulsar.admin("POST", f"namespaces/public/default/{path}", json=policy)
        try:
            until(lambda: moved(world))
        finally:
            world.pulsar.admin("DELETE", f"namespaces/public/default/{path}")

    return way


WAYS: dict[str, Callable[[World], object]] = {
    "skip_all": _post("skip_all"),
    "skip": _post("skip/100"),
    "reset to the latest": lambda world: _post(f"resetcursor/{int(time.time() * 1000) + 60_000}")(world),
    "expired": _expired,
    "deleted": lambda world: world.pulsar.admin("DELETE", f"{world.topic.rest_path}/subscription/{PIN}?force=true"),
    "clear backlog": lambda world: world.pulsar.admin("POST", f"namespaces/public/default/clearBacklog/{PIN}"),
    "TTL": _by_policy("messageTTL", 1, World.pin_is_at_the_end),
    "backlog quota": _by_policy(
        "backlogQuota",
        {"limitSize": 10, "limitTime": -1, "policy": "consumer_backlog_eviction"},
        World.pin_is_in_the_last_ledger,
    ),
    "truncated": lambda world: world.pulsar.admin("DELETE", f"{world.topic.rest_path}/truncate"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_pin_that_is_moved_never_leaves_a_silent_hole(world: Callable[..., World], way: str) -> None:
    """Retention is 0: what the pin does not keep is gone at once, or with the topic's next load."""
    there = world(fail_on_data_loss=False)
    there.produce(5)
    there.until(there.offloaded)
    there.sim.pins.close()  # the application is down
    there.sim.journal.close()
    before = len(there.written[there.topic])
    for _ in range(2):
        there.produce(5)
        there.unload()
    until(
        lambda: there.sim.cluster.admin.topic_info(there.topic)
    )  # a namespace's backlog is cleared of topics that are loaded
    doomed = there.written[there.topic][before:]

    def moved() -> bool:
        """A broker that unloads a topic may forget where it has just moved a cursor to."""
        WAYS[way](there)
        there.unload()
        return bool(there.passed(doomed))

    until(moved)
    there.trim(doomed)
    there.produce(5)
    there.unload()
    there.sim.start()
    there.until(there.adopted)
    there.produce(5)
    there.until(there.offloaded)
    assert there.catalog.losses
    there.check()
    last = there.catalog.end
    assert last is not None
    assert last >= Position(0, *max(there.written[there.topic]))


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("by_somebody", [True, False])
def test_what_went_with_the_pin_of_a_topic_claimed_while_empty_is_not_lost_silently(
    world: Callable[..., World], running: bool, by_somebody: bool
) -> None:
    """Nothing is committed yet, and nobody looked: that the pin is another one is all that there is to see."""
    there = world(fail_on_data_loss=False)
    if not running:
        there.sim.pins.close()
        there.sim.journal.close()
    there.produce(5)
    there.pulsar.admin("DELETE", f"{there.topic.rest_path}/subscription/{PIN}?force=true")
    there.unload()
    there.trim(there.written[there.topic])
    if by_somebody:
        there.pulsar.admin("PUT", f"{there.topic.rest_path}/subscription/{PIN}")
    if not running:
        there.sim.start()
    there.produce(5)
    there.until(there.offloaded)
    assert there.catalog.losses
    there.check()


def test_an_empty_topic_whose_ledger_is_replaced_with_each_load_has_lost_nothing(world: Callable[..., World]) -> None:
    there = world()
    claim = there.catalog.claim
    assert claim is not None
    assert claim.token
    for _ in range(2):
        there.unload()
        there.sim.rounds(3, step_ms=61_000)
    there.produce(5)
    there.until(there.offloaded)
    assert not there.catalog.losses
    assert there.sim.cluster.admin.pin_token(there.topic, PIN) == claim.token
    there.check()


def created_again(world: World) -> None:
    world.pulsar.admin("DELETE", f"{world.topic.rest_path}?force=true")
    world.producer.forget(str(world.topic))
    world.pulsar.admin("PUT", world.topic.rest_path)
    world.written[world.topic].clear()


def next_incarnation_claimed(world: World) -> bool:
    claim = world.catalog.claim
    return claim is not None and claim.incarnation == 1


def test_a_topic_that_is_created_again_has_our_subscription_at_once(world: Callable[..., World]) -> None:
    there = world()
    there.produce(5)
    there.until(there.offloaded)
    created_again(there)
    there.until(lambda: there.pin() is not None, step_ms=10)
    assert not next_incarnation_claimed(there)
    there.produce(5)
    there.unload()
    there.produce(5)
    there.until(lambda: next_incarnation_claimed(there) and there.offloaded())
    assert not there.catalog.losses
    assert sum(segment.entries for segment in there.catalog.segments if segment.start.incarnation == 1) == 10


def test_what_was_trimmed_of_a_topic_that_was_created_again_is_a_loss_of_unknown_size(
    world: Callable[..., World],
) -> None:
    there = world()
    there.produce(5)
    there.until(there.offloaded)
    there.sim.pins.close()  # the application is down
    there.sim.journal.close()
    created_again(there)
    there.produce(5)
    there.unload()
    there.trim(there.written[there.topic])
    there.sim.start()
    there.until(lambda: there.pin() is not None)
    there.produce(5)
    there.until(lambda: next_incarnation_claimed(there) and there.offloaded())
    (loss,) = there.catalog.losses
    assert loss.uncounted
    first, last = there.written[there.topic][0], there.written[there.topic][-1]
    assert (loss.start.ledger, loss.start.entry) <= first
    assert loss.end < Position(1, *last)
    assert there.catalog.segments[-1].entries == 5


def test_shadow_topics_are_skipped(world: Callable[..., World], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    there = world()
    there.produce(5)
    source = {"PULSAR.SHADOW_SOURCE": str(there.topic)}
    shadow = TopicName.parse(f"{there.topic}-shadow")
    there.pulsar.admin("PUT", shadow.rest_path, json=source)
    partitioned = TopicName.parse(f"{there.topic}-partitioned")
    there.pulsar.admin("PUT", f"{partitioned.rest_path}/partitions", json=1)
    shadow_of_it = TopicName.parse(f"{partitioned}-shadow")
    properties = {"PULSAR.SHADOW_SOURCE": str(partitioned)}
    there.pulsar.web.put(
        f"{shadow_of_it.rest_path}/partitions",
        json={"partitions": 1, "properties": properties},
        headers={"Content-Type": "application/vnd.partitioned-topic-metadata+json"},
    ).raise_for_status()
    skipped = {shadow, TopicName.parse(f"{shadow_of_it}-partition-0")}
    there.until(lambda: all(any(f"skipped topic={name}:" in line for line in caplog.messages) for name in skipped))
    there.until(there.offloaded)
    assert TopicName.parse(f"{partitioned}-partition-0") in there.sim.registry.topics
    assert not skipped & (there.sim.registry.topics.keys() | there.sim.registry.refused.keys())
    there.pulsar.admin("DELETE", f"{shadow_of_it.rest_path}/partitions?force=true")
    there.pulsar.admin("DELETE", f"{shadow.rest_path}?force=true")
    there.pulsar.admin("DELETE", f"{partitioned.rest_path}/partitions?force=true")
