"""One connection to a broker: a socket, and a thread that always reads it and answers PING."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

from offloader._proto.pulsar_wire_pb2 import BaseCommand
from offloader.errors import BrokerUnavailableError, FatalError, OffloadError, OutcomeUnknownError
from offloader.pulsar import commands
from offloader.pulsar.auth import Authentication
from offloader.pulsar.frames import FrameBuffer
from offloader.pulsar.session import BrokerSession, Build, Reply
from offloader.pulsar.settings import HostPort, PulsarSettings

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class BrokerConnection:
    """Shared by many consumers; the broker tells them apart by their ids. `session` is for consumers and requests."""

    def __init__(
        self, sock: socket.socket, session: BrokerSession, wakeup: Wakeup, keep_alive: float, name: str
    ) -> None:
        self.session = session
        self.name = name
        self._sock = sock
        self._wakeup = wakeup
        self._frames = FrameBuffer()
        self._unsent = bytearray()
        self._keep_alive = KeepAlive(keep_alive, time.monotonic())
        self._selector = selectors.DefaultSelector()
        self._events = READ
        self._selector.register(sock, READ)
        self._selector.register(wakeup.reader, READ)
        self._thread = threading.Thread(target=self._run, name=f"pulsar {name}", daemon=True)

    @classmethod
    def open(
        cls, settings: PulsarSettings, authentication: Authentication, address: HostPort, broker: HostPort | None = None
    ) -> BrokerConnection:
        """Connect and shake hands. `broker`: reach that one through a proxy at `address`.

        Raises BrokerUnavailableError, AuthenticationFailedError, FatalError (certificate).
        """
        sock = open_socket(settings, address)
        wakeup = Wakeup()
        session = BrokerSession(authentication, wakeup.set, proxy_to=str(broker) if broker else "")
        connection = cls(sock, session, wakeup, settings.keep_alive, str(broker or address))
        try:
            connection._shake_hands(settings.connect_timeout)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def alive(self) -> bool:
        """False once it failed or was closed."""
        return self.session.failure is None

    def call(self, build: Build, timeout: float, what: str, *, write: bool = False) -> BaseCommand:
        """Send a request and wait for its answer; an error that the broker answers is raised.

        No answer: BrokerUnavailableError, for a `write` OutcomeUnknownError.
        """
        return self.wait(self.session.request(build), timeout, what, write=write)

    def wait(self, reply: Reply, timeout: float, what: str, *, write: bool = False) -> BaseCommand:
        """Wait for a request's answer, as `call` does."""
        try:
            return reply.result(timeout)
        except OffloadError as error:
            raise type(error)(f"{what}: {error}") from error
        except TimeoutError:
            reply.cancel()
            why = f"{self.name} did not answer within {timeout:g} s"
        except CancelledError:
            why = str(self.session.failure)
        if write:
            raise OutcomeUnknownError(f"{what}: it may have happened ({why})")
        raise BrokerUnavailableError(f"{what}: {why}")

    def close(self) -> None:
        """End it. Consumers that are left hear BrokerUnavailableError."""
        self.session.fail(BrokerUnavailableError(f"the connection to {self.name} was closed by us"))
        self._wakeup.set()
        if not self._thread.is_alive():
            self._release()
        elif self._thread is not threading.current_thread():
            self._thread.join()

    def _shake_hands(self, timeout: float) -> None:
        self.session.start()
        self._thread.start()
        try:
            connected = self.session.connected.result(timeout)
        except OffloadError as error:
            raise type(error)(f"connecting to {self.name}: {error}") from error
        except TimeoutError as error:
            raise BrokerUnavailableError(f"{self.name} did not answer CONNECT within {timeout:g} s") from error
        if connected.HasField("max_message_size"):
            self._frames.allow(connected.max_message_size)

    def _run(self) -> None:
        self._wakeup.owned_by_this_thread()
        try:
            while self.alive:
                self._step()
        except OffloadError as error:
            self.session.fail(error)
        except OSError as error:
            self.session.fail(BrokerUnavailableError(f"the connection to {self.name} broke ({error})"))
        finally:
            self.session.fail(BrokerUnavailableError(f"the connection to {self.name} ended"))
            self._release()

    def _step(self) -> None:
        self._flush()
        for key, events in self._selector.select(self._keep_alive.wait(time.monotonic())):
            if key.fileobj is self._wakeup.reader:
                self._wakeup.clear()
            elif events & READ:
                self._receive()
        self._check_keep_alive()

    def _receive(self) -> None:
        while (count := receive(self._sock, self._frames.space())) is not None:
            if count == 0:
                raise BrokerUnavailableError(f"{self.name} closed the connection")
            self._keep_alive.heard(time.monotonic())
            self._frames.received(count)
            for frame in self._frames.frames():
                self.session.handle(frame)
            if not buffered(self._sock):
                return

    def _flush(self) -> None:
        self._unsent += self.session.take_output()
        if self._unsent:
            del self._unsent[: send(self._sock, self._unsent)]
        events = READ | WRITE if self._unsent else READ
        if events != self._events:
            self._events = events
            self._selector.modify(self._sock, events)

    def _check_keep_alive(self) -> None:
        now = time.monotonic()
        if self._keep_alive.dead(now):
            raise BrokerUnavailableError(f"{self.name} stopped answering")
        if self._keep_alive.ping_due(now):
            self.session.send(commands.PING)

    def _release(self) -> None:
        self._selector.close()
        self._sock.close()
        self._wakeup.close()


class KeepAlive:
    """After `interval` seconds of silence a PING is due; after as many more without a word the connection is dead."""

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._heard = now
        self._pinged: float | None = None

    def heard(self, now: float) -> None:
        """Anything was received."""
        self._heard = now
        self._pinged = None

    def ping_due(self, now: float) -> bool:
        """True once per silence; the caller then sends a PING."""
        if self._pinged is not None or now - self._heard < self._interval:
            return False
        self._pinged = now
        return True

    def dead(self, now: float) -> bool:
        """Whether a PING was left unanswered for too long."""
        return self._pinged is not None and now - self._pinged >= self._interval

    def wait(self, now: float) -> float:
        """Seconds until something may be due."""
        since = self._heard if self._pinged is None else self._pinged
        return max(0.0, since + self._interval - now)


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
