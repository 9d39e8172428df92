"""Topics that own every kind of ledger: a compacted view, a delayed index, pending acknowledgements, schemas."""

from __future__ import annotations

import contextlib
import queue
from datetime import timedelta

import pulsar

from integration.lifecycle.acking import Coordinator, Participant
from integration.lifecycle.ground import KEPT, Ground
from integration.pulsar.waiting import until
from offloader.model import TopicName
from offloader.state.names import managed_ledger_name

SUBSCRIPTION = "sub"
LATER, DELAYED = timedelta(hours=5), 25
_TRIES = 3


def compacted(ground: Ground, namespace: str = KEPT) -> TopicName:
    """A topic with a compacted view of some keys, unlike what it is made of."""
    topic = ground.new_topic("compacted", namespace)
    ground.produce(topic, 25, keys=4)
    compact(ground, topic)
    return topic


def compact(ground: Ground, topic: TopicName) -> None:
    """Once more, to its end."""
    path = f"{topic.rest_path}/compaction"
    before = views(ground, topic)
    until(lambda: ground.cluster.broker().answer("PUT", path).is_success)
    until(lambda: views(ground, topic) - before)
    until(lambda: ground.cluster.admin("GET", path).json()["status"] == "SUCCESS")


def views(ground: Ground, topic: TopicName) -> set[int]:
    """The compacted ledgers that name a topic."""
    return ground.naming(compactedTopic=str(topic))


def delayed(ground: Ground, namespace: str = KEPT) -> TopicName:
    """A topic with messages for much later, and ledgers of a delayed index."""
    topic = ground.new_topic("delayed", namespace)
    with ground.client() as client:
        consumer = client.subscribe(str(topic), SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
        ground.produce(topic, DELAYED, deliver_after=LATER)
        until(lambda: indexes(ground, topic))
        consumer.close()
    return topic


def indexes(ground: Ground, topic: TopicName) -> set[int]:
    """The delayed indexes' ledgers that name a topic."""
    return ground.naming(delayedIndexTopic=str(topic))


def transactional(ground: Ground, namespace: str = KEPT) -> TopicName:
    """A topic with a committed, an aborted transaction, and one that acknowledged.

    Behind the end of another broker, one may wait for ever for a snapshot of a transaction buffer, and answers no
    message of that topic: then another topic."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(queue.Empty):
            return _transactional(ground, namespace)
    return _transactional(ground, namespace)


def _transactional(ground: Ground, namespace: str) -> TopicName:
    topic = ground.new_topic("transactional", namespace)
    ground.subscribe(topic, SUBSCRIPTION)
    name = str(topic)
    with until(lambda: _coordinator(ground)) as coordinator, Participant(ground.owner(topic).service_url) as here:
        for number in range(3):
            here.send(name, b"plain %d" % number)
        for commit in (True, False):
            transaction = coordinator.begin(name)
            here.send(name, b"in a transaction: %d" % commit, transaction)
            coordinator.end(transaction, commit=commit)
        position = here.receive(name, SUBSCRIPTION)
        transaction = coordinator.begin_acknowledging(name, SUBSCRIPTION)
        here.acknowledge(position, transaction)
        coordinator.end(transaction, commit=True)
    until(lambda: ground.naming(managed_ledger=pending_acks(topic)))
    return topic


def _coordinator(ground: Ground) -> Coordinator | None:
    """On whichever broker has it."""
    ground.cluster.broker()
    for broker in ground.cluster.brokers:
        with contextlib.suppress(AssertionError, OSError):
            return Coordinator(broker.service_url)
    return None


def pending_acks(topic: TopicName) -> str:
    """The managed ledger of its subscription's pending acknowledgements."""
    name = f"{topic.name}-{SUBSCRIPTION}__transaction_pending_ack"
    return managed_ledger_name(TopicName(topic.tenant, topic.namespace_part, name))


def with_schemas(ground: Ground) -> TopicName:
    """A topic with two versions of its schema."""
    topic = ground.new_topic("schemas")
    for fields in (["a"], ["a", "b"]):
        put_schema(ground, topic, fields)
    ground.produce(topic, 3)
    return topic


def put_schema(ground: Ground, topic: TopicName, fields: list[str]) -> None:
    """One more version."""
    named = ", ".join(f'{{"name": "{name}", "type": ["null", "string"], "default": null}}' for name in fields)
    schema = f'{{"type": "record", "name": "R", "fields": [{named}]}}'
    path = f"schemas/{topic.namespace}/{topic.name}/schema"
    ground.cluster.admin("POST", path, {"type": "JSON", "schema": schema, "properties": {}})
