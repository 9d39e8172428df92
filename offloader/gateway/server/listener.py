"""The sockets: who connects, how many at most, and a stop that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable

from offloader.gateway.protocol.answers import Address
from offloader.gateway.server.connection import Connection
from offloader.gateway.server.http_connection import HttpConnection
from offloader.gateway.server.limits import (
    ClientBounds,
    ClientLimits,
    ConnectionLimits,
    LargeFrames,
    Shares,
    UnreadAnswers,
)
from offloader.gateway.server.ports import Gatekeeper, ServedTopics
from offloader.gateway.server.requests import handle
from offloader.gateway.traffic import ConnectionTraffic

log = logging.getLogger(__name__)

WAITING = 1024  # connections that the system holds for us
PAUSE = 1.0  # seconds, where the system gives no further socket

Client = Connection | HttpConnection
Tls = Callable[[], ssl.SSLContext]
"""What a connection by TLS begins with: certificates change."""


class GatewayListener:
    """On the loop. `most`: clients at a time. Where there are so many, a newcomer takes the place of whoever has waited
    longest without saying who they are; where all have, it is closed at once. `traffic`: what has come since the
    start. `memory`: for what sockets have not taken. `large`: for frames that come in. `unread`: for answers that
    they do not read. `bounds`: of what they have."""

    def __init__(
        self,
        topics: ServedTopics,
        gatekeeper: Gatekeeper,
        limits: ConnectionLimits,
        most: int,
        memory: Shares,
        large: LargeFrames,
        unread: UnreadAnswers,
        bounds: ClientBounds = ClientBounds(),  # noqa: B008 (a value)
    ) -> None:
        self.connections: set[Connection] = set()
        self._client_limits = ClientLimits(bounds, lambda: self._clients)
        self.traffic = ConnectionTraffic()
        self.http = Address("")  # where requests of HTTP are answered
        self._topics = topics
        self._gatekeeper = gatekeeper
        self._limits = limits
        self._most = most
        self._memory = memory
        self._large = large
        self._unread = unread
        self._full = False
        self._clients: dict[Client, asyncio.Task[None]] = {}  # with how it comes in; the oldest first
        self._doors: list[tuple[socket.socket, asyncio.Task[None]]] = []
        self._loop = asyncio.get_running_loop()

    async def listen(self, host: str, port: int, tls: Tls | None = None) -> int:
        """For the binary protocol. Returns the port. Raises OSError."""
        return await self._open(host, port, self._connection, tls)

    async def listen_http(self, host: str, port: int, tls: Tls | None = None) -> int:
        """The same for HTTP."""
        return await self._open(host, port, self._http_connection, tls)

    def ask_again(self) -> None:
        """Who everybody is: tokens are signed with another key now."""
        for connection in list(self.connections):
            connection.ask_again()

    def clock_was_set(self) -> None:
        """Tokens are good until a moment of the clock as it is now."""
        for connection in list(self.connections):
            connection.clock_was_set()

    async def close(self) -> None:
        """No new connections; those that there are end."""
        for door, accepting in self._doors:
            accepting.cancel()
            door.close()
        for client in list(self._clients):
            self._send_away(client, "the gateway stops")

    async def _open(self, host: str, port: int, make: Callable[[], Client], tls: Tls | None) -> int:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, *_, address in found:
            door = socket.create_server((address[0], port), family=family, backlog=WAITING)
            door.setblocking(False)
            port = int(door.getsockname()[1])
            self._doors.append((door, self._loop.create_task(self._accept(door, make, tls))))
        return port

    async def _accept(self, door: socket.socket, make: Callable[[], Client], tls: Tls | None) -> None:
        while True:
            try:
                found, _ = await self._loop.sock_accept(door)
            except OSError as error:
                log.warning("gateway: the system has no room: %s", error.strerror, extra={"see": "gateway-full"})
                await asyncio.sleep(PAUSE)
                continue
            self.traffic.accepted += 1
            if self._has_room():
                client = make()
                self._clients[client] = self._loop.create_task(self._come_in(found, client, tls))
            else:
                self.traffic.full += 1
                found.close()
            await asyncio.sleep(0)  # accepting does not wait where more are there, and others have their turn, too

    async def _come_in(self, found: socket.socket, client: Client, tls: Tls | None) -> None:
        seconds = self._limits.handshake if tls is not None else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: client,
                found,
                ssl=None if tls is None else tls(),
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except OSError as error:
            log.info("gateway: a client did not come in: %s", error)
            self._gone(client)

    def _has_room(self) -> bool:
        if len(self._clients) < self._most:
            self._full = False
            return True
        stranger = next((client for client in self._clients if not client.is_known), None)
        if stranger is not None:
            self._send_away(stranger, "it has not said who it is, and others wait")
        elif not self._full:
            self._full = True
            log.warning("gateway: %d connections are enough", self._most, extra={"see": "gateway-full"})
        return stranger is not None

    def _send_away(self, client: Client, why: str) -> None:
        self._clients[client].cancel()
        client.end(why)
        self._gone(client)

    def _gone(self, client: Client) -> None:
        self._clients.pop(client, None)
        if isinstance(client, Connection) and client in self.connections:
            self.connections.remove(client)
            self._memory.give_back(client.buffered_bytes)

    def _connection(self) -> Connection:
        share = self._memory.take(self._limits.buffered_bytes)
        connection = Connection(
            self._topics,
            self._gatekeeper,
            self._limits,
            handle,
            self._gone,
            self.traffic,
            share,
            self._large,
            self._client_limits,
            self._unread,
        )
        self.connections.add(connection)
        return connection

    def _http_connection(self) -> HttpConnection:
        return HttpConnection(
            self._topics,
            self._gatekeeper,
            self._limits,
            lambda: self.http,
            self._gone,
            self._client_limits,
            self._unread,
        )
