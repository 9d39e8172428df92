"""A bookie on the loopback interface: versions 2 and 3 of the protocol over a `MemoryBookie`, and whatever can go
wrong."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from google.protobuf.message import DecodeError

from offloader._proto import bookkeeper_pb2 as pb
from offloader.bookkeeper import v2, v3
from offloader.bookkeeper.api import BookieAddress
from offloader.bookkeeper.frames import frame
from tests.bookkeeper.bookie_answers import ScriptedRequest, answer_v2, answer_v3, asked_v2, asked_v3
from tests.fakes.memory_bookie import MemoryBookie

DISABLED = "AuthDisabledPlugin"


@dataclass
class BookieFault:
    """One thing that goes wrong with the next `times` requests that match. Without more, they are never answered.

    `status`: answered so, and not done. `delay`: answered after so many seconds, as is everything after it on its
    connection. `drop`: done, and then the connection is closed in place of an answer. `swap`: answered after the next
    one. `spoil`: the answer with this done to its frame.
    """

    matches: Callable[[ScriptedRequest], bool] = lambda _: True
    times: int = 1
    status: int | None = None
    delay: float | None = None
    drop: bool = False
    swap: bool = False
    spoil: Callable[[bytes], bytes] | None = None


@dataclass
class ServerAuthentication:
    """What the bookie's plugin expects at each step, and what it says to it."""

    plugin: str
    steps: dict[bytes, bytes] = field(default_factory=dict)
    last: bytes = b""


class BookieServer:
    """A context manager; its end closes all connections. `requests`: what was asked, in order of arrival. `faults`:
    what goes wrong.

    `tls`: START_TLS is possible. `authentication`: asked for before anything else.
    """

    def __init__(
        self,
        bookie: MemoryBookie | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        authentication: ServerAuthentication | None = None,
        batches: bool = True,
        port: int = 0,
    ) -> None:
        self.bookie = bookie or MemoryBookie()
        self.requests: list[ScriptedRequest] = []
        self.connections = 0
        self.tls = tls
        self.authentication = authentication
        self.batches = batches
        self.lock = threading.Lock()
        self.faults: list[BookieFault] = []
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = BookieAddress(*self._listener.getsockname()[:2])
        self._threads = [threading.Thread(target=self._accept, name="bookie server")]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.hang_up()
        for thread in self._threads:
            thread.join()

    def add(self, fault: BookieFault) -> BookieFault:
        """Let one more thing go wrong; its `times` counts down."""
        with self.lock:
            self.faults.append(fault)
        return fault

    def hang_up(self) -> None:
        """Close every connection, as a crash would."""
        with self.lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fault(self, asked: ScriptedRequest) -> BookieFault | None:
        """Record a request; what goes wrong with it."""
        with self.lock:
            self.requests.append(asked)
            for fault in self.faults:
                if fault.times > 0 and fault.matches(asked):
                    fault.times -= 1
                    return fault
        return None

    def track(self, connection: socket.socket, *, closed: bool = False) -> None:
        """Which sockets `hang_up` closes."""
        with self.lock:
            (self._open.discard if closed else self._open.add)(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self.track(connection)
            served = _Served(self, connection)
            self._threads.append(threading.Thread(target=served.run, name="bookie connection"))
            self._threads[-1].start()


class _Served:
    """One connection's thread."""

    def __init__(self, server: BookieServer, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._version = 0
        self._authenticated = server.authentication is None
        self._swapped: bytes = b""

    def run(self) -> None:
        """Answer until either side closes."""
        try:
            with suppress(OSError):  # the other side is gone
                while (body := self._receive()) is not None and self._serve(body):
                    pass
        finally:
            self._server.track(self._socket, closed=True)
            self._socket.close()

    def _receive(self) -> bytes | None:
        head = self._read(4)
        return None if head is None else self._read(int.from_bytes(head))

    def _read(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                return None
            data += more
        return bytes(data)

    def _serve(self, body: bytes) -> bool:
        """False: the connection is over."""
        version = 2 if body[0] == 2 else 3
        if self._version not in (0, version):
            return False  # a bookie resets a connection that carries both
        self._version = version
        if version == 2:
            return self._serve_v2(body)
        try:
            request = pb.Request.FromString(body)
        except DecodeError:
            return False  # as a bookie ends what it cannot read, for example what is left of a cut TLS session
        return self._serve_v3(request)

    def _serve_v2(self, body: bytes) -> bool:
        if int.from_bytes(body[:2]) == 0x0203:
            message = pb.AuthMessage.FromString(body[4:])
            reply = self._authenticate(message)
            if reply is not None:
                self._socket.sendall(frame(v2.header(v2.AUTH).to_bytes(4) + reply.SerializeToString()))
            return reply is not None
        asked = asked_v2(body)
        if not self._authenticated:
            return False
        if asked.operation == "batch" and not self._server.batches:
            return False  # as BookKeeper before 4.17
        return self._answer(asked, lambda status: answer_v2(self._server.bookie, asked, status))

    def _serve_v3(self, request: pb.Request) -> bool:
        operation = request.header.operation
        if operation == v3.START_TLS:
            return self._start_tls(request)
        if operation == v3.AUTH:
            reply = self._authenticate(request.auth)
            response = pb.Response(header=request.header, status=0 if reply else 502, auth=reply)
            self._socket.sendall(frame(response.SerializeToString()))
            return reply is not None
        if not self._authenticated:
            self._socket.sendall(frame(pb.Response(header=request.header, status=502).SerializeToString()))
            return True
        asked = asked_v3(request)
        return self._answer(asked, lambda status: answer_v3(self._server.bookie, request, asked, status))

    def _answer(self, asked: ScriptedRequest, build: Callable[[int | None], bytes]) -> bool:
        fault = self._server.fault(asked)
        if fault is None:
            self._send(self._locked(build, None))
            return True
        if fault.delay is not None:
            time.sleep(fault.delay)
        data = self._locked(build, fault.status)
        if fault.drop:
            return False
        if fault.spoil is not None:
            self._send(fault.spoil(data))
        elif fault.swap:
            self._swapped += frame(data)
        elif fault.status is not None or fault.delay is not None:
            self._send(data)
        return True

    def _locked(self, build: Callable[[int | None], bytes], status: int | None) -> bytes:
        with self._server.lock:
            return build(status)

    def _send(self, body: bytes) -> None:
        swapped, self._swapped = self._swapped, b""
        self._socket.sendall(frame(body) + swapped)

    def _start_tls(self, request: pb.Request) -> bool:
        accepted = self._server.tls is not None
        status = 0 if accepted else 404
        self._socket.sendall(frame(pb.Response(header=request.header, status=status).SerializeToString()))
        if self._server.tls is not None:
            self._server.track(self._socket, closed=True)
            self._socket = self._server.tls.wrap_socket(self._socket, server_side=True)
            self._server.track(self._socket)
        return True

    def _authenticate(self, message: pb.AuthMessage) -> pb.AuthMessage | None:
        """The reply; None: refused."""
        expected = self._server.authentication
        if expected is None:
            return pb.AuthMessage(plugin_name=DISABLED, payload=b"")
        if message.plugin_name != expected.plugin or message.payload not in expected.steps:
            return None
        self._authenticated = message.payload == expected.last
        return pb.AuthMessage(plugin_name=expected.plugin, payload=expected.steps[message.payload])
