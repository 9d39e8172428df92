"""What clients and brokers say of topics of every kind, to be compared with what they say later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pulsar

from integration.lifecycle import topics
from integration.lifecycle.ground import Ground
from integration.pulsar.waiting import until
from offloader.model import TopicName


def controls(ground: Ground) -> dict[str, TopicName]:
    """A topic of every kind, with data in several ledgers."""
    plain = ground.new_topic("plain")
    ground.produce(plain, 25)
    ground.subscribe(plain, topics.SUBSCRIPTION)
    ground.acknowledge(plain, topics.SUBSCRIPTION, 7)
    return {
        "plain": plain,
        "compacted": topics.compacted(ground),
        "delayed": topics.delayed(ground),
        "transactional": topics.transactional(ground),
        "schemas": topics.with_schemas(ground),
    }


def everything(ground: Ground, names: Mapping[str, TopicName]) -> dict[str, Any]:
    """What each topic says once it was loaded anew."""
    found: dict[str, Any] = {}
    for topic in names.values():
        ground.unload(topic)
    for kind, topic in names.items():
        found[kind] = ground.read(topic)
        found[f"{kind}: backlog"] = _backlogs(ground, topic)
    found["compacted view"] = ground.read(names["compacted"], is_read_compacted=True)
    found["delayed messages"] = _delayed(ground, names["delayed"])
    found["schemas: versions"] = _schemas(ground, names["schemas"])
    return found


def account(ground: Ground, namespaces: Sequence[str]) -> set[int]:
    """Every ledger that brokers say belongs to a topic: by their own statistics, without our reader of nodes. But for
    those that are offloaded. It loads every topic."""
    return {ledger for namespace in namespaces for ledger in _of_namespace(ground, namespace)}


def copies(ground: Ground, ledger: int) -> dict[str, list[bytes]]:
    """What each bookie gives of the ledger's first entries."""
    official = ground.cluster.books.official
    found = {}
    for bookie in ground.cluster.books.bookies:
        answers = official.ask(bookie.id, ledger, 0, 9)
        entries = [one for one in answers if isinstance(one, bytes)]
        if entries:
            found[bookie.id] = entries
    return found


def _of_namespace(ground: Ground, namespace: str) -> Iterator[int]:
    names = ground.cluster.admin("GET", f"persistent/{namespace}?includeSystemTopic=true").json()
    for name in names:
        topic = TopicName.parse(name)
        said = ground.cluster.broker().answer("GET", f"{topic.rest_path}/internalStats")
        if not said.is_success:  # what is no topic of clients: pending acknowledgements
            continue
        stats = said.json()
        listed = (*stats["ledgers"], *stats["schemaLedgers"])
        yield from (one["ledgerId"] for one in listed if not one["offloaded"])
        yield from (one["cursorLedger"] for one in stats["cursors"].values() if one["cursorLedger"] >= 0)
        if stats["compactedLedger"]["ledgerId"] >= 0:
            yield stats["compactedLedger"]["ledgerId"]


def _backlogs(ground: Ground, topic: TopicName) -> dict[str, int]:
    stats = ground.cluster.admin("GET", f"{topic.rest_path}/stats").json()
    return {name: one["msgBacklog"] for name, one in stats["subscriptions"].items() if not name.startswith("reader-")}


def _delayed(ground: Ground, topic: TopicName) -> int:
    """How many messages the index of the subscription knows of, once somebody asks for them."""
    with ground.client() as client:
        consumer = client.subscribe(str(topic), topics.SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
        count = until(_counted(ground, topic))
        consumer.close()
    return count


def _counted(ground: Ground, topic: TopicName) -> Callable[[], int]:
    def counted() -> int:
        stats = ground.cluster.admin("GET", f"{topic.rest_path}/stats").json()
        count: int = stats["subscriptions"][topics.SUBSCRIPTION]["msgDelayed"]
        return count if count >= topics.DELAYED else 0

    return counted


def _schemas(ground: Ground, topic: TopicName) -> list[str]:
    path = f"schemas/{topic.namespace}/{topic.name}/schemas"
    return [one["data"] for one in ground.cluster.admin("GET", path).json()["getSchemaResponses"]]
