"""What a stock broker offloaded is read without it, byte for byte: alone, and followed by our own segments."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import boto3
import pytest

from dev.embedded.settings import ENTRY_METADATA, OffloaderSettings
from integration.patient import PatientPulsar
from integration.processes import HANGS
from integration.produce import Produced, merged, produce_mixed
from integration.soak import SOAK
from integration.starting import started
from integration.stock_store import stock_store
from integration.world import World, keep_everything
from offloader import Archive
from offloader.archive.items import Missing
from offloader.archive.ledgers.bucket import LedgerBucket
from offloader.archive.ledgers.found import FoundLedgers, joined
from offloader.archive.reading.stores import Stores
from offloader.archive.records import TopicRecords
from offloader.archive.topic import ArchivedTopic
from offloader.bookkeeper.api import LedgerMetadataStore
from offloader.bookkeeper.zookeeper import connect
from offloader.errors import LedgerNotFoundError
from offloader.metadata.state import TopicCatalog
from offloader.model import MIB, TopicName
from offloader.operations.verify.beside import verify_ledgers
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.open import open_store
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

NAMESPACE = "public/stock"
ALONE = TopicName("public", "stock", "off l*~+%é.x")
MIXED = TopicName("public", "stock", "mixed")
# moto keeps the buckets of all its servers in one place: no other test may use this name
BUCKET, KEY, SECRET = "stock-ledgers", "key", "secret"
SETTINGS = {
    **ENTRY_METADATA,
    "managedLedgerMaxEntriesPerLedger": "60",
    "managedLedgerInfoCompressionType": "ZSTD",
    "managedLedgerInfoCompressionThresholdInBytes": "0",
    "managedLedgerOffloadDeletionLagMs": "0",
}

Entries = Mapping[tuple[int, int], bytes]


@dataclass(frozen=True)
class Stock:
    """What the stock broker was given, what it said of it, and what has been left of it: the bucket and nothing
    else."""

    bucket: StoreSettings
    archive: StoreSettings
    entries: Mapping[TopicName, Entries]
    records: Mapping[TopicName, bytes]
    asked: Mapping[TopicName, FoundLedgers]
    produced: Mapping[TopicName, Produced]
    first_left: Mapping[TopicName, tuple[int, int]]  # the first position that the broker did not offload


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stock]:
    """Two topics offloaded by a stock broker, one of them then offloaded onwards by us; afterwards Pulsar's data are
    deleted."""
    folder = tmp_path_factory.mktemp("stock")
    with stock_store() as endpoint:
        s3 = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=KEY, aws_secret_access_key=SECRET
        )
        s3.create_bucket(Bucket=BUCKET)
        s3.close()
        yield _offloaded(folder, StoreSettings(f"s3://{BUCKET}", endpoint, "us-east-1", KEY, SECRET))


def _offloaded(folder: Path, bucket: StoreSettings) -> Stock:
    assert bucket.endpoint is not None
    offloader = OffloaderSettings(bucket.endpoint, BUCKET, KEY, SECRET)
    archive = StoreSettings((folder / "archive").as_uri())
    with started(
        folder / "pulsar", lambda f: PatientPulsar(f, zookeeper=True, configuration=SETTINGS, offloader=offloader)
    ) as pulsar:
        pulsar.create_namespace(NAMESPACE)
        keep_everything(pulsar, NAMESPACE)
        for topic in (ALONE, MIXED):
            pulsar.admin("PUT", topic.rest_path)
        produced = {
            topic: produce_mixed(pulsar.service_url, str(topic), seed=number, messages=400)
            for number, topic in enumerate((ALONE, MIXED))
        }
        entries = {topic: _entries(pulsar, topic) for topic in (ALONE, MIXED)}
        first_left = {topic: _offload(pulsar, topic) for topic in (ALONE, MIXED)}
        # what follows is not the stock broker's any more
        more = produce_mixed(pulsar.service_url, str(MIXED), seed=2, messages=200, largest=10_000)
        produced[MIXED] = merged([produced[MIXED], more])
        entries[MIXED] = {**_entries(pulsar, MIXED, after=max(entries[MIXED])), **entries[MIXED]}
        policies = {"startAfterOffloaded": True}
        with World(pulsar, archive, folder, [NAMESPACE], policies=policies, light=not SOAK) as world:
            world.catch_up()
        admin = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url)
        asked = {topic: LedgerBucket(bucket, admin=admin).find(topic) for topic in entries}
        records = {topic: _record(pulsar, topic) for topic in entries}
        _wait_until_bookkeeper_forgets(pulsar, asked)
    shutil.rmtree(folder / "pulsar")
    return Stock(bucket, archive, entries, records, asked, produced, first_left)


def _entries(pulsar: PatientPulsar, topic: TopicName, after: tuple[int, int] = (0, 0)) -> dict[tuple[int, int], bytes]:
    """What a topic holds, as brokers deliver it from BookKeeper."""
    source = BrokerSource(PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url))
    ledger, _, entry = (
        pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["lastConfirmedEntry"].partition(":")
    )
    found: dict[tuple[int, int], bytes] = {}
    with closing(source), closing(source.open(topic, *after, max_bytes=16 * MIB)) as reader:
        while max(found, default=(-1, -1)) < (int(ledger), int(entry)):
            arrived = reader.read(HANGS)
            assert arrived, f"{topic} ends with {max(found)} and not with {ledger}:{entry}"
            found.update({(e.ledger, e.entry): e.data for e in arrived})
    return found


def _offload(pulsar: PatientPulsar, topic: TopicName) -> tuple[int, int]:
    """Let the stock broker offload all closed ledgers; the first position that it left."""
    path = topic.rest_path
    ledger, _, entry = pulsar.admin("GET", f"{path}/internalStats").json()["lastConfirmedEntry"].partition(":")
    pulsar.admin("PUT", f"{path}/offload", {"ledgerId": int(ledger), "entryId": int(entry)})
    deadline = time.monotonic() + HANGS
    while (status := pulsar.admin("GET", f"{path}/offload").json())["status"] == "RUNNING":
        assert time.monotonic() < deadline, status
        time.sleep(0.1)
    assert status["status"] == "SUCCESS", status
    return status["firstUnoffloadedMessage"]["ledgerId"], status["firstUnoffloadedMessage"]["entryId"]


def _record(pulsar: PatientPulsar, topic: TopicName) -> bytes:
    assert pulsar.zookeeper_address is not None
    with closing(connect(f"zk:{pulsar.zookeeper_address}")) as metadata:
        node = metadata.nodes.get(metadata.topic_path(topic))
        assert node is not None
        return node.value


def _wait_until_bookkeeper_forgets(pulsar: PatientPulsar, asked: Mapping[TopicName, FoundLedgers]) -> None:
    """Until the broker has deleted its own copies of what is offloaded."""
    assert pulsar.zookeeper_address is not None
    ledgers = [held.start.ledger for found in asked.values() for held in found.ledgers]
    deadline = time.monotonic() + HANGS
    with closing(connect(f"zk:{pulsar.zookeeper_address}")) as metadata:
        while left := [ledger for ledger in ledgers if _is_there(metadata, ledger)]:
            assert time.monotonic() < deadline, left
            for topic in asked:
                pulsar.admin("POST", f"{topic.rest_path}/trim")
            time.sleep(0.2)


def _is_there(metadata: LedgerMetadataStore, ledger: int) -> bool:
    try:
        metadata.read(ledger)
    except LedgerNotFoundError:
        return False
    return True


def _read(topic: ArchivedTopic) -> tuple[dict[tuple[int, int], bytes], list[Missing]]:
    found: dict[tuple[int, int], bytes] = {}
    missing: list[Missing] = []
    for item in topic.items():
        if isinstance(item, Missing):
            missing.append(item)
            continue
        place = (item.position.ledger, item.position.entry)
        assert place > max(found, default=(-1, -1))
        found[place] = item.data
    return found, missing


def _ledgers(stock: Stock, source: str) -> LedgerBucket:
    return LedgerBucket(stock.bucket, records=stock.records if source == "record" else {})


def test_every_way_to_know_the_ledgers_says_the_same(stock: Stock) -> None:
    for topic in (ALONE, MIXED):
        rest, record, bucket = (
            stock.asked[topic],
            *(_ledgers(stock, source).find(topic) for source in ("record", "bucket")),
        )
        assert len(rest.ledgers) > 3
        assert rest.ledgers == record.ledgers == bucket.ledgers
        assert (bucket.listed, bucket.findings) == (None, ())
        assert rest.listed is not None
        assert record.listed is not None
        assert [(s.ledger, s.last) for s in rest.listed.spans] == [(s.ledger, s.last) for s in record.listed.spans]
        assert stock.records[topic].startswith(b"\x47\x78")  # compressed


@pytest.mark.parametrize("source", ["record", "bucket"])
def test_every_byte_of_what_the_broker_offloaded(stock: Stock, source: str) -> None:
    with Archive("memory://empty", ledgers=_ledgers(stock, source)) as archive:
        assert archive.topics() == [MIXED, ALONE]
        topic = archive.topic(ALONE)
        entries, missing = _read(topic)
    assert entries == {place: data for place, data in stock.entries[ALONE].items() if place < stock.first_left[ALONE]}
    assert min(map(len, entries.values())) < 200
    assert max(map(len, entries.values())) > MIB
    assert (topic.snapshot.listed is not None) == (source == "record")
    assert len(missing) == (len(topic.snapshot.ledgers) - 1 if source == "bucket" else 0)


@pytest.mark.parametrize("source", ["record", "bucket"])
def test_the_broker_first_and_then_we(stock: Stock, source: str) -> None:
    with Archive(stock.archive, ledgers=_ledgers(stock, source)) as archive:
        topic = archive.topic(MIXED)
        entries, missing = _read(topic)
        messages = list(topic.messages())
    assert topic.snapshot.ledgers[-1].end < topic.snapshot.catalog.segments[0].start
    assert list(entries.items()) == sorted(stock.entries[MIXED].items())
    assert (topic.snapshot.listed is not None) == (source == "record")
    assert len(missing) == (len(topic.snapshot.ledgers) if source == "bucket" else 0)
    assert len(messages) == stock.produced[MIXED].messages
    assert sum(len(message.value or b"") for message in messages) == stock.produced[MIXED].payload_bytes


def test_nothing_is_wrong_with_what_it_wrote(stock: Stock) -> None:
    with closing(open_store(stock.bucket, read_only=True)) as store:
        for topic in (ALONE, MIXED):
            for found in (stock.asked[topic], _ledgers(stock, "bucket").find(topic)):
                assert verify_ledgers(found, lambda _: store) == []


def test_a_ledger_that_is_not_offloaded_is_no_silent_hole(stock: Stock) -> None:
    """A bucket cannot tell that a ledger has gone as a whole; Pulsar's list can."""
    first, lost, *rest = stock.asked[ALONE].ledgers
    view = joined(TopicCatalog.empty(ALONE), replace(stock.asked[ALONE], ledgers=(first, *rest)))
    with closing(Stores(stock.bucket)) as stores:
        entries, missing = _read(ArchivedTopic(stores, TopicRecords(view)))
    assert len(missing) == 1
    assert lost.start.ledger not in {ledger for ledger, _ in entries}
    assert any(item.start < lost.start < item.end for item in missing)
