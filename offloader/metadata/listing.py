"""Which topics have objects under a root: asked of its store."""

from __future__ import annotations

from collections.abc import Iterator

from offloader.ahead import unawaited_pool
from offloader.metadata.layout import KeyKind, encoded, parse_topic_key, topic_folder, topic_of
from offloader.model import TopicName
from offloader.ports.object_store import ObjectStore

LISTINGS = 8  # at a time


def topics(store: ObjectStore) -> Iterator[TopicName]:
    """All topics that have an object under the root, in key order; a listing call for each tenant, and one for each
    namespace or thousand topics of it, `LISTINGS` of them at a time."""
    namespaces = [
        folder for tenant in store.folders() if not tenant.startswith("_") for folder in store.folders(tenant)
    ]
    with unawaited_pool(LISTINGS, "topic-lister") as pool:
        for folders in pool.map(lambda namespace: list(store.folders(namespace)), namespaces):
            yield from (topic for topic, _ in map(topic_of, folders) if topic is not None)


def topics_of(store: ObjectStore, namespace: str) -> list[TopicName]:
    """The topics of a namespace that have an object under the root, in key order; one listing call a thousand."""
    folders = store.folders("".join(f"{encoded(piece)}/" for piece in namespace.split("/")))
    return [topic for topic, _ in map(topic_of, folders) if topic is not None]


def partitions(store: ObjectStore, topic: TopicName) -> list[TopicName]:
    """The partitions of a topic that have an object under the root, by number; one listing call a thousand."""
    folders = store.folders(topic_folder(topic).removesuffix("/") + "-partition-")
    found = (partition for partition, _ in map(topic_of, folders) if partition is not None)
    return sorted((p for p in found if p.partitioned_name == str(topic)), key=lambda partition: partition.partition)


def is_marker(key: str) -> bool:
    """Whether it is an object that web consoles write to show an empty folder."""
    return key.endswith("/")


def holds_objects(store: ObjectStore, topic: TopicName) -> bool:
    """Whether any object lies under the topic besides markers of folders; one listing call."""
    return any(not is_marker(key) for key, _ in store.list(topic_folder(topic)))


def holds_data(store: ObjectStore, topic: TopicName) -> bool:
    """Whether segments' objects lie under the topic, whatever its catalog says; one listing call."""
    keys = (parse_topic_key(key) for key, _ in store.list(topic_folder(topic)))
    return any(key is not None and key.kind in (KeyKind.DATA, KeyKind.INDEX) for key in keys)
