"""Where entries are read from: a topic with everything that brokers hide is copied complete, entry by entry equal to
what BookKeeper's own client reads from its ledgers; through brokers alone gaps are recorded, or fail with the
reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from dev.embedded.commands import JavaCommands
from dev.embedded.jars import fetch_lock
from dev.embedded.lock import PULSAR
from integration.bookkeeper.official import OfficialClient, Shape, compiled
from integration.conftest import PULSAR_SETTINGS
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import open_client, produce_mixed
from integration.pulsar.filtering import NAME as DROP
from integration.pulsar.filtering import drop_filter
from integration.pulsar.transactions import Transactions
from integration.soak import SOAK
from integration.starting import started
from integration.world import World, keep_everything
from offloader import Archive
from offloader.bookkeeper.connect import BookKeeperSettings, connect
from offloader.cli.main import main
from offloader.errors import DataLostError
from offloader.java import find_java
from offloader.model import MIB, FailureKind, GapKind, Source, TopicName
from offloader.ports.entry_source import EntryReader, RawEntry
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

SMALL = {
    "partSizeInBytes": "1M",
    "blockSizeInBytes": "256K",
    "maxOffloadSegmentSizeInBytes": "3M",
    "maxOffloadSegmentRolloverTimeInSeconds": "3s",
}
SHAPE = Shape(1, 1, 1)

Place = tuple[int, int]
_names = itertools.count()


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PatientPulsar]:
    """One with its metadata in ZooKeeper, and an entry filter."""
    folder = tmp_path_factory.mktemp("pulsar-for-sources")
    settings = {**PULSAR_SETTINGS, **drop_filter(folder / "filters")}
    with started(folder, lambda place: PatientPulsar(place, zookeeper=True, configuration=settings)) as standalone:
        yield standalone


@pytest.fixture(scope="module")
def uri(pulsar: PatientPulsar) -> str:
    return f"zk://{pulsar.zookeeper_address}/ledgers"


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory, uri: str) -> Iterator[OfficialClient]:
    """BookKeeper's own client."""
    with started(
        tmp_path_factory.mktemp("official"), partial(official_client, uri.replace("zk://", "zk+null://"))
    ) as client:
        yield client


@contextmanager
def official_client(uri: str, folder: Path) -> Iterator[OfficialClient]:
    folder.mkdir()
    commands = JavaCommands(find_java(), fetch_lock(PULSAR), folder)
    client = OfficialClient(commands, compiled(commands), uri, "official")
    yield client
    client.kill()


@pytest.fixture
def namespace(pulsar: PatientPulsar) -> str:
    name = pulsar.create_namespace(f"public/sources-{next(_names)}")
    keep_everything(pulsar, name)
    return name


@pytest.fixture
def world(pulsar: PatientPulsar, namespace: str, tmp_path: Path) -> Iterator[World]:
    storage = StoreSettings((tmp_path / "archive").as_uri())
    with World(pulsar, storage, tmp_path / "world", [namespace], policies=SMALL, light=not SOAK) as world:
        yield world


def topic_of(pulsar: PatientPulsar, namespace: str, name: str) -> TopicName:
    topic = TopicName.parse(f"persistent://{namespace}/{name}")
    pulsar.admin("PUT", topic.rest_path)
    pulsar.admin("GET", f"{topic.rest_path}/internalStats")
    return topic


def produce_plain(pulsar: PatientPulsar, topic: TopicName, seed: int) -> None:
    produce_mixed(pulsar.service_url, str(topic), seed=seed, messages=150, largest=100_000)


def produce_hidden(pulsar: PatientPulsar, topic: TopicName) -> None:
    """Committed and aborted transactions, side by side, with plain messages between their entries."""
    with Transactions(pulsar.service_url) as transactions:
        both = [transactions.begin(str(topic)) for _ in range(2)]
        for number in range(30):
            transactions.send(str(topic), b"in a transaction %d" % number, both[number % 2])
            transactions.send(str(topic), b"plain %d" % number)
        for transaction, commit in zip(both, (True, False), strict=True):
            transactions.end(transaction, commit=commit)


def produce_withheld(pulsar: PatientPulsar, topic: TopicName) -> None:
    """Delayed and filtered messages."""
    client = open_client(pulsar.service_url)
    with closing(client):
        producer = client.create_producer(str(topic), batching_enabled=False)
        for number in range(20):
            producer.send(b"delayed %d" % number, deliver_after=timedelta(hours=1))
            producer.send(b"plain %d" % number)
            producer.send(b"filtered %d" % number, properties={DROP: "yes"})
        producer.close()


def open_transaction(pulsar: PatientPulsar, topic: TopicName) -> None:
    """One that is not ended, with plain messages behind its begin."""
    with Transactions(pulsar.service_url) as transactions:
        transaction = transactions.begin(str(topic))
        for number in range(10):
            transactions.send(str(topic), b"open %d" % number, transaction)
            transactions.send(str(topic), b"behind it %d" % number)


