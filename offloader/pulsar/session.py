"""What one connection says and hears: handshake, requests and their answers, consumers. No sockets, no threads of its
own.

`handle` is called by the connection's I/O thread only; everything else may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from offloader._proto.pulsar_wire_pb2 import BaseCommand, Connected, Message, MessageIdData, TopicMigrated
from offloader.errors import BrokerUnavailableError, OffloadError, ProtocolError, TopicMovedError
from offloader.pulsar import commands
from offloader.pulsar.auth import Authentication
from offloader.pulsar.frames import Frame, encode
from offloader.pulsar.server_errors import server_error

Reply = Future[BaseCommand]
Build = Callable[[int], BaseCommand]

# Commands that answer a request, and where their request id is.
ANSWERS: dict[int, Callable[[BaseCommand], int]] = {
    BaseCommand.SUCCESS_FIELD_NUMBER: lambda c: c.success.request_id,
    BaseCommand.PRODUCER_SUCCESS_FIELD_NUMBER: lambda c: c.producer_success.request_id,
    BaseCommand.PARTITIONED_METADATA_RESPONSE_FIELD_NUMBER: lambda c: c.partitioned_metadata_response.request_id,
    BaseCommand.LOOKUP_RESPONSE_FIELD_NUMBER: lambda c: c.lookup_response.request_id,
    BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE_FIELD_NUMBER: lambda c: c.get_last_message_id_response.request_id,
}


class Listener(Protocol):
    """Whoever subscribed or publishes. Called by the I/O thread: must not block."""

    def on_closed(self, error: OffloadError) -> None:
        """Nothing more will come: TopicMovedError or BrokerUnavailableError."""
        ...


class Consumer(Listener, Protocol):
    """Whoever subscribed."""

    def on_entry(self, ledger: int, entry: int, data: bytes) -> None:
        """The broker delivered an entry."""
        ...


class Producer(Listener, Protocol):
    """Whoever publishes."""

    def on_receipt(self, sequence: int, message_id: MessageIdData) -> None:
        """The broker stored an entry."""
        ...

    def on_refused(self, sequence: int, error: OffloadError) -> None:
        """The broker did not store an entry."""
        ...


L = TypeVar("L", bound=Listener)


class BrokerSession:
    """The protocol's state. `wake` is called when there is output to send."""

    def __init__(self, authentication: Authentication, wake: Callable[[], None], proxy_to: str = "") -> None:
        self.connected: Future[Connected] = Future()
        self._authentication = authentication
        self._wake = wake
        self._proxy_to = proxy_to
        self._lock = threading.Lock()
        self._output = bytearray()
        self._replies: dict[int, Reply] = {}
        self._consumers: dict[int, Consumer] = {}
        self._producers: dict[int, Producer] = {}
        self._next_id = 0
        self._failure: OffloadError | None = None
        self._handlers: dict[int, Callable[[BaseCommand], None]] = {
            BaseCommand.CONNECTED_FIELD_NUMBER: self._on_connected,
            BaseCommand.ERROR_FIELD_NUMBER: self._on_error,
            BaseCommand.CLOSE_CONSUMER_FIELD_NUMBER: lambda c: self._close(
                self._consumers, c.close_consumer.consumer_id, "was unloaded or removed"
            ),
            BaseCommand.SEND_RECEIPT_FIELD_NUMBER: self._on_receipt,
            BaseCommand.SEND_ERROR_FIELD_NUMBER: self._on_send_error,
            BaseCommand.CLOSE_PRODUCER_FIELD_NUMBER: lambda c: self._close(
                self._producers, c.close_producer.producer_id, "was unloaded, or somebody else produces to it"
            ),
            BaseCommand.PING_FIELD_NUMBER: lambda _: self.send(commands.PONG),
            BaseCommand.AUTH_CHALLENGE_FIELD_NUMBER: self._on_challenge,
            BaseCommand.ACK_RESPONSE_FIELD_NUMBER: self._on_ack_response,
            BaseCommand.TOPIC_MIGRATED_FIELD_NUMBER: self._on_migrated,
        }

    @property
    def failure(self) -> OffloadError | None:
        """Why the connection is over, None while it is not."""
        return self._failure

    def start(self) -> None:
        """Say CONNECT."""
        auth = self._authentication
        self.send(commands.connect(auth.method, auth.data(), self._proxy_to))

    def send(self, command: BaseCommand, entry: bytes = b"") -> None:
        """Send something that is not answered; a SEND with its entry. Dropped on a connection that is over, whose
        listeners were told, or are about to be."""
        frame = encode(command, entry)
        with self._lock:
            if self._failure is not None:
                return
            self._output += frame
        self._wake()

    def request(self, build: Build) -> Reply:
        """Send something that is answered; `build` gets the request id. The reply is cancelled if the connection ends.

        Raises BrokerUnavailableError if it is over already: then nothing was sent.
        """
        reply: Reply = Future()
        with self._lock:
            if self._failure is not None:
                raise BrokerUnavailableError(str(self._failure))
            self._next_id += 1
            number = self._next_id
            self._replies[number] = reply
            self._output += encode(build(number))
        reply.add_done_callback(lambda _: self._forget(number))
        self._wake()
        return reply

    def add_consumer(self, consumer: Consumer) -> int:
        """Register a consumer; returns its id."""
        return self._add(self._consumers, consumer)

    def add_producer(self, producer: Producer) -> int:
        """Register a producer; returns its id."""
        return self._add(self._producers, producer)

    def remove(self, listener_id: int) -> None:
        """Forget a consumer or a producer: what still arrives for it is dropped."""
        with self._lock:
            self._consumers.pop(listener_id, None)
            self._producers.pop(listener_id, None)

    def take_output(self) -> bytes:
        """What is to be sent."""
        with self._lock:
            output = bytes(self._output)
            self._output.clear()
            return output

    def fail(self, error: OffloadError) -> None:
        """The connection is over: cancel what waits, tell consumers and producers. Only the first call counts."""
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
            replies, self._replies = self._replies, {}
            listeners: list[Listener] = [*self._consumers.values(), *self._producers.values()]
            self._consumers.clear()
            self._producers.clear()
        with suppress(InvalidStateError):  # set before, if the handshake was through
            self.connected.set_exception(error)
        for reply in replies.values():
            reply.cancel()
        for listener in listeners:
            listener.on_closed(error)

    def handle(self, frame: Frame) -> None:
        """Take one frame. Raises ProtocolError, or the error with which the broker refused us."""
        command = frame.command
        if frame.entry is not None:
            self._on_message(command.message, frame.entry)
            return
        if command.type in ANSWERS:
            self._answer(ANSWERS[command.type](command), command)
        elif command.type in self._handlers:
            self._handlers[command.type](command)

    def _on_message(self, message: Message, entry: bytes) -> None:
        consumer = self._consumers.get(message.consumer_id)
        if consumer is not None:
            consumer.on_entry(message.message_id.ledger_id, message.message_id.entry_id, entry)

    def _on_connected(self, command: BaseCommand) -> None:
        if self.connected.done():
            raise ProtocolError("the broker sent CONNECTED twice")
        self.connected.set_result(command.connected)

    def _on_challenge(self, _: BaseCommand) -> None:
        self.send(commands.auth_response(self._authentication.method, self._authentication.data()))

    def _on_error(self, command: BaseCommand) -> None:
        error = server_error(command.error.error, command.error.message)
        if not self.connected.done():
            raise error
        self._answer(command.error.request_id, command, error)

    def _on_ack_response(self, command: BaseCommand) -> None:
        response = command.ack_response
        error = server_error(response.error, response.message) if response.HasField("error") else None
        self._answer(response.request_id, command, error)

    def _on_migrated(self, command: BaseCommand) -> None:
        migrated = command.topic_migrated
        of_consumer = migrated.resource_type == TopicMigrated.CONSUMER
        listeners: dict[int, Any] = self._consumers if of_consumer else self._producers
        self._close(listeners, migrated.resource_id, "migrates to another cluster")

    def _on_receipt(self, command: BaseCommand) -> None:
        receipt = command.send_receipt
        producer = self._producers.get(receipt.producer_id)
        if producer is not None:
            producer.on_receipt(receipt.sequence_id, receipt.message_id)

    def _on_send_error(self, command: BaseCommand) -> None:
        refused = command.send_error
        producer = self._producers.get(refused.producer_id)
        if producer is not None:
            producer.on_refused(refused.sequence_id, server_error(refused.error, refused.message))

    def _add(self, listeners: dict[int, L], listener: L) -> int:
        with self._lock:
            self._next_id += 1
            listeners[self._next_id] = listener
            return self._next_id

    def _close(self, listeners: dict[int, L], listener_id: int, why: str) -> None:
        with self._lock:
            listener = listeners.pop(listener_id, None)
        if listener is not None:
            listener.on_closed(TopicMovedError(f"the topic {why}: look it up again"))

    def _forget(self, request_id: int) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._replies.pop(request_id, None)

    def _answer(self, request_id: int, command: BaseCommand, error: OffloadError | None = None) -> None:
        with self._lock:
            reply = self._replies.pop(request_id, None)
        if reply is None or not reply.set_running_or_notify_cancel():
            return  # nobody waits for it any more
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result(command)
