"""The gateway that takes messages, which runs suites of others: Pulsar's own Python client produces to it and reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import httpx
import pulsar
import pytest

from tests.gateway.writable.gateway import Addresses, writable_gateway

EARLIEST = pulsar.InitialPosition.Earliest
PATIENCE = 20_000  # ms, for hanging


@pytest.fixture
def addresses() -> Iterator[Addresses]:
    with writable_gateway() as found:
        yield found


@pytest.fixture
def client(addresses: Addresses) -> Iterator[pulsar.Client]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(addresses.service, operation_timeout_seconds=20, logger=logger)) as found:
        yield found


def test_a_consumer_is_given_what_is_produced_with_the_ids_that_the_producer_was_told(client: pulsar.Client) -> None:
    consumer = client.subscribe("t", "s")
    producer = client.create_producer("t", batching_enabled=False)
    sent = [(producer.send(b"m%d" % number), b"m%d" % number) for number in range(50)]
    found = [consumer.receive(PATIENCE) for _ in range(50)]
    assert [(one.message_id(), one.data()) for one in found] == sent


def test_a_reader_knows_of_each_message_once_its_producer_was_answered(client: pulsar.Client) -> None:
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    producer = client.create_producer("t")
    for number in range(20):
        producer.send(b"m%d" % number)
        assert reader.has_message_available()
        assert reader.read_next(PATIENCE).data() == b"m%d" % number
    assert not reader.has_message_available()


def test_partitions_schemas_and_an_unload_are_as_of_a_broker(addresses: Addresses, client: pulsar.Client) -> None:
    path = f"{addresses.http}/admin/v2/persistent/public/default/t"
    assert httpx.put(f"{path}/partitions", json=3).is_success
    assert client.get_topic_partitions("t") == [f"persistent://public/default/t-partition-{n}" for n in range(3)]
    schema = pulsar.schema.StringSchema()
    consumer = client.subscribe("t", "s", initial_position=EARLIEST, schema=schema)
    producer = client.create_producer("t", schema=schema)
    for number in range(30):
        producer.send(f"m{number}")
        if number == 10:
            assert httpx.put(f"{path}-partition-1/unload").is_success
    found = set[str]()
    while len(found) < 30:
        message = consumer.receive(PATIENCE)
        consumer.acknowledge(message)
        found.add(message.value())
    assert found == {f"m{number}" for number in range(30)}


def test_who_looks_up_by_http_asks_the_gateway_itself(addresses: Addresses, client: pulsar.Client) -> None:
    client.create_producer("t").send(b"m")
    with closing(pulsar.Client(addresses.http, operation_timeout_seconds=20)) as other:
        assert other.create_reader("t", pulsar.MessageId.earliest).read_next(PATIENCE).data() == b"m"
