"""Sockets to brokers, with or without TLS, connected and not blocking."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress

from offloader.errors import BrokerUnavailableError, FatalError
from offloader.pulsar.settings import HostPort, PulsarSettings


def open_socket(settings: PulsarSettings, address: HostPort) -> socket.socket:
    """Connect. Raises BrokerUnavailableError; FatalError if the broker's certificate is not trusted."""
    try:
        sock = socket.create_connection((address.host, address.port), timeout=settings.connect_timeout)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name for a host, a broker may have told it
        raise BrokerUnavailableError(f"{address} cannot be reached ({error})") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer)
        if settings.tls:
            sock = settings.ssl_context().wrap_socket(sock, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise FatalError(
            f"{address}: its certificate is not trusted ({error.verify_message}); set pulsar.tlsTrustCertsFilePath"
        ) from error
    except OSError as error:
        sock.close()
        raise BrokerUnavailableError(f"{address} broke off the TLS handshake ({error})") from error
    sock.setblocking(False)
    return sock


def receive(sock: socket.socket, space: memoryview) -> int | None:
    """What is there, at most as much as fits: the number of bytes, 0 at the end, None if there is nothing yet."""
    try:
        return sock.recv_into(space)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None


def send(sock: socket.socket, data: bytearray) -> int:
    """As much as the other side takes now."""
    try:
        return sock.send(data)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return 0


def buffered(sock: socket.socket) -> bool:
    """Whether TLS holds bytes that no selector announces."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


class Wakeup:
    """Makes a selector return: any thread calls `set`, the selecting one `clear`."""

    def __init__(self) -> None:
        self.reader, self._writer = socket.socketpair()
        self.reader.setblocking(False)
        self._writer.setblocking(False)
        self._pending = False
        self._owner: int | None = None

    def owned_by_this_thread(self) -> None:
        """The calling thread is the one that selects: it need not wake itself."""
        self._owner = threading.get_ident()

    def set(self) -> None:
        """Wake the selecting thread, unless it was woken already. Without effect once closed."""
        if self._pending or threading.get_ident() == self._owner:
            return
        self._pending = True
        with suppress(OSError):
            self._writer.send(b"!")

    def clear(self) -> None:
        """Before looking for what there is to do."""
        with suppress(BlockingIOError):
            self.reader.recv(64)
        self._pending = False

    def close(self) -> None:
        """Free the sockets."""
        self.reader.close()
        self._writer.close()
