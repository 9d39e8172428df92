"""PIP-186's three topics in memory: Shared subscriptions, redeliveries, delays, letters; and the admin REST of them.

Whoever uses them can be killed at each call, before it took effect or after."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from offloader.errors import BrokerUnavailableError, OutcomeUnknownError
from offloader.lifecycle.deletion.system_topic.interfaces import ArrivedMessage, SystemTopicName
from offloader.pulsar.rest import RestClient
from offloader.pulsar.settings import PulsarSettings

PUT_BACK_MS = 60_000
WORKER = "ledger-deletion-worker"

READ = (SystemTopicName.DELETION, SystemTopicName.RETRY)


class KilledError(BaseException):
    """The process is gone: nobody catches this."""


@dataclass
class Stored:
    """One message in a topic, and where it stands in the subscription."""

    number: int
    data: bytes
    properties: dict[str, str]
    published: int
    due: int
    schema: int | None = None
    taken_by: str = ""
    acknowledged: bool = False
    deliveries: int = 0


@dataclass
class MemoryTopics:
    """`delays` False: a broker that delivers delayed messages at once. `left_over`: partitions without their topic.
    `on_step` is called with a name before and after each effect."""

    now: int = 1_800_000_000_000
    partitions: dict[str, int] = field(default_factory=dict)
    stored: dict[SystemTopicName, list[Stored]] = field(default_factory=lambda: {name: [] for name in SystemTopicName})
    consumers: dict[str, dict[str, str]] = field(default_factory=dict)
    subscribed: bool = False
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    delays: bool = True
    on_step: Callable[[str], None] = lambda _: None
    numbers: Iterator[int] = field(default_factory=count)
    connected: bool = True
    left_over: bool = False
    refused: dict[SystemTopicName, Exception] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    status: int = 0

    def put(
        self, topic: SystemTopicName, data: bytes, properties: Mapping[str, str] = {}, *, delay: int = 0, **more: Any
    ) -> Stored:
        """Somebody sends a message."""
        due = self.now + (delay if self.delays else 0)
        stored = Stored(next(self.numbers), data, dict(properties), self.now, due, **more)
        self.stored[topic].append(stored)
        return stored

    def left(self, topic: SystemTopicName = SystemTopicName.DELETION) -> list[Stored]:
        return [one for one in self.stored[topic] if not one.acknowledged]

    def channel(self) -> MemoryChannel:
        return MemoryChannel(self)

    def gone(self, consumer: str) -> None:
        """A consumer's connection is gone: what it had comes again."""
        self.consumers.pop(consumer, None)
        for one in (one for name in READ for one in self.stored[name] if one.taken_by == consumer):
            one.taken_by = ""

    def rest(self) -> RestClient:
        return RestClient(PulsarSettings(), transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/admin/v2/")
        self.requests.append(f"{request.method} {path}")
        if self.status:
            return httpx.Response(self.status, json={"reason": "as the test says"})
        if path.startswith("schemas/"):
            found = self.schemas.get(int(path.rpartition("/")[2]))
            return httpx.Response(200, json=found) if found else httpx.Response(404, json={"reason": "no schema"})
        if path.endswith("/stats"):
            return httpx.Response(200, json=self._stats())
        if path.endswith("/partitions"):
            return self._partitions(request, path.removesuffix("/partitions"))
        if request.method == "PUT" and "/subscription/" not in path:
            self.partitions.setdefault(path, 0)
        return httpx.Response(204)

    def _partitions(self, request: httpx.Request, topic: str) -> httpx.Response:
        there = self.partitions.get(topic)
        if request.method == "PUT":
            if there is not None or self.left_over:
                return httpx.Response(409, json={"reason": "This topic already exists"})
            self.partitions[topic] = json.loads(request.content)
            return httpx.Response(204)
        missing = httpx.Response(404, json={"reason": "no topic"})
        return missing if there is None else httpx.Response(200, json={"partitions": there, "deleted": False})

    def _stats(self) -> dict[str, Any]:
        consumers = [{"consumerName": n, "address": "/9.9.9.9:9", "metadata": m} for n, m in self.consumers.items()]
        worker = {WORKER: {"consumers": consumers}} if consumers or self.subscribed else {}
        return {"subscriptions": {"__compaction": {"consumers": []}, **worker}}


@dataclass
class MemoryChannel:
    """A client of these."""

    topics: MemoryTopics
    opened: list[MemoryConsumer] = field(default_factory=list)

    def producer(self, topic: SystemTopicName) -> MemoryProducer:
        self.topics.on_step("producer")
        if topic in self.topics.refused:
            raise self.topics.refused[topic]
        return MemoryProducer(self.topics, topic)

    def consumer(self, name: str, properties: Mapping[str, str]) -> MemoryConsumer:
        self.topics.on_step("consumer")
        self.topics.subscribed = True
        self.topics.connected = True
        self.topics.consumers[name] = dict(properties)
        consumer = MemoryConsumer(self.topics, name)
        self.opened.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self.opened:
            consumer.close()


@dataclass
class MemoryProducer:
    topics: MemoryTopics
    topic: SystemTopicName

    def send(self, data: bytes, properties: Mapping[str, str], delay: int = 0) -> None:
        self.topics.on_step("send")
        if self.topic in self.topics.refused:
            raise self.topics.refused[self.topic]
        self.topics.put(self.topic, data, properties, delay=delay)
        self.topics.on_step("sent")

    def close(self) -> None: ...


@dataclass
class MemoryConsumer:
    topics: MemoryTopics
    name: str

    @property
    def is_connected(self) -> bool:
        return self.topics.connected

    def receive(self, seconds: float) -> ArrivedMessage | None:
        self.topics.on_step("receive")
        topics = self.topics
        if self.name not in topics.consumers:
            raise BrokerUnavailableError("closed")
        for topic in READ:
            for one in topics.stored[topic]:
                if not one.acknowledged and not one.taken_by and one.due <= topics.now and topics.connected:
                    one.taken_by, one.deliveries = self.name, one.deliveries + 1
                    return self._arrived(topic, one)
        return None

    def acknowledge(self, message: ArrivedMessage) -> None:
        self.topics.on_step("acknowledge")
        stored = message.handle
        assert isinstance(stored, Stored)
        assert stored.taken_by == self.name
        stored.acknowledged = True
        self.topics.on_step("acknowledged")

    def put_back(self, message: ArrivedMessage) -> None:
        stored = message.handle
        assert isinstance(stored, Stored)
        assert stored.taken_by == self.name
        stored.taken_by, stored.due = "", self.topics.now + PUT_BACK_MS

    def close(self) -> None:
        self.topics.gone(self.name)

    def _arrived(self, topic: SystemTopicName, one: Stored) -> ArrivedMessage:
        return ArrivedMessage(
            f"{topic.value}-partition-0",
            f"1:{one.number}:0",
            one.data,
            one.properties,
            one.schema,
            one.deliveries - 1,
            one.published,
            one,
        )


LOST = OutcomeUnknownError("no answer in time")
