"""The topics of an archive, ready to be asked. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from offloader.model import TopicName


class TopicDirectory(NamedTuple):
    """`names`: full ones, sorted, by namespace. `partitions`: of partitioned topics, by their full names, sorted."""

    topics: frozenset[TopicName]
    names: dict[str, list[str]]
    partitions: dict[str, list[TopicName]]


def directory_of(found: Iterable[TopicName]) -> TopicDirectory:
    """Of a list of them."""
    names, partitions = defaultdict(list), defaultdict(list)
    topics = sorted(found)
    for topic in topics:
        names[topic.namespace].append(str(topic))
        if topic.partition >= 0:
            partitions[topic.partitioned_name].append(topic)
    return TopicDirectory(frozenset(topics), {name: sorted(each) for name, each in names.items()}, dict(partitions))
