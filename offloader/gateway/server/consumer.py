"""A client's consumer: entries to frames, permits by and by."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.gateway.core.events import Deliver
from offloader.gateway.protocol import answers
from offloader.gateway.protocol.message_frames import MessageFrames
from offloader.gateway.server.limits import PermitWindow

if TYPE_CHECKING:
    from offloader.gateway.server.ports import SubscribedConsumer


class ClientLink(Protocol):
    """The way to a client."""

    takes_broker_metadata: bool
    writable: bool

    @property
    def consumer_bytes(self) -> int:
        """What may be on its way of one consumer's entries."""
        ...

    def send(self, command: BaseCommand) -> None: ...

    def write(self, pieces: Iterable[bytes | memoryview], size: int) -> None: ...

    def forget(self, consumer: ClientConsumer) -> None:
        """It is closed."""
        ...

    async def is_alive(self) -> bool: ...


class ClientConsumer:
    """`subscribed` None: as long as it is being subscribed. `since`: when the client asked for it."""

    def __init__(self, outgoing: ClientLink, number: int) -> None:
        self.number = number
        self.subscribed: SubscribedConsumer | None = None
        self.is_closed = False
        self.since = datetime.now(UTC)
        self._outgoing = outgoing
        self._window = PermitWindow()
        self._partition = -1

    def begin(self, subscribed: SubscribedConsumer) -> None:
        """It is subscribed."""
        self.subscribed, self._partition = subscribed, subscribed.partition

    def deliver(self, what: Deliver) -> None:
        frames = MessageFrames(self.number, self._partition, what.redeliveries, what.epoch)
        pieces, size = frames.of(what.entries, whole=self._outgoing.takes_broker_metadata)
        self._outgoing.write(pieces, size)
        self._window.sent(len(what.entries), what.messages, size)

    def active_changed(self, *, is_active: bool) -> None:
        self._outgoing.send(answers.active(self.number, is_active=is_active))

    def end_reached(self) -> None:
        self._outgoing.send(answers.end_reached(self.number))

    def closed(self) -> None:
        self.is_closed = True
        self._outgoing.forget(self)
        self._outgoing.send(answers.closed(self.number))

    async def is_alive(self) -> bool:
        is_alive = await self._outgoing.is_alive()
        if not is_alive:
            self.leave()  # it may wait for its turn to do so
        return is_alive

    def flow(self, permits: int) -> None:
        """The client takes so many messages more."""
        self._window.add(permits)
        self.pass_permits_on()

    def pass_permits_on(self) -> None:
        """As many as the socket has room for."""
        while self.subscribed is not None and not self.is_closed and self._outgoing.writable:
            permits = self._window.take(self._outgoing.consumer_bytes)
            if not permits:
                return
            self.subscribed.flow(permits)

    def leave(self) -> None:
        """The client has gone, or wants it no more."""
        self.is_closed = True
        if self.subscribed is not None:
            self.subscribed.leave()
