"""A broker that does what a test tells it, on a loopback socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.errors import ProtocolError
from offloader.pulsar.commands import message_id
from offloader.pulsar.frames import FrameBuffer, encode
from offloader.pulsar.settings import HostPort

Reaction = Callable[["Peer", BaseCommand], None]

CONNECT, SUBSCRIBE, ACK, FLOW = 2, 4, 10, 11
UNSUBSCRIBE, CLOSE_CONSUMER, PING, PONG = 12, 16, 18, 19
PARTITIONED_METADATA, LOOKUP, GET_LAST_MESSAGE_ID, AUTH_RESPONSE = 21, 23, 29, 37


class Peer:
    """One connection as the broker sees it."""

    def __init__(self, broker: FakeBroker, sock: socket.socket) -> None:
        self.broker = broker
        self.socket = sock
        self.received: list[BaseCommand] = []

    def send(self, **fields) -> None:
        """A command, for example `send(success={"request_id": 1})`."""
        self.raw(encode(command(**fields)))

    def entry(self, consumer_id: int, ledger: int, entry: int, data: bytes) -> None:
        """A MESSAGE."""
        message = command(message={"consumer_id": consumer_id, "message_id": message_id(ledger, entry)})
        self.raw(encode(message, data))

    def raw(self, data: bytes) -> None:
        with suppress(OSError):  # the client may be gone
            self.socket.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def serve(self) -> None:
        """Read commands until the client leaves."""
        frames = FrameBuffer()
        with suppress(OSError, ProtocolError):
            while count := self.socket.recv_into(frames.space()):
                frames.received(count)
                for frame in frames.frames():
                    self.broker.take(self, frame.command)
        self.close()


class FakeBroker:
    """Answers what a healthy broker answers, unless `on` says otherwise."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._reactions: dict[int, Reaction] = dict(DEFAULTS)
        self._threads: list[threading.Thread] = []
        self.peers: list[Peer] = []
        self.last = (-1, -1)
        self.mark_delete = (1, -1)
        self._run(self._accept)

    @property
    def address(self) -> HostPort:
        return HostPort("127.0.0.1", self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        return f"pulsar{'+ssl' if self._tls else ''}://{self.address}"

    def on(self, kind: int, reaction: Reaction) -> None:
        self._reactions[kind] = reaction

    def ignore(self, kind: int) -> None:
        self._reactions[kind] = lambda peer, command: None

    def take(self, peer: Peer, received: BaseCommand) -> None:
        with self._changed:
            peer.received.append(received)
            self._changed.notify_all()
        reaction = self._reactions.get(received.type)
        if reaction is not None:
            reaction(peer, received)

    def received(self, kind: int) -> list[BaseCommand]:
        """All commands of a type, over all connections."""
        with self._changed:
            return [c for peer in self.peers for c in peer.received if c.type == kind]

    def wait_for(self, kind: int, count: int = 1, timeout: float = 60) -> BaseCommand:
        """The count-th command of a type."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received(kind)) >= count, timeout), (
                f"no command of type {kind}"
            )
        return self.received(kind)[count - 1]

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self.peers:
            peer.close()
        for thread in self._threads:
            thread.join(10)

    def _run(self, target, *arguments) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._run(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        if self._tls is not None:
            try:
                sock = self._tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
        peer = Peer(self, sock)
        with self._changed:
            self.peers.append(peer)
        peer.serve()


def command(**fields) -> BaseCommand:
    """A command from the one field that it has."""
    ((name, value),) = fields.items()
    number = BaseCommand.DESCRIPTOR.fields_by_name[name].number
    return BaseCommand(type=number, **{name: value})


def succeed(name: str) -> Reaction:
    return lambda peer, c: peer.send(success={"request_id": getattr(c, name).request_id})


def fail(name: str, code: int, message: str = "because") -> Reaction:
    return lambda peer, c: peer.send(
        error={"request_id": getattr(c, name).request_id, "error": code, "message": message}
    )


def connected(peer: Peer, _: BaseCommand) -> None:
    peer.send(connected={"server_version": "fake", "protocol_version": 21, "max_message_size": 5 * 1024 * 1024})


def found(peer: Peer, c: BaseCommand) -> None:
    url = {
        "broker_service_url_tls" if peer.broker.url.startswith("pulsar+ssl") else "broker_service_url": peer.broker.url
    }
    peer.send(lookup_response={"request_id": c.lookup.request_id, "response": 1, "authoritative": True, **url})


def last_message(peer: Peer, c: BaseCommand) -> None:
    peer.send(
        get_last_message_id_response={
            "request_id": c.get_last_message_id.request_id,
            "last_message_id": message_id(*peer.broker.last),
            "consumer_mark_delete_position": message_id(*peer.broker.mark_delete),
        }
    )


DEFAULTS: dict[int, Reaction] = {
    CONNECT: connected,
    SUBSCRIBE: succeed("subscribe"),
    UNSUBSCRIBE: succeed("unsubscribe"),
    CLOSE_CONSUMER: succeed("close_consumer"),
    ACK: lambda peer, c: peer.send(ack_response={"consumer_id": c.ack.consumer_id, "request_id": c.ack.request_id}),
    LOOKUP: found,
    GET_LAST_MESSAGE_ID: last_message,
    PARTITIONED_METADATA: lambda peer, c: peer.send(
        partitioned_metadata_response={"request_id": c.partitioned_metadata.request_id, "partitions": 4}
    ),
    PING: lambda peer, c: peer.send(pong={}),
}
