"""A bound on a whole call over HTTP: connecting, sending, and receiving, also where bytes trickle. httpx bounds each
read alone."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

SOCKET_OPTION = httpcore.SOCKET_OPTION


class Deadlines(httpcore.NetworkBackend):
    """Wraps a network backend: ends what a thread does `within` so many seconds."""

    def __init__(self, plain: httpcore.NetworkBackend) -> None:
        self._plain = plain
        self._calls = threading.local()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """The calls of this thread."""
        self._calls.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._calls.until = None

    def left(self, timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
        """The time-out of one step: its own, or what is left of the call. Raises `late` where nothing is."""
        until = getattr(self._calls, "until", None)
        if until is None:
            return timeout
        left: float = until - time.monotonic()
        if left <= 0:
            raise late("the whole call took too long")
        return left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Try each address of the host in turn, all within the call's time: a backend gives each the whole of it."""
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in _addresses(host, port):
            left = self.left(timeout, httpcore.ConnectTimeout)
            try:
                return _Stream(self._plain.connect_tcp(address, port, left, local_address, socket_options), self)
            except (httpcore.ConnectTimeout, httpcore.ConnectError) as error:
                failed = error
        raise failed


def _addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Stream(httpcore.NetworkStream):
    def __init__(self, plain: httpcore.NetworkStream, deadlines: Deadlines) -> None:
        self._plain = plain
        self._deadlines = deadlines

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._plain.read(max_bytes, self._deadlines.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._plain.write(buffer, self._deadlines.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._plain.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = self._deadlines.left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._plain.start_tls(ssl_context, server_hostname, left), self._deadlines)

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)