def produce_everything(pulsar: PatientPulsar, topic: TopicName) -> None:
    produce_plain(pulsar, topic, 1)
    produce_hidden(pulsar, topic)
    produce_withheld(pulsar, topic)
    pulsar.admin("PUT", f"{topic.rest_path}/unload")
    produce_hidden(pulsar, topic)
    produce_plain(pulsar, topic, 2)
    open_transaction(pulsar, topic)


def in_ledgers(official: OfficialClient, world: World, topic: TopicName) -> dict[Place, bytes]:
    """Everything that is stored, as BookKeeper's own client reads it."""
    info = world.admin.topic_info(topic)
    assert info.last_confirmed is not None
    found: dict[Place, bytes] = {}
    for span in info.ledgers.spans:
        last = info.last_confirmed[1] if span.ledger == info.last_confirmed[0] else span.last
        if last is not None and last >= 0:
            found |= {(span.ledger, e.entry): e.payload for e in official.read(span.ledger, 0, last, SHAPE)}
    return found


def archived(world: World, topic: TopicName) -> dict[Place, bytes]:
    with Archive(world.storage.root) as archive:
        entries = [((e.position.ledger, e.position.entry), e.data) for e in archive.topic(topic).entries()]
    assert len(dict(entries)) == len(entries)
    return dict(entries)


def sources(world: World, topic: TopicName) -> set[Source]:
    return {segment.source for segment in world.catalog(topic).segments}


def gap_kinds(world: World, topic: TopicName) -> set[GapKind]:
    return {gap.kind for segment in world.catalog(topic).segments for gap in segment.gaps}


@pytest.mark.parametrize("source", [Source.BOOKKEEPER, Source.BROKER_WITH_BOOKIES])
def test_a_topic_with_everything_that_brokers_hide_is_copied_complete(
    world: World, official: OfficialClient, uri: str, namespace: str, source: Source
) -> None:
    topic = topic_of(world.pulsar, namespace, "everything")
    produce_everything(world.pulsar, topic)
    name = "bookkeeper" if source is Source.BOOKKEEPER else "broker"
    world.connection = {"metadataServiceUri": uri, "source": name}
    world.catch_up()
    stored = in_ledgers(official, world, topic)
    assert len({ledger for ledger, _ in stored}) >= 2
    assert archived(world, topic) == stored
    assert (gap_kinds(world, topic), sources(world, topic)) == (set(), {source})
    for values in messages(world, topic):
        assert [v for v in values if v.startswith(b"in a transaction")] == 2 * [
            b"in a transaction %d" % n for n in range(0, 30, 2)
        ]
        assert sum(v.startswith((b"delayed", b"filtered", b"open")) for v in values) == 20 + 20 + 10
    world.check(timeout=3.0)


def messages(world: World, topic: TopicName) -> list[list[bytes]]:
    """What was sent, as each of two readers gives it."""
    with Archive(world.storage.root) as archive:
        read = archive.topic(topic)
        batches = [batch.column("value").to_pylist() for batch in read.record_batches(["value"])]
        return [[m.value or b"" for m in read.messages()], [value or b"" for values in batches for value in values]]


def test_the_tail_is_followed_from_bookies_while_a_transaction_is_open(
    world: World, official: OfficialClient, uri: str, namespace: str
) -> None:
    topic = topic_of(world.pulsar, namespace, "tail")
    produce_plain(world.pulsar, topic, 1)
    world.connection, world.light = {"metadataServiceUri": uri}, False  # here tasks of Spark reach bookies
    application = world.new_application(source="bookkeeper").start().wait_ready()
    application.until(lambda: world.catalog(topic).segments, "done with a segment")
    open_transaction(world.pulsar, topic)
    produce_plain(world.pulsar, topic, 2)
    last = world.admin.topic_info(topic).last_confirmed
    assert last is not None
    world.see(3.0)
    application.until(
        lambda: end(world, topic) >= last and world.at_rest_in(topic), "at rest behind the open transaction"
    )
    assert application.stop() == 0
    assert archived(world, topic) == in_ledgers(official, world, topic)
    world.check(timeout=3.0)


def end(world: World, topic: TopicName) -> Place:
    found = world.catalog(topic).end
    return (-1, -1) if found is None else (found.ledger, found.entry)


