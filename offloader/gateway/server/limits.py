"""What one client may take."""

from __future__ import annotations

from typing import NamedTuple

from offloader.model import MIB
from offloader.pulsar.frames import DEFAULT_MAX_MESSAGE


class ConnectionLimits(NamedTuple):
    """Bounds of a connection. `buffered_bytes`: entries that the socket has not taken. `requests`: under way at a time;
    more are not read. Times in seconds; `idle`: between two requests of HTTP; `look`: for what only looks
    into the store."""

    max_message: int = DEFAULT_MAX_MESSAGE
    buffered_bytes: int = 4 * MIB
    requests: int = 32
    consumers: int = 10_000
    watchers: int = 100
    handshake: float = 10.0
    ping: float = 30.0
    alive: float = 5.0
    idle: float = 60.0
    look: float = 10.0


DEFAULT_LIMITS = ConnectionLimits()
