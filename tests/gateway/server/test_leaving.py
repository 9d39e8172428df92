"""Thousands of consumers that leave at the same moment hold up nobody else."""

from __future__ import annotations

import time

import pytest

from offloader._proto.pulsar_messages_pb2 import MessageMetadata
from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connect, Flow, Subscribe
from offloader.pulsar.commands import command
from offloader.storage.memory import MemoryStore
from tests.archive.support import TOPIC, Archive
from tests.format.support import Stored, checksummed
from tests.gateway.gateway import durable_gateway
from tests.gateway.raw import RawClient

CONSUMERS, KEYS = 1_500, 6_000
CONNECT = command(connect=Connect(client_version="x", protocol_version=21))


@pytest.mark.large
def test_others_are_answered_while_key_shared_consumers_leave_together() -> None:
    made = Archive(MemoryStore())
    made.claim(10, 0)
    made.add([Stored(10, entry, keyed(entry)) for entry in range(KEYS)])
    with durable_gateway(made.store) as url, RawClient(url) as good:
        good.send(CONNECT)
        with RawClient(url) as many:
            many.send(CONNECT, *(subscribe(number) for number in range(CONSUMERS)))
            for _ in range(CONSUMERS):
                assert many.until("success")
            many.send(*(command(flow=Flow(consumer_id=number, permits=200)) for number in range(CONSUMERS)))
            for _ in range(KEYS):
                many.until("message")
        waited = []
        for _ in range(200):
            begin = time.monotonic()
            good.send(command(ping={}))
            good.until("pong")
            waited.append(time.monotonic() - begin)
            time.sleep(0.005)
        assert max(waited) < 1, "seconds; all that leave together take longer"


def keyed(number: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1, partition_key=f"k{number}")
    return checksummed(metadata, b"m")


def subscribe(number: int) -> BaseCommand:
    return command(
        subscribe=Subscribe(
            topic=str(TOPIC), subscription="s", type=Subscribe.KEY_SHARED, durable=False, consumer_id=number,
            request_id=number, initial_position=1, consumer_name="c",
        )
    )  # fmt: skip
