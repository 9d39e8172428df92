"""A consumer whose schema cannot read the messages is refused, as by brokers: Pulsar's own Python client hears why."""

from __future__ import annotations

from collections.abc import Iterator

import pulsar
import pytest
from pulsar.schema import Integer, JsonSchema, Record, Schema, String, StringSchema

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader.cursors.facts import TopicFacts
from offloader.ports.admin import TopicSchema
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive, message
from tests.fakes.topic_facts import write_facts
from tests.format.support import Stored, checksummed
from tests.gateway.gateway import durable_gateway

NAME = str(TOPIC)
WRITTEN = b'{"type":"record","name":"Order","fields":[{"name":"id","type":["null","int"]}]}'


class Order(Record):
    id = Integer()


class Renamed(Record):
    number = Integer(required=True)


class Other(Record):
    id = String()


def keyed(text: str) -> bytes:
    """All have one key: a compacted topic would have the last of them."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1_700_000_000_000, partition_key="k")
    return checksummed(metadata, text.encode())


def archived(*schemas: TopicSchema) -> MemoryStore:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, 0, message("m0"))])
    facts = TopicFacts(TOPIC, 7, None, terminated=False, schemas=schemas)
    write_facts(made.store, facts)
    return made.store


@pytest.fixture(scope="module")
def client() -> Iterator[pulsar.Client]:
    with durable_gateway(archived(TopicSchema(0, "STRING"), TopicSchema(1, "JSON", WRITTEN))) as url:
        found = pulsar.Client(url, operation_timeout_seconds=20, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        yield found
        found.close()


@pytest.mark.parametrize("schema", [StringSchema(), JsonSchema(Renamed), JsonSchema(Other)])
def test_a_schema_that_cannot_read_the_messages_is_refused(client: pulsar.Client, schema: Schema) -> None:
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(NAME, "s", schema=schema)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_reader(NAME, pulsar.MessageId.earliest, schema=schema)


def test_the_newest_schema_and_bytes_are_accepted(client: pulsar.Client) -> None:
    client.subscribe(NAME, "a", schema=JsonSchema(Order)).close()
    assert client.create_reader(NAME, pulsar.MessageId.earliest).read_next(60_000).data() == b"m0"


def test_where_no_schema_is_archived_any_is_accepted() -> None:
    with durable_gateway(archived()) as url:
        client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        reader = client.create_reader(NAME, pulsar.MessageId.earliest, schema=StringSchema())
        assert reader.read_next(60_000).value() == "m0"
        client.close()


def test_a_compacted_reader_gets_every_message() -> None:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, keyed(f"m{entry}")) for entry in range(3)])
    with durable_gateway(made.store) as url:
        client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        reader = client.create_reader(NAME, pulsar.MessageId.earliest, is_read_compacted=True)
        assert [reader.read_next(60_000).data() for _ in range(3)] == [b"m0", b"m1", b"m2"]
        client.close()
