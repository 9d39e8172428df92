"""A ZooKeeper on loopback, as far as our client speaks to it, over nodes in memory; it can lose answers, hang, and
forget sessions."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from struct import Struct
from types import TracebackType
from typing import BinaryIO, Self

from offloader.bookkeeper.nodes import (
    AclEntry,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    NodeOperation,
    SetNode,
)
from offloader.errors import NodeRefusal, OperationRefusedError, VersionConflictError
from tests.fakes.memory_nodes import MemoryNodes

GET, SET, GET_ACL, CHILDREN, SYNC, MULTI = 4, 5, 6, 8, 9, 14
_CREATE, _DELETE, _CHECK, _ERROR = 1, 2, 13, -1
_PING, _CLOSE = 11, -11
_NO_NODE, _NO_AUTH, _BAD_VERSION = -101, -102, -103
_ROLLED_BACK, _INCONSISTENT = 0, -2
_CODES = {
    NodeRefusal.BAD_VERSION: _BAD_VERSION,
    NodeRefusal.NO_NODE: _NO_NODE,
    NodeRefusal.NODE_EXISTS: -110,
    NodeRefusal.NOT_EMPTY: -111,
}
_DELETED, _CHANGED, _CHILD = 2, 3, 4
_EVENT_XID = -1

_INT = Struct(">i")
_CONNECT = Struct(">iqiq")  # protocol version, last zxid, time-out, session
_CONNECTED = Struct(">iiq")  # protocol version, time-out, session
_REQUEST = Struct(">ii")  # number, kind
_REPLY = Struct(">iqi")  # number, zxid, error
_EVENT = Struct(">ii")  # type, state
_STAT = Struct(">qqqqiiiqiiq")
_OPERATION = Struct(">i?i")  # kind, whether it is the end, error


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
        self.before: dict[int, Callable[[], object]] = {}  # called once, before the next request of a kind
        self._held: dict[int, int] = {}
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

    def hold(self, kind: int, count: int) -> None:
        """Answer the next requests of a kind, on one connection, only when so many of them are there."""
        self._held[kind] = count

    def held(self, kind: int) -> int:
        return self._held.pop(kind, 0)

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
                continue
            kind = _REQUEST.unpack_from(frame)[1]
            awaited = [frame, *itertools.islice(frames, max(self._server.held(kind) - 1, 0))]
            self._server.requests += [_REQUEST.unpack_from(one)[1] for one in awaited]  # before any of them is answered
            if not all(self._answer(one) for one in awaited):
                return

    def _greet(self, frame: bytes) -> None:
        _, _, timeout, asked = _CONNECT.unpack_from(frame)
        session = self._server.session(asked)
        timeout = min(timeout, self._server.session_ms) if session else 0
        self._send(_CONNECTED.pack(0, timeout, session) + _buffer(bytes(16)) + b"\0")

    def _answer(self, frame: bytes) -> bool:
        """Whether the connection goes on."""
        number, kind = _REQUEST.unpack_from(frame)
        self._server.before.pop(kind, lambda: None)()
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
        if kind == MULTI:
            return 0, self._multi(list(_operations(body)))
        path, rest = _string(body)
        if kind == SYNC:
            return 0, _buffer(path.encode())
        if kind == GET_ACL:
            return self._get_acl(path)
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

    def _get_acl(self, path: str) -> tuple[int, bytes]:
        node = self._nodes.get(path, with_acl=True)
        if node is None or node.acl is None:
            return _NO_NODE, b""
        entries = [
            _INT.pack(one.permissions) + _buffer(one.scheme.encode()) + _buffer(one.identity.encode())
            for one in node.acl
        ]
        return 0, _INT.pack(len(entries)) + b"".join(entries) + _stat(node)

    def _multi(self, operations: list[NodeOperation]) -> bytes:
        try:
            self._nodes.multi(operations)
        except OperationRefusedError as error:
            at, code = error.operation, _CODES[error.refusal]
            codes = [*[_ROLLED_BACK] * at, code, *[_INCONSISTENT] * (len(operations) - at - 1)]
            results = [_OPERATION.pack(_ERROR, False, one) + _INT.pack(one) for one in codes]
        else:
            results = [self._result(one) for one in operations]
        return b"".join(results) + _OPERATION.pack(-1, True, -1)

    def _result(self, operation: NodeOperation) -> bytes:
        match operation:
            case CreateNode(path):
                return _OPERATION.pack(_CREATE, False, 0) + _buffer(path.encode())
            case DeleteNode():
                return _OPERATION.pack(_DELETE, False, 0)
            case CheckNode():
                return _OPERATION.pack(_CHECK, False, 0)
            case SetNode(path, value, version):
                return _OPERATION.pack(SET, False, 0) + _stat(Node(value, version + 1, 0, 0, 1))

    def _notify_of_value(self, path: str) -> None:
        self._notify(_DELETED if self._nodes.get(path) is None else _CHANGED, path)

    def _notify(self, kind: int, path: str) -> None:
        with contextlib.suppress(OSError):  # a watch of a connection that has ended
            self._send(_REPLY.pack(_EVENT_XID, -1, 0) + _EVENT.pack(kind, 3) + _buffer(path.encode()))

    def _send(self, body: bytes) -> None:
        with self._sending:
            self._connection.sendall(_buffer(body))


def _frames(stream: BinaryIO) -> Iterator[bytes]:
    while len(head := stream.read(_INT.size)) == _INT.size:
        yield stream.read(_INT.unpack(head)[0])


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _string(data: bytes) -> tuple[str, bytes]:
    end = 4 + _INT.unpack_from(data)[0]
    return data[4:end].decode(), data[end:]


def _operations(body: bytes) -> Iterator[NodeOperation]:
    while True:
        kind, end, _ = _OPERATION.unpack_from(body)
        if end:
            return
        path, body = _string(body[_OPERATION.size :])
        value, acl = b"", []
        if kind in (_CREATE, SET):
            length = _INT.unpack_from(body)[0]
            value, body = body[4 : 4 + length], body[4 + length :]
        if kind == _CREATE:
            count, body = _INT.unpack_from(body)[0], body[4:]
            for _ in range(count):
                permissions = _INT.unpack_from(body)[0]
                scheme, body = _string(body[4:])
                identity, body = _string(body)
                acl.append(AclEntry(permissions, scheme, identity))
        number, body = _INT.unpack_from(body)[0], body[4:]  # the version; of a creation its flags
        match kind:
            case 1:
                yield CreateNode(path, value, tuple(acl))
            case 2:
                yield DeleteNode(path, number)
            case 5:
                yield SetNode(path, value, number)
            case 13:
                yield CheckNode(path, number)


def _stat(node: Node) -> bytes:
    return _STAT.pack(node.born, 1, node.created_ms, node.modified_ms, node.version, 0, 0, 0, len(node.value), 0, 1)
