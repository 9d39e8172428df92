"""A ZooKeeper on loopback, as far as our client speaks to it, over nodes in memory; it can lose answers, hang, and
forget sessions."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from enum import Enum, auto
from struct import Struct
from types import TracebackType
from typing import Self

from offloader.bookkeeper.nodes import Node
from offloader.errors import VersionConflictError
from offloader.testing.ledger_metadata import MemoryNodes

GET, SET, CHILDREN, SYNC = 4, 5, 8, 9
_PING, _CLOSE = 11, -11
_NO_NODE, _NO_AUTH, _BAD_VERSION = -101, -102, -103
_DELETED, _CHANGED, _CHILD = 2, 3, 4
_EVENT_XID = -1

_INT = Struct(">i")
_CONNECT = Struct(">iqiq")  # protocol version, last zxid, time-out, session
_CONNECTED = Struct(">iiq")  # protocol version, time-out, session
_REQUEST = Struct(">ii")  # number, kind
_REPLY = Struct(">iqi")  # number, zxid, error
_EVENT = Struct(">ii")  # type, state
_STAT = Struct(">qqqqiiiqiiq")


class Fault(Enum):
    """What becomes of one request."""

    LOST_BEFORE = auto()  # the connection ends, nothing was done
    LOST_AFTER = auto()  # it is done, the connection ends
    REFUSED = auto()  # no permission


class ZooKeeperServer:
    """Serves `nodes` from entering the context to leaving it. The port stays the same over `stop` and `start`."""

    def __init__(self, nodes: MemoryNodes, *, session_seconds: float = 10.0) -> None:
        self.nodes = nodes
        self.requests: list[int] = []
        self._session_ms = int(session_seconds * 1000)
        self._faults: defaultdict[int, deque[Fault]] = defaultdict(deque)
        self._sessions = itertools.count(1)
        self._known: set[int] = set()
        self._answering = threading.Event()
        self._answering.set()
        self._listener: socket.socket | None = None
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        self.stop()

    def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,))
        self._accepting.start()

    def stop(self) -> None:
        """End every connection and take no new ones."""
        if self._listener is None:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self._listener = None
        self.drop()

    def drop(self) -> None:
        """End every connection; new ones are taken."""
        with self._lock:
            threads = dict(self._connections)
        for connection, thread in threads.items():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def hang(self) -> None:
        """Take requests and answer none."""
        self._answering.clear()

    def resume(self) -> None:
        self._answering.set()

    def expire_sessions(self) -> None:
        """Whoever comes back is told that its session is no more."""
        self._known.clear()
        self.drop()

    def fail(self, kind: int, *faults: Fault) -> None:
        """What becomes of the next requests of a kind."""
        self._faults[kind].extend(faults)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            with self._lock:
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                _Connection(self, connection).run(_frames(stream))
        except OSError:
            pass  # the client has gone
        finally:
            with self._lock:
                del self._connections[connection]

    def session(self, asked: int) -> int:
        """The session that is begun or gone on with; 0: it is no more."""
        if asked and asked not in self._known:
            return 0
        session = asked or next(self._sessions)
        self._known.add(session)
        return session

    def fault(self, kind: int) -> Fault | None:
        self.requests.append(kind)
        faults = self._faults[kind]
        return faults.popleft() if faults else None

    def await_answering(self) -> None:
        self._answering.wait()

    @property
    def session_ms(self) -> int:
        return self._session_ms


class _Connection:
    def __init__(self, server: ZooKeeperServer, connection: socket.socket) -> None:
        self._server = server
        self._nodes = server.nodes
        self._connection = connection
        self._sending = threading.Lock()

    def run(self, frames: Iterator[bytes]) -> None:
        for number, frame in enumerate(frames):
            self._server.await_answering()
            if number == 0:
                self._greet(frame)
            elif not self._answer(frame):
                return

    def _greet(self, frame: bytes) -> None:
        _, _, timeout, asked = _CONNECT.unpack_from(frame)
        session = self._server.session(asked)
        timeout = min(timeout, self._server.session_ms) if session else 0
        self._send(_CONNECTED.pack(0, timeout, session) + _buffer(bytes(16)) + b"\0")

    def _answer(self, frame: bytes) -> bool:
        """Whether the connection goes on."""
        number, kind = _REQUEST.unpack_from(frame)
        fault = self._server.fault(kind)
        if fault is Fault.LOST_BEFORE:
            return False
        error, body = (_NO_AUTH, b"") if fault is Fault.REFUSED else self._do(kind, frame[_REQUEST.size :])
        if fault is Fault.LOST_AFTER:
            return False
        self._send(_REPLY.pack(number, 1, error) + body)
        return kind != _CLOSE

    def _do(self, kind: int, body: bytes) -> tuple[int, bytes]:
        if kind in (_PING, _CLOSE):
            return 0, b""
        path, rest = _string(body)
        if kind == SYNC:
            return 0, _buffer(path.encode())
        if kind == SET:
            return self._set(path, rest)
        if kind == CHILDREN:
            names = self._nodes.children(path, (lambda: self._notify(_CHILD, path)) if rest[0] else None)
            if names is None:
                return _NO_NODE, b""
            return 0, _INT.pack(len(names)) + b"".join(_buffer(name.encode()) for name in names)
        assert kind == GET, kind
        node = self._nodes.get(path, (lambda: self._notify_of_value(path)) if rest[0] else None)
        return (_NO_NODE, b"") if node is None else (0, _buffer(node.value) + _stat(node))

    def _set(self, path: str, rest: bytes) -> tuple[int, bytes]:
        length = _INT.unpack_from(rest)[0]
        value, version = rest[4 : 4 + length], _INT.unpack_from(rest, 4 + length)[0]
        try:
            if self._nodes.set(path, value, version) is None:
                return _NO_NODE, b""
        except VersionConflictError:
            return _BAD_VERSION, b""
        node = self._nodes.get(path)
        assert node is not None
        return 0, _stat(node)

    def _notify_of_value(self, path: str) -> None:
        self._notify(_DELETED if self._nodes.get(path) is None else _CHANGED, path)

    def _notify(self, kind: int, path: str) -> None:
        with contextlib.suppress(OSError):  # a watch of a connection that has ended
            self._send(_REPLY.pack(_EVENT_XID, -1, 0) + _EVENT.pack(kind, 3) + _buffer(path.encode()))

    def _send(self, body: bytes) -> None:
        with self._sending:
            self._connection.sendall(_buffer(body))


def _frames(stream: object) -> Iterator[bytes]:
    while len(head := stream.read(_INT.size)) == _INT.size:
        yield stream.read(_INT.unpack(head)[0])


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _string(data: bytes) -> tuple[str, bytes]:
    end = 4 + _INT.unpack_from(data)[0]
    return data[4:end].decode(), data[end:]


def _stat(node: Node) -> bytes:
    return _STAT.pack(1, 1, node.created_ms, node.modified_ms, node.version, 0, 0, 0, len(node.value), 0, 1)
