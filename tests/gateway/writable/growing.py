"""The topics of a writable source, as connections see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.ports import ConsumerPort, SubscribedConsumer, Subscribing
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from tests.gateway.writable.source import WritableSource


class GrowingTopics:
    """`ServedTopics`: a topic comes to be once somebody asks for it, as brokers do it by default. Everything else is
    the gateway's."""

    def __init__(self, source: WritableSource, topics: ArchiveTopics) -> None:
        self._source = source
        self._topics = topics

    async def partitions(self, topic: TopicName, role: str) -> int:
        return 0 if topic.partition >= 0 else self._source.partitions(topic) or 0

    async def address(self, topic: TopicName, role: str) -> Address:
        return await self._topics.address(topic, role)

    async def topics(self, namespace: str, role: str) -> Sequence[str]:
        """As of now: the gateway's own list is some seconds old, as topics come slowly to an archive."""
        return sorted(str(name) for name in self._source.names() if name.namespace == namespace)

    def changes(self, namespace: str, role: str) -> AsyncIterator[Sequence[str]]:
        return self._topics.changes(namespace, role)

    async def schema(self, topic: TopicName, version: int | None, role: str) -> TopicSchema:
        return await self._topics.schema(topic, version, role)

    async def subscribe(self, asked: Subscribing, consumer: ConsumerPort, role: str) -> SubscribedConsumer:
        self._source.create(asked.topic)
        return await self._topics.subscribe(asked, consumer, role)
