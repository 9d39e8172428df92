"""The system topics as the admin REST has them: made where they are missing, who consumes them, their schemas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from offloader.errors import AbsentError, AuthorizationFailedError, NamespaceNotFoundError, ProtocolError
from offloader.lifecycle.deletion.system_topic.interfaces import SystemTopicName
from offloader.lifecycle.deletion.system_topic.letters import WORKER
from offloader.lifecycle.deletion.system_topic.marks import OwnMark
from offloader.lifecycle.deletion.system_topic.messages import WrittenSchema
from offloader.metadata.avro import LARGEST_SCHEMA
from offloader.model import TopicName
from offloader.printable import printable
from offloader.pulsar.rest import RestClient

KEPT = "offloader-dead-letters"
"""A subscription that keeps the dead letters: without one, brokers delete them at once."""
EARLIEST = {"ledgerId": -1, "entryId": -1}
MOST_SCHEMAS = 64
MOST_PARTITIONS = 1_000
_CONFLICT = 409


class SystemTopics:
    """`partitions`: of the topic of deletions, where we are the first who needs it."""

    def __init__(self, rest: RestClient, partitions: int) -> None:
        self._rest = rest
        self._partitions = partitions
        self._schema = lru_cache(maxsize=MOST_SCHEMAS)(self._ask_for_schema)

    def make(self) -> None:
        """Make those that are missing. What is there stays as it is, with as many partitions as it has, or none.

        Raises AuthorizationFailedError, NamespaceNotFoundError, BrokerUnavailableError, ..."""
        for topic, partitions in zip(SystemTopicName, (self._partitions, 1, 1), strict=True):
            self._make(topic, partitions)
        self._put(f"{_path(SystemTopicName.DEAD)}/subscription/{KEPT}", EARLIEST)

    def strangers(self, mark: OwnMark) -> list[str]:
        """Who takes what is sent to the topic of deletions for commands, or will: each one's story, for people."""
        found: list[str] = []
        for path in self._parts(SystemTopicName.DELETION):
            found += _strangers(self._rest.get(f"{path}/stats"), mark)
        return sorted(set(found))

    def forget_schemas(self) -> None:
        """A topic that was made anew counts its schemas from anew."""
        self._schema.cache_clear()

    def schema(self, topic: str, version: int) -> WrittenSchema | None:
        """What a version of a topic's schema says; None: it is not there (any more). Raises BrokerUnavailableError."""
        return self._schema(TopicName.parse(topic).partitioned_name, version)

    def _ask_for_schema(self, topic: str, version: int) -> WrittenSchema | None:
        name = TopicName.parse(topic)
        path = f"schemas/{name.namespace}/{name.encoded}/schema/{version}"
        try:
            found = self._rest.get(path)
        except AbsentError:
            return None
        kind, definition = (found.get(key) if isinstance(found, dict) else None for key in ("type", "data"))
        if not isinstance(kind, str) or not isinstance(definition, str):
            raise ProtocolError(f"{path}: the broker answered what is no schema")
        return WrittenSchema(kind, definition[: LARGEST_SCHEMA + 1])  # one that is larger is refused, and not kept

    def shape(self) -> tuple[int | None, ...]:
        """How many partitions each has now; another one than before: somebody deleted it, or made it anew."""
        return tuple(self._count(topic) for topic in SystemTopicName)

    def _make(self, topic: SystemTopicName, partitions: int) -> None:
        if self._count(topic) is not None:
            return
        self._put(f"{_path(topic)}/partitions", partitions)
        if self._count(topic) is None:
            # It has none. Or somebody deleted it under its clients, of which each made its partition anew as it came
            # back: brokers then take no partitioned topic of this name any more.
            self._put(_path(topic), None)

    def _count(self, topic: SystemTopicName) -> int | None:
        """0: it has no partitions. None: nobody knows whether there is one."""
        try:
            found = self._rest.get(f"{_path(topic)}/partitions")
        except AbsentError:
            return None
        count = found.get("partitions") if isinstance(found, dict) else None
        if not isinstance(count, int) or not 0 <= count <= MOST_PARTITIONS:
            raise ProtocolError(f"{topic.value}: the broker answered no number of partitions")
        return count or None  # older brokers say 0 of what is not there as well

    def _parts(self, topic: SystemTopicName) -> list[str]:
        count = self._count(topic)
        path = _path(topic)
        return [path] if count is None else [f"{path}-partition-{number}" for number in range(count)]

    def _put(self, path: str, body: Any) -> None:
        """What somebody else made at the same time is there, too."""
        response = self._rest.request("PUT", path, body=body)
        if response.is_success or response.status_code == _CONFLICT:
            return
        error = self._rest.error(path, response)
        if isinstance(error, AuthorizationFailedError):
            raise AuthorizationFailedError(
                f"{error}: make the role an administrator of tenant pulsar, or make PIP-186's three topics, partitioned"
            )
        if isinstance(error, AbsentError):
            raise NamespaceNotFoundError(f"{error}: brokers make the namespace pulsar/system as they start")
        raise error


def _path(topic: SystemTopicName) -> str:
    return TopicName.parse(topic.value).rest_path


def _strangers(stats: Any, mark: OwnMark) -> Iterator[str]:
    """Raises ProtocolError for what is no topic's statistics: nothing is concluded from it."""
    subscriptions = stats.get("subscriptions") if isinstance(stats, dict) else None
    if not isinstance(subscriptions, dict):
        raise ProtocolError("the broker answered what are no statistics of a topic")
    if WORKER not in subscriptions:
        return
    worker = subscriptions[WORKER]
    consumers = worker.get("consumers") if isinstance(worker, dict) else None
    if not isinstance(consumers, list) or not all(isinstance(one, dict) for one in consumers):
        raise ProtocolError(f"the broker answered what are no consumers of {WORKER}")
    if not consumers:
        yield f"whoever left the subscription {WORKER} behind"
    for consumer in consumers:
        name, metadata = consumer.get("consumerName"), consumer.get("metadata")
        ours = isinstance(name, str) and isinstance(metadata, dict) and mark.is_on_consumer(name, metadata)
        if not ours:
            yield printable(f"consumer {name} at {consumer.get('address')}")[:200]
