"""The sockets: who connects, how many at most, and a stop that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl

from offloader.gateway.server.connection import Connection
from offloader.gateway.server.limits import ConnectionLimits
from offloader.gateway.server.ports import Gatekeeper, ServedTopics
from offloader.gateway.server.requests import handle
from offloader.gateway.traffic import ConnectionTraffic

log = logging.getLogger(__name__)


class GatewayListener:
    """On the loop. `most`: connections at a time; a further one is closed at once. `traffic`: what has come since the
    start."""

    def __init__(self, topics: ServedTopics, gatekeeper: Gatekeeper, limits: ConnectionLimits, most: int) -> None:
        self.connections: set[Connection] = set()
        self.traffic = ConnectionTraffic()
        self._topics = topics
        self._gatekeeper = gatekeeper
        self._limits = limits
        self._most = most
        self._servers: list[asyncio.Server] = []

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Returns the port. Raises OSError."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._connection, host, port, ssl=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def ask_again(self) -> None:
        """Who everybody is: tokens are signed with another key now."""
        for connection in list(self.connections):
            connection.ask_again()

    async def close(self) -> None:
        """No new connections; those that there are end."""
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.end("the gateway stops")

    def _connection(self) -> Connection:
        connection = Connection(
            self._topics, self._gatekeeper, self._limits, handle, self.connections.discard, self.traffic
        )
        self.traffic.accepted += 1
        if len(self.connections) >= self._most:
            self.traffic.full += 1
            log.warning("gateway: %d connections are enough", self._most, extra={"see": "gateway-full"})
            connection.refuse()
        self.connections.add(connection)
        return connection
