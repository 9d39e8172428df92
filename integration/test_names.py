"""Names that look like a partition's, or like one of Pulsar's own topics, and are neither, on a real Pulsar."""

from __future__ import annotations

import json
from pathlib import Path

import pulsar as client_library
import pytest
from pulsar.schema import JsonSchema, Record, String
from pyspark.sql import SparkSession

from dev.embedded.standalone import PulsarStandalone
from integration.gateways import GatewayProgram
from integration.produce import open_client
from integration.spark import patiently, session
from integration.world import World, keep_everything
from offloader import Archive
from offloader.model import TopicName
from offloader.storage.settings import StoreSettings

pytestmark = [pytest.mark.pulsar, pytest.mark.spark]

NAMES = (
    "orders-partition-007",  # a leading zero
    "orders-partition-20260105093000",  # more than an int of Java's
    "__consumer_offsets",
)
EACH = 5


class Order(Record):
    """What messages hold."""

    customer = String()


def test_each_is_a_topic_of_its_own_with_its_schema_for_every_reader(
    pulsar: PulsarStandalone, namespace: str, tmp_path: Path
) -> None:
    keep_everything(pulsar, namespace)
    topics = [TopicName.parse(f"{namespace}/{name}") for name in NAMES]
    _produce(pulsar.service_url, topics)
    storage = StoreSettings((tmp_path / "archive").as_uri())
    with World(pulsar, storage, tmp_path / "world", [namespace], light=True) as world:
        world.catch_up()
        world.check()
    with Archive(storage.root) as archive:
        assert archive.topics() == sorted(topics)
        for topic in topics:
            found = [json.loads(message.value or b"") for message in archive.topic(str(topic)).messages()]
            assert found == [{"customer": f"{topic.name} {number}"} for number in range(EACH)]
    _read_by_spark(storage.root, topics)
    _read_through_a_gateway(storage.root, tmp_path / "gateway", topics)


def _produce(url: str, topics: list[TopicName]) -> None:
    """By a client: the admin REST refuses to create topics of the first two names."""
    client = open_client(url)
    for topic in topics:
        producer = client.create_producer(str(topic), schema=JsonSchema(Order), batching_enabled=False)
        for number in range(EACH):
            producer.send(Order(customer=f"{topic.name} {number}"))
    client.close()


def _read_by_spark(root: str, topics: list[TopicName]) -> None:
    with session("names") as spark:
        for topic in topics:
            assert patiently(lambda name=str(topic): _counted(spark, root, name)) == (EACH, {-1})  # type: ignore[misc]


def _counted(spark: SparkSession, root: str, topic: str) -> tuple[int, set[int]]:
    rows = spark.read.format("pulsar-archive").load(root, topics=topic).select("__partition").collect()
    return len(rows), {row[0] for row in rows}


def _read_through_a_gateway(root: str, folder: Path, topics: list[TopicName]) -> None:
    gateway = GatewayProgram(folder, {"root": root}, {})
    gateway.start()
    try:
        client = client_library.Client(gateway.url, operation_timeout_seconds=30)
        for topic in topics:
            reader = client.create_reader(str(topic), client_library.MessageId.earliest, schema=JsonSchema(Order))
            told = [reader.read_next(30_000) for _ in range(EACH)]
            assert [one.value().customer for one in told] == [f"{topic.name} {number}" for number in range(EACH)]
            assert {one.message_id().partition() for one in told} == {-1}
        client.close()
        gateway.stop()
    finally:
        gateway.end()