def test_through_brokers_alone_gaps_are_classified_and_recorded(
    world: World, official: OfficialClient, namespace: str
) -> None:
    topic = topic_of(world.pulsar, namespace, "gaps")
    produce_plain(world.pulsar, topic, 1)
    produce_hidden(world.pulsar, topic)
    produce_plain(world.pulsar, topic, 2)
    world.catch_up()
    stored, copied = in_ledgers(official, world, topic), archived(world, topic)
    gaps = {(g.ledger, e) for s in world.catalog(topic).segments for g in s.gaps for e in range(g.first, g.last + 1)}
    assert copied == {place: data for place, data in stored.items() if place not in gaps}
    assert copied.keys() | gaps == stored.keys()
    assert (gap_kinds(world, topic), sources(world, topic)) == ({GapKind.ABORTED, GapKind.MARKER}, {Source.BROKER})
    assert len(gaps) == 15 + 2, "the aborted transaction's, and both markers"
    world.check(timeout=3.0)


@pytest.mark.parametrize("after", ["broker", "bookkeeper"])
def test_what_can_be_neither_explained_nor_filled_fails_with_the_reason_until_bookies_may_be_asked(
    world: World, official: OfficialClient, uri: str, namespace: str, after: str
) -> None:
    topic = topic_of(world.pulsar, namespace, "filtered")
    produce_plain(world.pulsar, topic, 1)
    produce_withheld(world.pulsar, topic)
    application = world.new_application()
    assert application.run_until_caught_up(HANGS) == 2
    (line,) = {line for line in application.log_lines() if "not caught up: " in line}
    assert "were not delivered and nothing says why; set pulsar.metadataServiceUri" in line
    failure, before = world.state(topic).failure, world.state(topic).open
    assert failure is not None
    assert failure.kind is FailureKind.INTEGRITY
    assert before is not None
    world.connection = {"metadataServiceUri": uri, "source": after}
    world.catch_up()
    assert archived(world, topic) == in_ledgers(official, world, topic)
    assert before.uuid not in {segment.uuid for segment in world.catalog(topic).segments}
    assert gap_kinds(world, topic) == set()
    world.check(timeout=3.0)


def test_without_a_broker_closed_ledgers_are_read_and_one_that_is_deleted_meanwhile_is_a_loss(
    world: World, official: OfficialClient, uri: str, namespace: str
) -> None:
    topic = topic_of(world.pulsar, namespace, "closed")
    for seed in range(3):
        produce_plain(world.pulsar, topic, seed)
        world.pulsar.admin("PUT", f"{topic.rest_path}/unload")
    stored = in_ledgers(official, world, topic)
    open_ledger = world.admin.topic_info(topic).ledgers.spans[-1].ledger
    produce_plain(world.pulsar, topic, 3)
    with closing(connect(BookKeeperSettings(uri))) as source:
        found = read_all(source.open(topic, 0, 0, max_bytes=MIB), max(stored))
        assert {(e.ledger, e.entry): e.data for e in found} == stored
        assert open_ledger not in {e.ledger for e in found}
        *_, last = sorted({ledger for ledger, _ in stored})
        reader = source.open(topic, 0, 0, max_bytes=MIB)
        official.call("delete", ledger=last)
        with pytest.raises(DataLostError, match=f"ledger {last} is gone from BookKeeper"):
            read_all(reader, max(stored))


def read_all(reader: EntryReader, last: Place, seconds: float = HANGS) -> list[RawEntry]:
    found: list[RawEntry] = []
    with closing(reader):
        while not found or (found[-1].ledger, found[-1].entry) < last:
            arrived = reader.read(seconds)
            assert arrived, f"it ends with {found[-1:]} and not with {last}"
            found += arrived
        assert reader.read(0.5) == [], "nobody says how far an open ledger may be read"
    return found


def test_the_doctor_reads_a_ledger(pulsar: PatientPulsar, uri: str, namespace: str, tmp_path: Path) -> None:
    topic = topic_of(pulsar, namespace, "healthy")
    produce_plain(pulsar, topic, 1)
    lines = doctor(pulsar, uri, namespace, tmp_path)
    assert lines["metadata-service"].startswith("ok ")
    assert lines["bookies"].startswith("ok ")
    assert lines["read-ledger"].startswith("ok ")
    lines = doctor(pulsar, "zk://127.0.0.1:1/ledgers", namespace, tmp_path, patience="2s")
    assert lines["metadata-service"].startswith("fail ")
    assert "read-ledger" not in lines


def doctor(pulsar: PatientPulsar, uri: str, namespace: str, folder: Path, patience: str = "120s") -> Mapping[str, str]:
    """The lines by the names of their checks."""
    config = folder / "offloader.yaml"
    config.write_text(
        f"""
application: doctor
pulsar: {{serviceUrl: "{pulsar.service_url}", adminUrl: "{pulsar.admin_url}", metadataServiceUri: "{uri}",
          bookies: {{operationTimeout: {patience}}}}}
storage: {{root: "{(folder / "archive").as_uri()}"}}
namespaces: {{{namespace}: {{enabled: true}}}}
"""
    )
    told = CliRunner().invoke(main, ["doctor", "--config", str(config)]).stdout
    lines = [line for line in told.splitlines() if not line.startswith(" ")]
    return {line.split()[1].rstrip(":"): line for line in lines}
