"""What producers send, which the gateway itself refuses: PRODUCER, SEND, CLOSE_PRODUCER."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from offloader._proto.pulsar_wire_pb2 import BaseCommand, ProducerSuccess, Schema, SendReceipt
from offloader.gateway.protocol import answers
from offloader.gateway.protocol.schemas import SCHEMA_TYPES
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.requests import handle, topic_of
from offloader.gateway.topics.archive import ArchiveTopics
from offloader.gateway.values import RefusedError
from offloader.model import TopicName
from offloader.ports.admin import TopicSchema
from offloader.pulsar.commands import command, message_id
from offloader.pulsar.frames import Frame, FrameBuffer
from tests.gateway.writable.source import WritableSource

_SCHEMA_NAMES = {number: name for name, number in SCHEMA_TYPES.items()}


class SendFrames(FrameBuffer):
    """`entry`: of the last SEND that was given."""

    entry = b""

    def _frame(self, begin: int, middle: int, end: int) -> Frame:
        found = super()._frame(begin, middle, end)
        if found.command.HasField("send"):
            self.entry = self._view[middle:end].tobytes()
        return found


class ProducingConnection(Connection):
    """`producers`: the topics of those that are open."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.producers: dict[int, TopicName] = {}
        self._frames = self.sent = SendFrames(0, peer="a client", trusted=False)


class Producers:
    """Takes what clients produce. On the loop."""

    def __init__(self, source: WritableSource, topics: ArchiveTopics) -> None:
        self._source = source
        self._topics = topics
        self._names = (f"writable-{number}" for number in itertools.count())
        self._receipts: defaultdict[TopicName, list[Callable[[], None]]] = defaultdict(list)
        self._publishing: dict[TopicName, asyncio.Task[None]] = {}

    def handle(self, connection: Connection, asked: BaseCommand) -> None:
        """Everything else is the gateway's."""
        assert isinstance(connection, ProducingConnection)
        if asked.HasField("producer"):
            self._open(connection, asked)
        elif asked.HasField("send"):
            self._send(connection, asked)
        elif asked.HasField("close_producer"):
            connection.producers.pop(asked.close_producer.producer_id, None)
            connection.send(answers.success(asked.close_producer.request_id))
        else:
            handle(connection, asked)

    def _open(self, connection: ProducingConnection, asked: BaseCommand) -> None:
        said = asked.producer
        try:
            topic = topic_of(said.topic)
        except RefusedError as error:
            connection.send(answers.refused(said.request_id, error))
            return
        self._source.create(topic)
        connection.producers[said.producer_id] = topic
        done = ProducerSuccess(request_id=said.request_id, producer_name=said.producer_name or next(self._names))
        if said.HasField("schema"):
            done.schema_version = self._source.add_schema(topic, _schema(said.schema)).to_bytes(8, "big")
        connection.send(command(producer_success=done))

    def _send(self, connection: ProducingConnection, asked: BaseCommand) -> None:
        """The receipt goes out once consumers can have it."""
        said = asked.send
        topic = connection.producers[said.producer_id]
        place = self._source.append(topic, connection.sent.entry)
        receipt = SendReceipt(producer_id=said.producer_id, sequence_id=said.sequence_id, message_id=message_id(*place))
        self._receipts[topic].append(partial(connection.send, command(send_receipt=receipt)))
        if topic not in self._publishing:
            self._publishing[topic] = asyncio.create_task(self._publish(topic))

    async def _publish(self, topic: TopicName) -> None:
        try:
            while receipts := self._receipts.pop(topic, []):
                served = self._topics.served.get(topic)
                if served is not None:
                    await served.refresh()
                for receipt in receipts:
                    receipt()
        finally:
            del self._publishing[topic]


def _schema(said: Schema) -> TopicSchema:
    properties = tuple((one.key, one.value) for one in said.properties)
    return TopicSchema(0, _SCHEMA_NAMES[said.type], said.data, time.time_ns() // 1_000_000, properties)
