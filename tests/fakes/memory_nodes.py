"""A tree of nodes in memory, with transactions, watches, and answers that get lost."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from offloader.bookkeeper.nodes import (
    Acl,
    AclEntry,
    CheckNode,
    CreateNode,
    DeleteNode,
    Node,
    NodeOperation,
    SetNode,
    create_with_parents,
    refused,
)
from offloader.errors import (
    MetadataUnavailableError,
    NodeRefusal,
    OperationRefusedError,
    OutcomeUnknownError,
    VersionConflictError,
)

ANYONE = (AclEntry(31, "world", "anyone"),)

AHEAD = 64


class MemoryNodes:
    """`Nodes` in memory. Watches fire in the thread that changes something. `clock`: seconds.

    `gone`: no call is answered. `lost_requests`: so many of the next writes are not made, and nobody says so.
    `lost_answers`: so many of the next ones are made, and their answers lost. `before_write`: called before a write.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.gone = False
        self.lost_requests = 0
        self.lost_answers = 0
        self.before_write: Callable[[], None] = lambda: None
        self._clock = clock
        self._lock = threading.RLock()
        self._nodes: dict[str, Node] = {}
        self._below: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._watches: defaultdict[_What, list[Callable[[], None]]] = defaultdict(list)
        self._transactions = 0

    def get(
        self,
        path: str,
        fired: Callable[[], None] | None = None,
        *,
        latest: bool = False,
        with_acl: bool = False,
    ) -> Node | None:
        with self._lock:
            self._check()
            node = self._nodes.get(path)
            if node is not None and fired is not None:
                self._watches[_What(path)].append(fired)
            return node if node is None or with_acl else node._replace(acl=None)

    def children(self, path: str, fired: Callable[[], None] | None = None) -> list[str] | None:
        with self._lock:
            self._check()
            if path not in self._nodes:
                return None
            if fired is not None:
                self._watches[_What(path, of_children=True)].append(fired)
            return list(self._below[path])

    def get_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, Node | None]]:
        return ((path, self.get(path)) for path in paths)

    def children_of_each(
        self,
        paths: Iterable[str],
        ahead: int = AHEAD,
    ) -> Iterator[tuple[str, list[str] | None]]:
        return ((path, self.children(path)) for path in paths)

    def sync(self, path: str) -> None:
        self._check()

    def set(self, path: str, value: bytes, version: int) -> int | None:
        try:
            self.multi([SetNode(path, value, version)])
        except OperationRefusedError as error:
            if error.refusal is NodeRefusal.NO_NODE:
                return None
            raise VersionConflictError(str(error)) from error
        return version + 1

    def create(self, path: str, value: bytes = b"", acl: Acl | None = None, *, parents: bool = False) -> None:
        def one(path: str, value: bytes) -> None:
            self.multi([CreateNode(path, value, acl)])

        if parents:
            create_with_parents(one, path, value)
        else:
            one(path, value)

    def delete(self, path: str, version: int | None = None) -> None:
        """`version` None: whichever it has."""
        with self._lock:
            node = self._nodes.get(path)
            present = 0 if node is None else node.version
        self.multi([DeleteNode(path, present if version is None else version)])

    def multi(self, operations: Sequence[NodeOperation]) -> None:
        self.before_write()
        with self._lock:
            self._check()
            if self.lost_requests > 0:
                self.lost_requests -= 1
                raise OutcomeUnknownError("a write was lost")
            self._do_all(operations)
            lost, self.lost_answers = self.lost_answers > 0, max(self.lost_answers - 1, 0)
        self._fire(*(what for one in operations for what in _changed(one)))
        if lost:
            raise OutcomeUnknownError("the answer to a write was lost")

    def close(self) -> None:
        """Nothing is kept open."""

    def put(self, path: str, value: bytes) -> None:
        """Create a node, and those above it, or change its value. Nothing is lost on the way."""
        parent = path.rpartition("/")[0]
        if parent and parent not in self._nodes:
            self.put(parent, b"")
        with self._lock:
            node = self._nodes.get(path)
            done: NodeOperation = CreateNode(path, value) if node is None else SetNode(path, value, node.version)
            self._do_all([done])
        self._fire(*_changed(done))

    def _do_all(self, operations: Sequence[NodeOperation]) -> None:
        before: dict[str, Node | None] = {}
        self._transactions += 1
        for index, operation in enumerate(operations):
            refusal = self._refusal(operation)
            if refusal is not None:
                for path, node in reversed(before.items()):
                    self._put(path, node)
                raise refused(operation, index, refusal)
            before.setdefault(operation.path, self._nodes.get(operation.path))
            self._do(operation)

    def _refusal(self, operation: NodeOperation) -> NodeRefusal | None:
        node = self._nodes.get(operation.path)
        if isinstance(operation, CreateNode):
            if node is not None:
                return NodeRefusal.NODE_EXISTS
            parent = operation.path.rpartition("/")[0]
            return NodeRefusal.NO_NODE if parent and parent not in self._nodes else None
        if node is None:
            return NodeRefusal.NO_NODE
        if node.version != operation.version:
            return NodeRefusal.BAD_VERSION
        if isinstance(operation, DeleteNode) and self._below[operation.path]:
            return NodeRefusal.NOT_EMPTY
        return None

    def _do(self, operation: NodeOperation) -> None:
        now, path = int(self._clock() * 1000), operation.path
        match operation:
            case CreateNode():
                acl = ANYONE if operation.acl is None else operation.acl
                self._put(path, Node(operation.value, 0, now, now, self._transactions, acl))
            case SetNode():
                node = self._nodes[path]
                self._put(path, node._replace(value=operation.value, version=node.version + 1, modified_ms=now))
            case DeleteNode():
                self._put(path, None)
            case CheckNode():
                pass

    def _put(self, path: str, node: Node | None) -> None:
        parent, _, name = path.rpartition("/")
        if node is None:
            self._nodes.pop(path, None)
            self._below[parent].pop(name, None)
        else:
            self._nodes[path] = node
            self._below[parent][name] = None

    def _check(self) -> None:
        if self.gone:
            raise MetadataUnavailableError("the metadata service in memory does not answer")

    def _fire(self, *changed: _What) -> None:
        with self._lock:
            fired = [one for what in changed for one in self._watches.pop(what, ())]
        for one in fired:
            one()


class _What(NamedTuple):
    """What is watched: a node's value, or its children."""

    path: str
    of_children: bool = False


def _changed(operation: NodeOperation) -> tuple[_What, ...]:
    above = _What(operation.path.rpartition("/")[0], of_children=True)
    match operation:
        case CreateNode():
            return (above,)
        case SetNode():
            return (_What(operation.path),)
        case DeleteNode():
            return _What(operation.path), _What(operation.path, of_children=True), above
        case CheckNode():
            return ()
