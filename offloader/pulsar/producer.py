"""Publishes entries into one topic as its only producer (access mode ExclusiveWithFencing), exactly as they are
given."""

from __future__ import annotations

import threading
from typing import NamedTuple

from offloader._proto.pulsar_wire_pb2 import BaseCommand, MessageIdData, ProducerSuccess
from offloader.errors import FatalError, OffloadError
from offloader.model import KIB, TopicName
from offloader.pulsar import commands
from offloader.pulsar.connection import BrokerConnection
from offloader.pulsar.frames import DEFAULT_MAX_MESSAGE
from offloader.pulsar.lookup import TopicLookup

# A broker takes frames of 10 KiB more than its messages may have (seen in 4.0.7); our command needs less than one of
# them.
ROOM_FOR_METADATA = 9 * KIB


class SendReceipt(NamedTuple):
    """An entry that the broker has stored, and where."""

    sequence: int
    ledger: int
    entry: int


class EntryProducer:
    """A `session.Producer` on one connection, until the broker, somebody else's producer or the connection ends it.

    What was sent on it is stored in the order it was sent. After its end it is not known which entries still were.
    """

    def __init__(self, connection: BrokerConnection, topic: TopicName) -> None:
        self.epoch: int | None = None
        self._topic = topic
        self._connection = connection
        connected = connection.session.connected.result()
        self._largest = (connected.max_message_size or DEFAULT_MAX_MESSAGE) + ROOM_FOR_METADATA
        self._changed = threading.Condition(threading.Lock())
        self._receipts: list[SendReceipt] = []
        self._error: OffloadError | None = None
        self._id = connection.session.add_producer(self)  # from here on the I/O thread calls

    @classmethod
    def open(cls, lookup: TopicLookup, topic: TopicName, name: str, epoch: int | None) -> EntryProducer:
        """Fence out whoever produces, and produce. `epoch`: of our last producer, None before the first.

        Raises FatalError where somebody else has produced since that epoch; TopicNotFoundError, BrokerUnavailableError,
        ... The broker makes the topic where it is allowed to.
        """

        def begin(connection: BrokerConnection) -> EntryProducer:
            producer = cls(connection, topic)
            try:
                producer._attach(name, epoch, lookup.timeout)
            except OffloadError:
                producer.let_go()
                raise
            return producer

        return lookup.attach(topic, begin)

    def send(self, sequence: int, entry: bytes, *, messages: int, chunk: bool) -> None:
        """Publish one entry of so many messages. Does not wait; raises FatalError where no broker would take it."""
        if len(entry) > self._largest:
            raise FatalError(
                f"an entry of {len(entry)} bytes is larger than the broker takes: raise maxMessageSize in broker.conf "
                f"and nettyMaxFrameSizeBytes in bookkeeper.conf"
            )
        self._connection.session.send(commands.send(self._id, sequence, messages, chunk=chunk), entry)

    def receipts(self, timeout: float) -> list[SendReceipt]:
        """What was stored since the last call, at least one; empty after `timeout` seconds without any.

        Raises why the producer ended or an entry was refused, once there is no receipt left.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._receipts or self._error, timeout)
            if not self._receipts and self._error is not None:
                raise self._error
            receipts, self._receipts = self._receipts, []
            return receipts

    def let_go(self) -> None:
        """Give up the topic. Nobody waits for the answer: request id 0 is not used otherwise."""
        self._connection.session.remove(self._id)
        self._connection.session.send(commands.close_producer(self._id, 0))

    def on_receipt(self, sequence: int, message_id: MessageIdData) -> None:
        with self._changed:
            self._receipts.append(SendReceipt(sequence, *commands.position(message_id)))
            self._changed.notify()

    def on_refused(self, sequence: int, error: OffloadError) -> None:
        self._end(type(error)(f"{self._topic}: entry {sequence}: {error}"))

    def on_closed(self, error: OffloadError) -> None:
        self._end(error)

    def _end(self, error: OffloadError) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify()

    def _attach(self, name: str, epoch: int | None, timeout: float) -> None:
        def build(request_id: int) -> BaseCommand:
            return commands.producer(self._id, request_id, str(self._topic), name, epoch)

        success: ProducerSuccess = self._connection.call(build, timeout, f"producing to {self._topic}").producer_success
        self.epoch = success.topic_epoch if success.HasField("topic_epoch") else None
