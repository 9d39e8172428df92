"""A Shared subscription of the stock client that acknowledges messages of batches, and what it is given."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pulsar import ConsumerType, InitialPosition, Timeout

from integration.patient import PatientPulsar
from integration.produce import HANGS_MS, open_client
from offloader.model import TopicName


def subscribed(client: Any, topic: TopicName, subscription: str) -> Any:
    """Its consumer; the subscription begins at the topic's begin."""
    return client.subscribe(
        str(topic),
        subscription,
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )


def delivered(pulsar: PatientPulsar, topic: TopicName, subscription: str, count: int) -> set[int]:
    """That many messages of the subscription, and what comes within a while behind them. Acknowledges nothing."""
    with closing(open_client(pulsar.service_url)) as client:
        consumer = subscribed(client, topic, subscription)
        found = {int(consumer.receive(HANGS_MS).data()) for _ in range(count)}
        try:
            while True:
                found.add(int(consumer.receive(1000).data()))
        except Timeout:
            return found
