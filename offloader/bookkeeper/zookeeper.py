"""ZooKeeper as a tree of nodes, through kazoo."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import (
    AHEAD,
    Acl,
    AclEntry,
    CheckNode,
    CreateNode,
    DeleteNode,
    Fired,
    Node,
    NodeOperation,
    SetNode,
    create_with_parents,
    refused,
)
from offloader.bookkeeper.uri import MetadataUri, parse_uri
from offloader.errors import (
    AccessDeniedError,
    FatalError,
    MetadataUnavailableError,
    NodeRefusal,
    OutcomeUnknownError,
    VersionConflictError,
)

try:
    from kazoo import exceptions
    from kazoo.client import KazooClient, TransactionRequest
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.interfaces import IAsyncResult
    from kazoo.protocol.states import KazooState, ZnodeStat
    from kazoo.security import ACL, Id
except ImportError as error:
    raise FatalError("reading ZooKeeper needs kazoo: pip install 'pulsar-streaming-offloader[bookkeeper]'") from error

TIMEOUT = 10.0  # seconds

_RECONNECTING = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
_REFUSED = (exceptions.NoAuthError, exceptions.AuthFailedError)
_LOST = (
    exceptions.ConnectionLoss,
    exceptions.ConnectionClosedError,
    exceptions.SessionExpiredError,
    exceptions.SessionMovedError,
)
_FAILED = (exceptions.KazooException, KazooTimeoutError)
_REFUSALS = {
    exceptions.BadVersionError: NodeRefusal.BAD_VERSION,
    exceptions.NoNodeError: NodeRefusal.NO_NODE,
    exceptions.NodeExistsError: NodeRefusal.NODE_EXISTS,
    exceptions.NotEmptyError: NodeRefusal.NOT_EMPTY,
}
# Of operations beside the one that was refused: before it, and behind it.
_UNDONE = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)

log = logging.getLogger(__name__)


def connect(
    uri: str | MetadataUri, *, timeout: float = TIMEOUT, options: Mapping[str, Any] | None = None
) -> MetadataTree:
    """The metadata of the cluster that a URI names. `options`: more of KazooClient's (use_ssl, auth_data …).

    `timeout`: seconds that a call may take. Raises ConfigError, MetadataUnavailableError.
    """
    parsed = parse_uri(uri) if isinstance(uri, str) else uri
    return MetadataTree(ZooKeeper(parsed.hosts, timeout=timeout, options=options), parsed)


class ZooKeeper:
    """The `Nodes` of a ZooKeeper. A session that expires is begun anew."""

    def __init__(
        self, hosts: tuple[str, ...], *, timeout: float = TIMEOUT, options: Mapping[str, Any] | None = None
    ) -> None:
        self._name = ",".join(hosts)
        self._timeout = timeout
        self._changed = threading.Condition()
        self._lost = self._closing = False
        self._client = KazooClient(
            self._name,
            # the session's: a call outlasts a server that hangs where there is another
            timeout=timeout / min(len(hosts), 2),
            connection_retry=dict(_RECONNECTING),
            logger=_Quiet(log, {}),
            **(options or {}),
        )
        self._client.add_listener(self._note)
        try:
            self._client.start(timeout)
        except KazooTimeoutError as error:
            raise self._unavailable() from error

    def get(
        self, path: str, fired: Fired | None = None, *, latest: bool = False, with_acl: bool = False
    ) -> Node | None:
        while True:
            found = self._ask(path, lambda: self._client.get_async(path, _watch(fired)), latest=latest)
            node = None if found is None else _node(*found)
            if node is None or not with_acl:
                return node
            asked = self._ask(path, lambda: self._client.get_acls_async(path))
            if asked is not None and asked[1].czxid == node.born:  # otherwise it went meanwhile
                return node._replace(acl=tuple(AclEntry(one.perms, *one.id) for one in asked[0]))

    def children(self, path: str, fired: Fired | None = None) -> list[str] | None:
        found: list[str] | None = self._ask(path, lambda: self._client.get_children_async(path, _watch(fired)))
        return found

    def get_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, Node | None]]:
        for path, found in self._ask_each(paths, self._client.get_async, ahead):
            yield path, None if found is None else _node(*found)

    def children_of_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, list[str] | None]]:
        return self._ask_each(paths, self._client.get_children_async, ahead)

    def sync(self, path: str) -> None:
        self._ask(path, lambda: self._client.sync_async(path))

    def set(self, path: str, value: bytes, version: int) -> int | None:
        try:
            stat = self._write(path, lambda: self._client.set_async(path, value, version))
        except exceptions.NoNodeError:
            return None
        except exceptions.BadVersionError as error:
            raise VersionConflictError(f"{path}: somebody else changed it after version {version}") from error
        written: int = stat.version
        return written

    def create(self, path: str, value: bytes = b"", acl: Acl | None = None, *, parents: bool = False) -> None:
        def one(path: str, value: bytes) -> None:
            self.multi([CreateNode(path, value, acl)])

        if parents:
            create_with_parents(one, path, value)
        else:
            one(path, value)

    def delete(self, path: str, version: int) -> None:
        self.multi([DeleteNode(path, version)])

    def multi(self, operations: Sequence[NodeOperation]) -> None:
        if not operations:
            return
        transaction = self._client.transaction()
        for operation in operations:
            _add(transaction, operation)
        results = self._write(operations[-1].path, transaction.commit_async)
        failures = [(index, one) for index, one in enumerate(results) if isinstance(one, exceptions.KazooException)]
        if failures:
            index, failure = next((one for one in failures if not isinstance(one[1], _UNDONE)), failures[0])
            raise self._failure(operations[index], index, failure)

    def close(self) -> None:
        """Takes a moment; where the server hangs, up to the session's time-out."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._client.stop()
        self._client.close()

    def _ask(
        self,
        path: str,
        begin: Callable[[], IAsyncResult],
        *,
        latest: bool = False,
        begun: IAsyncResult | None = None,
    ) -> Any:
        """What a read finds, None where there is no such node. It is repeated where the connection is lost.

        `begun`: it is on its way already.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            self._await_connection(deadline)
            try:
                synced = self._client.sync_async(path) if latest else None
                found, begun = begun or begin(), None  # both are on their way: the server answers in order
                if synced is not None:
                    synced.get(timeout=_left(deadline))
                return found.get(timeout=_left(deadline))
            except exceptions.NoNodeError:
                return None
            except _REFUSED as error:
                raise self._refused(path) from error
            except _LOST:
                continue
            except _FAILED as error:
                raise self._unavailable(error) from error

    def _ask_each(
        self, paths: Iterable[str], begin: Callable[[str], IAsyncResult], ahead: int
    ) -> Iterator[tuple[str, Any]]:
        left = iter(paths)
        begun: deque[tuple[str, IAsyncResult]] = deque()
        while True:
            while len(begun) < ahead and (path := next(left, None)) is not None:
                begun.append((path, begin(path)))
            if not begun:
                return
            path, first = begun.popleft()
            yield path, self._ask(path, partial(begin, path), begun=first)

    def _write(self, path: str, begin: Callable[[], IAsyncResult]) -> Any:
        """Its answer. It is begun once. Raises what `_REFUSALS` has as it is."""
        deadline = time.monotonic() + self._timeout
        self._await_connection(deadline)
        try:
            return begin().get(timeout=_left(deadline))
        except tuple(_REFUSALS):
            raise
        except _REFUSED as error:
            raise self._refused(path) from error
        except _FAILED as error:
            raise OutcomeUnknownError(
                f"{path}: the answer of ZooKeeper at {self._name} to a write was lost ({_text(error)})"
            ) from error

    def _await_connection(self, deadline: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._client.connected or self._closing, _left(deadline))
            if self._closing:
                raise MetadataUnavailableError(f"the session with ZooKeeper at {self._name} is closed")
            if not self._client.connected:
                raise self._unavailable()

    def _note(self, state: str) -> None:
        with self._changed:
            if state == KazooState.SUSPENDED and not self._closing:
                self._lost = True
                log.warning("the connection to ZooKeeper at %s was lost", self._name, extra={"see": "zookeeper-lost"})
            elif state == KazooState.CONNECTED and self._lost:
                self._lost = False
                log.info("ZooKeeper at %s answers again", self._name)
            self._changed.notify_all()

    def _unavailable(self, error: Exception | None = None) -> MetadataUnavailableError:
        reason = f" ({_text(error)})" if isinstance(error, exceptions.KazooException) else ""
        return MetadataUnavailableError(f"ZooKeeper at {self._name} did not answer within {self._timeout:g} s{reason}")

    def _failure(self, operation: NodeOperation, index: int, failure: Exception) -> Exception:
        if isinstance(failure, _REFUSED):
            return self._refused(operation.path)
        refusal = _REFUSALS.get(type(failure))
        if refusal is None:
            return FatalError(f"ZooKeeper at {self._name} refuses to change {operation.path} ({_text(failure)})")
        return refused(operation, index, refusal)

    def _refused(self, path: str) -> AccessDeniedError:
        return AccessDeniedError(f"ZooKeeper at {self._name} refuses access to {path}")


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """kazoo warns of each attempt to connect; the session itself logs what matters."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(level if level >= logging.ERROR else logging.DEBUG, msg, *args, **kwargs)


def _node(value: bytes | None, stat: ZnodeStat) -> Node:
    return Node(value or b"", stat.version, stat.ctime, stat.mtime, stat.czxid)


def _add(transaction: TransactionRequest, operation: NodeOperation) -> None:
    match operation:
        case CheckNode(path, version):
            transaction.check(path, version)
        case SetNode(path, value, version):
            transaction.set_data(path, value, version)
        case CreateNode(path, value, acl):
            transaction.create(path, value, None if acl is None else [_kazoo_acl(one) for one in acl])
        case DeleteNode(path, version):
            transaction.delete(path, version)


def _kazoo_acl(entry: AclEntry) -> ACL:
    return ACL(entry.permissions, Id(entry.scheme, entry.identity))


def _watch(fired: Fired | None) -> Callable[[object], None] | None:
    return None if fired is None else lambda _: fired()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
