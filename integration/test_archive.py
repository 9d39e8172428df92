"""A mixed data set of a real Pulsar: each of the four ways of reading its archive gives what the broker and
pulsar-client give.

And a topic that goes on: from the archive into Pulsar, and back where Pulsar has dropped what comes next.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pulsar as client_library
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pulsar.schema import Integer, JsonSchema, Record, String
from pyspark.sql import SparkSession

from dev.embedded.standalone import PulsarStandalone
from integration.application import RunningApplication
from integration.produce import HANGS_MS, open_client, produce_mixed
from integration.pulsar.transactions import Transactions
from integration.pulsar.waiting import until
from integration.spark import patiently, session
from integration.world import World, keep_everything
from offloader import Archive
from offloader.archive.messages.message import Message
from offloader.cli.main import main
from offloader.model import MIB, TopicName
from offloader.pulsar.broker_source import BrokerSource
from offloader.pulsar.settings import PulsarSettings
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

KEPT, DROPPED = "public/archive-kept", "public/archive-dropped"
MIXED = TopicName.parse(f"{KEPT}/mixed")
PARTITIONED = TopicName.parse(f"{KEPT}/partitioned")
PARTITIONS = tuple(TopicName.parse(f"{PARTITIONED}-partition-{number}") for number in range(2))
TOPICS = (MIXED, *PARTITIONS)
LIVE = TopicName.parse(f"{DROPPED}/live")
# Segments and parts are small, so that there are several, and soon sealed.
SMALL = {
    "partSizeInBytes": "1M",
    "blockSizeInBytes": "256K",
    "maxOffloadSegmentSizeInBytes": "4M",
    "maxOffloadSegmentRolloverTimeInSeconds": "2s",
}

Entry = tuple[str, int, int, bytes]


class Order(Record):
    """What messages with a schema hold."""

    customer = String()
    amount = Integer()


class Said(NamedTuple):
    """What a consumer is told of a message. Keys "" and event time 0: none."""

    topic: str
    ledger: int
    entry: int
    batch_index: int
    value: bytes | None
    key: str
    ordering_key: str
    properties: dict[str, str]
    published: int
    event_time: int
    producer: str
    schema_version: bytes


@dataclass(frozen=True)
class Bucket:
    """An archive, and what brokers gave of its topics: entries to our own client, messages to pulsar-client."""

    pulsar: PulsarStandalone
    world: World
    application: RunningApplication
    config: str
    entries: list[Entry]
    messages: list[Said]

    @property
    def root(self) -> str:
        return self.world.storage.root

    def run(self, *arguments: str) -> str:
        """A command's standard output."""
        result = CliRunner().invoke(main, [*arguments, "--config", self.config])
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(scope="module")
def bucket(pulsar: PulsarStandalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    """Its application runs on."""
    folder = tmp_path_factory.mktemp("archive")
    for namespace in (KEPT, DROPPED):
        pulsar.create_namespace(namespace)
    keep_everything(pulsar, KEPT)
    with World(
        pulsar, StoreSettings((folder / "archive").as_uri()), folder / "world", [KEPT, DROPPED], policies=SMALL
    ) as world:
        application = world.new_application().start()
        pulsar.admin("PUT", f"{PARTITIONED.rest_path}/partitions", json=len(PARTITIONS))
        pulsar.admin("PUT", LIVE.rest_path)
        _produce_everything(pulsar.service_url)
        entries = [entry for topic in TOPICS for entry in _broker_entries(pulsar, topic)]
        messages = [said for topic in TOPICS for said in _client_messages(pulsar, topic)]
        ends = {
            topic: max((ledger, entry) for name, ledger, entry, _ in entries if name == str(topic)) for topic in TOPICS
        }
        application.until(
            lambda: all(_archived_to(world, topic) >= end for topic, end in ends.items()), "done with everything"
        )
        yield Bucket(pulsar, world, application, str(application.config), entries, messages)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("ways") as spark:
        yield spark


def _produce_everything(service_url: str) -> None:
    """Batches, codecs, keys, event times, transactions, chunks, nulls, a schema, a delayed message; several ledgers."""
    produce_mixed(service_url, str(MIXED), seed=1, messages=1_000, largest=60_000)
    produce_mixed(service_url, str(PARTITIONED), seed=2, messages=200, largest=1_000, partitioned=True)
    with Transactions(service_url) as transactions:
        first, second = transactions.begin(str(MIXED)), transactions.begin(str(MIXED))
        for number in range(5):
            transactions.send(str(MIXED), b"committed %d" % number, first)
            transactions.send(str(MIXED), b"aborted %d" % number, second)
        transactions.end(first, commit=True)
        transactions.end(second, commit=False)
    client = open_client(service_url)
    _produce_chunked(client)
    _produce_odd(client)
    _produce_key_based(client)
    client.close()


def _produce_chunked(client: client_library.Client) -> None:
    """Two producers, whose chunks may interleave."""
    codecs = (client_library.CompressionType.NONE, client_library.CompressionType.LZ4)
    producers = [
        client.create_producer(str(MIXED), chunking_enabled=True, batching_enabled=False, compression_type=codec)
        for codec in codecs
    ]
    for size, producer in zip((6 * MIB, 11 * MIB), producers, strict=True):
        producer.send_async(Random(size).randbytes(size), lambda _result, _position: None, partition_key="chunked")
    for producer in producers:
        producer.flush()


def _produce_odd(client: client_library.Client) -> None:
    producer = client.create_producer(str(MIXED), batching_enabled=False)
    producer.send(
        b"ordered", ordering_key="o", event_timestamp=5, partition_key="tab\t", properties={"ü": "\n", "": ""}
    )
    producer.send(b"delayed", deliver_after=timedelta(hours=1))
    producer.send(None, partition_key="deleted")
    producer.send(b"")
    producer = client.create_producer(str(MIXED), schema=JsonSchema(Order))
    producer.send(Order(customer="c", amount=7))


def _produce_key_based(client: client_library.Client) -> None:
    """An entry a key; with some null values."""
    by_key = client_library.BatchingType.KeyBased
    producer = client.create_producer(
        str(MIXED), batching_enabled=True, batching_type=by_key, batching_max_publish_delay_ms=60_000
    )
    for number in range(30):
        value = None if number % 4 == 0 else b"%d" % number
        producer.send_async(value, lambda _result, _position: None, partition_key=f"key-{number % 3}")
    producer.flush()


def _broker_entries(pulsar: PulsarStandalone, topic: TopicName) -> Iterator[Entry]:
    last = _end(pulsar, topic)
    settings = PulsarSettings(service_url=pulsar.service_url, admin_url=pulsar.admin_url)
    with closing(BrokerSource(settings)) as source, closing(source.open(topic, 0, 0, max_bytes=16 * MIB)) as reader:
        place = (-1, -1)
        while place < last:
            for entry in reader.read(30.0):
                place = (entry.ledger, entry.entry)
                yield str(topic), *place, entry.data


def _end(pulsar: PulsarStandalone, topic: TopicName) -> tuple[int, int]:
    """The last entry. No marker: what is produced last is in no transaction."""
    ledger, _, entry = (
        pulsar.admin("GET", f"{topic.rest_path}/internalStats").json()["lastConfirmedEntry"].partition(":")
    )
    return int(ledger), int(entry)


def _client_messages(pulsar: PulsarStandalone, topic: TopicName) -> list[Said]:
    client = open_client(pulsar.service_url)
    reader = client.create_reader(str(topic), client_library.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(_of_client(str(topic), reader.read_next(HANGS_MS)))
    client.close()
    return found


def _of_client(topic: str, message: client_library.Message) -> Said:
    place = message.message_id()
    return Said(
        topic,
        place.ledger_id(),
        place.entry_id(),
        place.batch_index(),
        None if message.has_null_value() else message.data(),
        message.partition_key(),
        message.ordering_key(),
        message.properties(),
        message.publish_timestamp(),
        message.event_timestamp(),
        message.producer_name(),
        message.schema_version().encode(),
    )


def _of_archive(topic: str, message: Message) -> Said:
    return Said(
        topic,
        message.position.ledger,
        message.position.entry,
        message.batch_index,
        message.value,
        (message.key or b"").decode(),
        (message.ordering_key or b"").decode(),
        message.properties,
        message.publish_time or 0,
        message.event_time or 0,
        message.producer_name or "",
        message.schema_version or b"",
    )


def _of_row(row: Any) -> Said:
    """A row of Spark or of Parquet."""
    event_time = row["__eventTime"]
    return Said(
        row["__topic"],
        row["__ledgerId"],
        row["__entryId"],
        -1 if row["__batchIndex"] is None else row["__batchIndex"],
        None if row["value"] is None else bytes(row["value"]),
        bytes(row["__key"] or b"").decode(),
        bytes(row["__orderingKey"] or b"").decode(),
        dict(row["__messageProperties"]),
        round(row["__publishTime"].timestamp() * 1000),
        0 if event_time is None else round(event_time.timestamp() * 1000),
        row["__producerName"],
        bytes(row["__schemaVersion"] or b""),
    )


def _archived_to(world: World, topic: TopicName) -> tuple[int, int]:
    end = world.catalog(topic).end
    return (-1, -1) if end is None else (end.ledger, end.entry)


def _place(said: Said) -> tuple[str, int, int, int]:
    return said.topic, said.ledger, said.entry, said.batch_index


def _same(found: Iterable[Any], expected: list[Any]) -> None:
    """With a difference that can be read."""
    found = list(found)
    assert len(found) == len(expected)
    assert not [(str(f)[:200], str(e)[:200]) for f, e in zip(found, expected, strict=True) if f != e]


def test_the_data_set_is_mixed(bucket: Bucket) -> None:
    """What the other tests compare holds what they are about."""
    values = [said.value for said in bucket.messages]
    assert len(bucket.messages) > len(bucket.entries)
    assert len(bucket.world.catalog(MIXED).segments) > 3
    assert len({ledger for _, ledger, _, _ in bucket.entries}) > len(TOPICS)
    assert {None, b"", b"delayed", b"committed 4"} <= set(values)
    assert b"aborted 0" not in values
    assert sum(value is not None and len(value) > 5 * MIB for value in values) == 2


def test_python(bucket: Bucket) -> None:
    with Archive(bucket.root) as archive:
        assert set(TOPICS) <= set(archive.topics())
        read = {topic: archive.topic(topic) for topic in TOPICS}
        entries = [
            (str(t), e.position.ledger, e.position.entry, e.data)
            for t, source in read.items()
            for e in source.entries()
        ]
        _same(entries, bucket.entries)
        _same((_of_archive(str(t), m) for t, source in read.items() for m in source.messages()), bucket.messages)


def test_spark(bucket: Bucket, spark: SparkSession) -> None:
    options = {"root": bucket.root, "topics": f"{MIXED},{PARTITIONED}", "maxPartitionBytes": "8M"}
    reader = spark.read.format("pulsar-archive").options(**options)
    messages = patiently(lambda: reader.load().toArrow()).to_pylist()
    entries = patiently(lambda: reader.option("format", "entries").load().toArrow()).to_pylist()
    _same(sorted((r["topic"], r["ledgerId"], r["entryId"], r["data"]) for r in entries), sorted(bucket.entries))
    _same(sorted(map(_of_row, messages), key=_place), sorted(bucket.messages, key=_place))


def test_cat(bucket: Bucket) -> None:
    lines = [(str(t), *_json(line)) for t in TOPICS for line in _cat(bucket, t, "--entries") if "data" in line]
    _same(lines, bucket.entries)
    found = [_values(str(t), line) for t in TOPICS for line in _cat(bucket, t) if "payload" in line]
    _same(found, [(said[:5], said.key, said.properties) for said in bucket.messages])


def _cat(bucket: Bucket, topic: TopicName, *options: str) -> Iterator[dict[str, Any]]:
    return map(json.loads, bucket.run("topics", "cat", str(topic), "--format", "json", *options).splitlines())


def _json(line: dict[str, Any]) -> tuple[int, int, bytes]:
    ledger, _, entry = line["position"].partition(":")
    return int(ledger), int(entry), base64.b64decode(line["data"])


def _values(topic: str, line: dict[str, Any]) -> tuple[Any, ...]:
    ledger, _, entry = line["position"].partition(":")
    index = -1 if line["batchIndex"] is None else line["batchIndex"]
    value = None if line["payload"] is None else base64.b64decode(line["payload"])
    return (topic, int(ledger), int(entry), index, value), line["key"] or "", line["properties"]


def test_export(bucket: Bucket, tmp_path: Path) -> None:
    for name, options in {"messages": (), "entries": ("--entries",)}.items():
        for topic in (MIXED, PARTITIONED):
            bucket.run("topics", "export", str(topic), "--to", str(tmp_path / name / f"{topic.name}.parquet"), *options)
    entries, messages = (
        [row for topic in TOPICS for row in pq.read_table(tmp_path / name / f"{topic.name}.parquet").to_pylist()]
        for name in ("entries", "messages")
    )
    _same([(r["topic"], r["ledgerId"], r["entryId"], r["data"]) for r in entries], bucket.entries)
    _same(map(_of_row, messages), bucket.messages)


def test_a_topic_that_goes_on(bucket: Bucket) -> None:
    """Archive, Pulsar, and the archive again: while nobody reads, Pulsar drops what comes next."""
    settings = PulsarSettings(service_url=bucket.pulsar.service_url, admin_url=bucket.pulsar.admin_url)
    sent = _send(bucket, 0, 50)
    until(lambda: _archived_to(bucket.world, LIVE) >= sent)
    with Archive(bucket.root, pulsar=settings) as archive:
        following: Any = archive.topic(LIVE).messages(follow=True)
        assert [next(following).properties["n"] for _ in range(50)] == [str(n) for n in range(50)]
        _send(bucket, 50, 100)
        assert [next(following).properties["n"] for _ in range(50)] == [str(n) for n in range(50, 100)]
        # more than the reader has room for, so that it has not been delivered when Pulsar drops it
        sent = _send(bucket, 100, 800, size=64_000)
        until(lambda: _archived_to(bucket.world, LIVE) >= sent)
        until(lambda: _first_ledger(bucket) >= sent[0])
        _send(bucket, 800, 850)
        assert [next(following).properties["n"] for _ in range(750)] == [str(n) for n in range(100, 850)]
        following.close()


def _send(bucket: Bucket, first: int, last: int, size: int = 10) -> tuple[int, int]:
    """Numbered messages, an entry each; the last one's position."""
    client = open_client(bucket.pulsar.service_url)
    producer = client.create_producer(str(LIVE), batching_enabled=False, block_if_queue_full=True)
    for number in range(first, last - 1):
        producer.send_async(b"x" * size, lambda _result, _position: None, properties={"n": str(number)})
    place = producer.send(b"x" * size, properties={"n": str(last - 1)})
    client.close()
    return place.ledger_id(), place.entry_id()


def _first_ledger(bucket: Bucket) -> int:
    """The first that Pulsar still has, once it was asked to drop what nobody needs."""
    bucket.pulsar.admin("POST", f"{LIVE.rest_path}/trim")
    return int(bucket.pulsar.admin("GET", f"{LIVE.rest_path}/internalStats").json()["ledgers"][0]["ledgerId"])
