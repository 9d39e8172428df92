"""What goes wrong in one topic, in one step, in one process: the others go on, nothing is lost, nothing is there
twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dev.embedded.settings import SMALL_LEDGERS
from integration.application import RunningApplication
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.produce import LARGEST, MODES, open_client, produce, produce_mixed, random_contents
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import until
from integration.soak import AFTER, BEFORE, SOAK, STEPS, seal_steps
from integration.starting import started
from integration.world import World, keep_everything
from offloader.model import FailureKind, GapKind, TopicName
from offloader.storage.settings import StoreSettings
from tests.storage.servers import S3Server

KEEP_ALIVE = {"keepAliveIntervalSeconds": "5"}
STORES = ("disk", pytest.param("s3", marks=pytest.mark.versitygw))
PART_MIB = {"disk": 1, "s3": 5}  # the least part; everything that is produced grows with it
SHORT_SLICES = {"slice": {"timeBudget": "2s", "hardLimit": "5s"}}
SLOW = 100_000  # bytes a second, for each MiB of a part
ENTRIES_PER_LEDGER = int(SMALL_LEDGERS["managedLedgerMaxEntriesPerLedger"])

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

_names = itertools.count()


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    """One that may be restarted, and that soon notices a client that says nothing."""
    settings = {**PULSAR_SETTINGS, **KEEP_ALIVE}
    folder = tmp_path_factory.mktemp("pulsar-for-faults")
    with started(folder, lambda place: PatientPulsar(place, configuration=settings)) as standalone:
        yield standalone


@pytest.fixture
def namespace(pulsar: PatientPulsar) -> str:
    name = pulsar.create_namespace(f"public/faults-{next(_names)}")
    keep_everything(pulsar, name)
    return name


@pytest.fixture(params=STORES if SOAK else STORES[:1])
def kind(request: pytest.FixtureRequest) -> str:
    """Which store."""
    return str(request.param)


@pytest.fixture
def storage(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> StoreSettings:
    if kind == "disk":
        return StoreSettings((tmp_path / "archive").as_uri())
    server: S3Server = request.getfixturevalue("versitygw")
    return server.settings(server.fresh_root())


@pytest.fixture
def world(pulsar: PatientPulsar, kind: str, storage: StoreSettings, namespace: str, tmp_path: Path) -> Iterator[World]:
    """An archive of small parts and small segments."""
    small = {
        "partSizeInBytes": f"{PART_MIB[kind]}M",
        "blockSizeInBytes": "256K",
        "maxOffloadSegmentSizeInBytes": f"{3 * PART_MIB[kind]}M",
        "maxOffloadSegmentRolloverTimeInSeconds": "4s",
    }
    with World(pulsar, storage, tmp_path / "world", [namespace], policies=small, limits=SHORT_SLICES) as world:
        yield world


def topic_of(namespace: str, name: str) -> TopicName:
    return TopicName.parse(f"persistent://{namespace}/{name}")


def fill(world: World, topic: TopicName, seed: int, largest: int = LARGEST, *, partitioned: bool = False) -> None:
    """About five parts; with a smaller `largest` less in proportion."""
    messages = 40 * part_mib(world)
    produce_mixed(
        world.pulsar.service_url, str(topic), seed=seed, messages=messages, largest=largest, partitioned=partitioned
    )


def part_mib(world: World) -> int:
    return int(world.policies["partSizeInBytes"].removesuffix("M"))


def slow(world: World, topic: str, times: int = 1) -> dict[str, Any]:
    """Topics of this name (a regular expression) are read slowly: a part takes seconds."""
    return {"role": "worker", "source": "bytes_per_second", "topic": topic, "value": times * SLOW * part_mib(world)}


def wait_for_rest(world: World, application: RunningApplication) -> None:
    """Until everything that is there now is offloaded; then the application is stopped."""
    world.see()
    application.until(world.at_rest, "done with everything")
    assert application.stop() == 0


@pytest.mark.soak
def test_a_topic_in_trouble_does_not_hold_up_the_others(world: World, namespace: str) -> None:
    good, broken, deadly, crawling, aborted, growing = (
        topic_of(namespace, name) for name in ("good", "broken", "deadly", "crawling", "aborted", "growing")
    )
    world.topic_policies[str(aborted)] = {
        "maxOffloadSegmentRolloverTimeInSeconds": "10m",
        "maxOffloadSegmentSizeInBytes": "1G",
    }
    world.pulsar.admin("PUT", f"{growing.rest_path}/partitions", json=1)
    for seed, topic in enumerate((good, broken, deadly, aborted)):
        fill(world, topic, seed)
    fill(world, crawling, 4, LARGEST // 4)
    faults: list[dict[str, Any]] = [
        {"role": "worker", "call": "put_part", "key": "/broken/", "times": 10**6, "effect": "before"},
        {"role": "worker", "source": "die", "topic": "/deadly$", "value": 500_000},
        slow(world, "/crawling$"),
    ]
    application = world.new_application(faults=faults).start().wait_ready()
    application.until(lambda: parts(world, aborted) >= 2, "two parts into the segment")
    before = world.state(aborted).open
    assert before is not None
    assert before.upload is not None
    world.store.abort(before.upload)
    application.until(lambda: failure(world, broken) is FailureKind.RETRYABLE, "failing in one topic")
    application.until(lambda: failure(world, deadly) is FailureKind.TASK_DIED, "failing in another one")
    fill(world, good, 10)
    fill(world, aborted, 11)
    world.pulsar.admin("POST", f"{growing.rest_path}/partitions", json=3)
    fill(world, growing, 12, partitioned=True)
    world.see()
    application.until(
        lambda: all(world.at_rest_in(t) for t in (good, *partitions(growing, 3))), "done with the good topics"
    )
    application.until(lambda: parts(world, aborted) >= 2, "two parts into the segment again")
    after = world.state(aborted).open
    assert after is not None
    assert (after.uuid != before.uuid, after.start) == (True, before.start), "the same range under a new uuid"
    application.until(lambda: world.catalog(crawling).segments, "done with a segment of a topic that is read slowly")
    assert failure(world, broken) is FailureKind.RETRYABLE
    assert failure(world, deadly) is FailureKind.TASK_DIED
    assert not world.catalog(broken).segments
    assert not world.catalog(deadly).segments
    assert application.stop() == 0
    assert sum(pace.retries for pace in world.paces()) >= 2, "nothing is known of when failing topics were planned"
    world.catch_up()
    world.check()


def parts(world: World, topic: TopicName) -> int:
    """How many parts of the open segment are in the journal."""
    segment = world.state(topic).open
    return len(segment.parts) if segment else 0


def failure(world: World, topic: TopicName) -> FailureKind | None:
    found = world.state(topic).failure
    return found.kind if found else None


def partitions(topic: TopicName, count: int) -> list[TopicName]:
    return [TopicName.parse(f"{topic}-partition-{number}") for number in range(count)]


@pytest.mark.soak
def test_lost_answers_and_repeated_writes(world: World, namespace: str) -> None:
    """Each write of a seal may have happened although its answer is lost, and may happen twice."""
    names = ("complete", "index", "catalog", "repeated", "journal")
    topics = {name: topic_of(namespace, name) for name in names}
    faults: list[dict[str, Any]] = [
        *({"role": "driver", **seal_steps(step)[step], "effect": "lost"} for step in STEPS),
        {"role": "driver", "call": "*", "key": "/repeated/", "effect": "repeated", "times": 10**6},
        {"role": "worker", "call": "put_part", "key": "/repeated/", "effect": "repeated", "times": 10**6},
    ]
    for seed, name in enumerate(names[:-1]):
        fill(world, topics[name], seed)
    application = world.new_application(faults=faults).start().wait_ready()
    world.see()
    application.until(world.at_rest, "done with everything in spite of lost answers")
    for name in ("complete", "index", "catalog"):
        assert application.logged(f"seal failed topic={topics[name]} "), "the answer was lost"
    fill(world, topics["journal"], 10)
    world.see()
    application.until(world.at_rest, "done, though the answer to a journal record was lost")
    assert application.logged("what became of a journal record is not known yet")
    assert application.stop() == 0
    world.check()


MOMENTS = (
    [*itertools.product(STEPS, (BEFORE, AFTER))] if SOAK else [*((step, BEFORE) for step in STEPS), ("catalog", AFTER)]
)


def test_a_driver_that_is_overtaken_at_each_step_of_a_seal_changes_nothing_when_it_wakes(
    world: World, namespace: str
) -> None:
    topic = topic_of(namespace, "sealed")
    fill(world, topic, 1)
    asleep = [suspended_in_mid_slice(world, topic)]
    world.light = not SOAK  # a seal is the driver's alone
    for seed, (step, moment) in enumerate(MOMENTS):
        application = world.new_application(
            faults=[{"role": "driver", moment: "stop", **seal_steps("sealed")[step]}]
        ).start()
        asleep.append(application)
        application.until(lambda: asleep[-1].suspended, f"stopped in a seal ({step}, {moment})")
        fill(world, topic, 10 + seed)
    world.catch_up()
    offloaded = world.catalog(topic)
    for application in asleep:
        application.resume()
    for application in asleep:
        assert application.exit_code() == 3
    assert world.catalog(topic) == offloaded
    world.check()


def suspended_in_mid_slice(world: World, topic: TopicName) -> RunningApplication:
    """Its workers go on reading and uploading."""
    application = world.new_application(faults=[slow(world, "", 2)]).start()
    application.until(lambda: upload_of(world, topic) and application.workers(), "reading")
    application.suspend()
    return application


def test_unload_and_a_broker_restart_in_mid_slice(world: World, namespace: str) -> None:
    crawling, other = topic_of(namespace, "crawling"), topic_of(namespace, "other")
    for seed, topic in enumerate((crawling, other)):
        fill(world, topic, seed, LARGEST // 4)
    application = world.new_application(faults=[slow(world, "/crawling$", 3)]).start().wait_ready()
    application.until(lambda: upload_of(world, crawling), "reading the slow topic")
    world.pulsar.admin("PUT", f"{crawling.rest_path}/unload")
    application.until(lambda: parts(world, crawling) or world.catalog(crawling).segments, "going on after the unload")
    fill(world, crawling, 10, LARGEST // 4)
    world.pulsar.restart()
    for seed, topic in enumerate((crawling, other)):
        fill(world, topic, 20 + seed, LARGEST // 4)
    wait_for_rest(world, application)
    world.check()


def upload_of(world: World, topic: TopicName) -> str | None:
    segment = world.state(topic).open
    return segment.upload if segment else None


def test_transactions_that_are_aborted_or_stay_open(world: World, namespace: str) -> None:
    """An open transaction may last longer than the roll, and in a roll there may be nothing but aborted entries."""
    world.light = not SOAK  # what is delivered, and explained, is the same to threads
    stuck, aborted = topic_of(namespace, "stuck"), topic_of(namespace, "aborted")
    for topic in (stuck, aborted):
        load(world, topic)
    with Transactions(world.pulsar.service_url) as transactions:
        readable = {topic: transactions.send(str(topic), b"plain") for topic in (stuck, aborted)}
        stays_open = transactions.begin(str(stuck))
        transactions.send(str(stuck), b"in the open transaction", stays_open)
        for number in range(10):
            transactions.send(str(stuck), b"plain, behind it %d" % number)
        abort_some(transactions, aborted, 30)
    application = world.new_application().start().wait_ready()
    application.until(lambda: all(ends_at(world, *item) for item in readable.items()), "done with what can be read")
    with Transactions(world.pulsar.service_url) as transactions:
        transactions.end(stays_open, commit=True)
        abort_some(transactions, aborted, 30)
        transactions.send(str(aborted), b"plain")
        abort_some(transactions, aborted, 30)
    wait_for_rest(world, application)
    world.check(timeout=3.0)
    kinds = [gap.kind for segment in world.catalog(aborted).segments for gap in segment.gaps]
    assert {GapKind.ABORTED, GapKind.MARKER} <= set(kinds)


def load(world: World, topic: TopicName) -> None:
    """Create the topic if it is not there, and have a broker serve it."""
    if topic not in world.topics():
        world.pulsar.admin("PUT", topic.rest_path)
    world.pulsar.admin("GET", f"{topic.rest_path}/internalStats")


def abort_some(transactions: Transactions, topic: TopicName, count: int) -> None:
    aborted = transactions.begin(str(topic))
    for number in range(count):
        transactions.send(str(topic), b"aborted %d" % number, aborted)
    transactions.end(aborted, commit=False)


def ends_at(world: World, topic: TopicName, place: tuple[int, int]) -> bool:
    """Whether the catalog has reached this entry; a tail of aborted entries behind it may be accounted for, too."""
    end = world.catalog(topic).end
    return end is not None and (end.ledger, end.entry) >= place


def test_without_retention_nothing_is_lost_where_a_segment_ends_with_its_ledger(
    world: World, pulsar: PatientPulsar, namespace: str
) -> None:
    pulsar.admin(
        "POST", f"namespaces/{namespace}/retention", json={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    )
    world.light = not SOAK  # ledgers, seals and pins are the driver's
    full, unloaded = topic_of(namespace, "full"), topic_of(namespace, "unloaded")
    for topic in (full, unloaded):
        load(world, topic)
    application = world.new_application().start().wait_ready()
    application.until(lambda: all(world.catalog(t).claim for t in (full, unloaded)), "holding the pins")
    for count in (ENTRIES_PER_LEDGER, ENTRIES_PER_LEDGER, 1):
        application.suspend()  # or it could be trimmed before the test has read it
        send(world, full, count)
        send(world, unloaded, 1)
        world.see()
        application.resume()
        application.until(world.at_rest, "done with everything")
        pulsar.admin("PUT", f"{unloaded.rest_path}/unload")
    application.until(world.at_rest, "done with everything")  # the unload may have come before an acknowledgement
    assert application.stop() == 0
    until(lambda: trimmed_to(world, full, 2))  # what is offloaded is not kept
    world.check()


def trimmed_to(world: World, topic: TopicName, ledgers: int) -> bool:
    """Whether no more ledgers are left. A broker trims behind its answer."""
    world.pulsar.admin("POST", f"{topic.rest_path}/trim")
    return len(world.admin.topic_info(topic).ledgers.spans) <= ledgers


def send(world: World, topic: TopicName, count: int) -> None:
    """As many entries."""
    client = open_client(world.pulsar.service_url)
    contents = random_contents(1, count, smallest=1, largest=1000)
    assert produce(client, str(topic), contents, MODES[-1]).entries == count
    client.close()
