"""pulsar-client's ways to get a whole topic, as fast as they are known to go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import pulsar

QUEUE = 5000
READ_MS = 60_000


class Messages(NamedTuple):
    """`more` waits for the next message, or for several; `end` leaves nothing in the broker."""

    more: Callable[[], list[pulsar.Message]]
    end: Callable[[], object]


def connected(service: str) -> pulsar.Client:
    return pulsar.Client(service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def by_reader(client: pulsar.Client, topic: str) -> Messages:
    """Reader.read_next."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=QUEUE)
    return Messages(lambda: [reader.read_next(READ_MS)], reader.close)


def by_batch_receive(client: pulsar.Client, topic: str) -> Messages:
    """Consumer.batch_receive."""
    consumer = client.subscribe(
        topic,
        f"benchmark-{time.time_ns()}",
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=QUEUE,
        batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(1000, -1, 100),
    )
    return Messages(lambda: list(consumer.batch_receive()), consumer.unsubscribe)


Client = Callable[[pulsar.Client, str], Messages]
WAYS: dict[str, Client] = {"Reader": by_reader, "batch_receive": by_batch_receive}
