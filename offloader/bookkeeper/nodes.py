"""A tree of nodes with values and versions: as much of ZooKeeper as a client of BookKeeper needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from offloader.errors import NodeRefusal, OperationRefusedError

AHEAD = 64  # requests in flight, where many nodes are read

Fired = Callable[[], None]
"""Called once, from another thread, when what was read with it may have changed. Must not block."""


class AclEntry(NamedTuple):
    """Who may do what with a node. `permissions`: read 1, write 2, create 4, delete 8, administer 16, added up."""

    permissions: int
    scheme: str
    identity: str


Acl = tuple[AclEntry, ...]
ANYONE: Acl = (AclEntry(31, "world", "anyone"),)


class Node(NamedTuple):
    """A node's value. `version` grows with each change; the times are of the service's clock.

    `born`: the number of the transaction that created it. A node that was deleted and created again has its versions
    from 0 on once more, and another `born`. `acl`: None where it was not asked for.
    """

    value: bytes
    version: int
    created_ms: int
    modified_ms: int
    born: int
    acl: Acl | None = None


@dataclass(frozen=True, slots=True)
class CheckNode:
    """The node has this version. Raises ValueError for a version that stands for any: so do those below."""

    path: str
    version: int

    def __post_init__(self) -> None:
        _check_version(self.path, self.version)


@dataclass(frozen=True, slots=True)
class SetNode:
    """The node has this version and gets another value."""

    path: str
    value: bytes
    version: int

    def __post_init__(self) -> None:
        _check_version(self.path, self.version)


@dataclass(frozen=True, slots=True)
class CreateNode:
    """There is no such node, and now there is. `acl` None: that of the session, anyone's where it has none."""

    path: str
    value: bytes = b""
    acl: Acl | None = None


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """The node has this version and no children, and goes."""

    path: str
    version: int

    def __post_init__(self) -> None:
        _check_version(self.path, self.version)


NodeOperation = CheckNode | SetNode | CreateNode | DeleteNode


class Nodes(Protocol):
    """Thread safe. All calls raise MetadataUnavailableError where the service does not answer in time, and
    AccessDeniedError."""

    def get(
        self, path: str, fired: Fired | None = None, *, latest: bool = False, with_acl: bool = False
    ) -> Node | None:
        """None: there is no such node, and nothing is watched. `latest`: as new as the call, from whichever server;
        otherwise it may be a little old.

        An ACL's digests are hidden from a session that may not administer the node.
        """
        ...

    def children(self, path: str, fired: Fired | None = None) -> list[str] | None:
        """The names of a node's children. None: there is no such node, and nothing is watched."""
        ...

    def get_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, Node | None]]:
        """What `get` finds, in the order of the paths, of which at most `ahead` are asked for or wait to be taken."""
        ...

    def children_of_each(self, paths: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, list[str] | None]]:
        """The same for `children`."""
        ...

    def sync(self, path: str) -> None:
        """Whatever was written before, by anyone, shows in what is read after, whichever server is asked."""
        ...

    def set(self, path: str, value: bytes, version: int) -> int | None:
        """Compare-and-set: the new version, None where there is no such node. Raises VersionConflictError,
        OutcomeUnknownError."""
        ...

    def create(self, path: str, value: bytes = b"", acl: Acl | None = None, *, parents: bool = False) -> None:
        """`parents`: with those that are missing, empty and with the same ACL; they may stay where an error is raised.

        Raises OperationRefusedError (NODE_EXISTS; NO_NODE for a missing parent), OutcomeUnknownError.
        """
        ...

    def delete(self, path: str, version: int) -> None:
        """Raises OperationRefusedError (NO_NODE, BAD_VERSION, NOT_EMPTY), OutcomeUnknownError."""
        ...

    def multi(self, operations: Sequence[NodeOperation]) -> None:
        """One transaction: all in this order, each on what those before it leave, or nothing.

        Raises OperationRefusedError, which names the first one that cannot be done; OutcomeUnknownError.
        """
        ...

    def close(self) -> None:
        """End the session."""
        ...


def create_with_parents(create: Callable[[str, bytes], None], path: str, value: bytes) -> None:
    """For `Nodes.create`: `create` is the same without parents."""
    parent = path.rpartition("/")[0]
    while True:
        try:
            return create(path, value)
        except OperationRefusedError as error:
            if error.refusal is not NodeRefusal.NO_NODE or not parent:
                raise
        try:
            create_with_parents(create, parent, b"")
        except OperationRefusedError as parents:
            if parents.refusal is not NodeRefusal.NODE_EXISTS:  # somebody else was first
                raise


def refused(operation: NodeOperation, index: int, refusal: NodeRefusal) -> OperationRefusedError:
    """What `multi` raises for one of its operations."""
    return OperationRefusedError(f"{operation.path}: {_said(operation, refusal)}", index, refusal)


def _said(operation: NodeOperation, refusal: NodeRefusal) -> str:
    if refusal is NodeRefusal.NODE_EXISTS:
        return "there is such a node already"
    if refusal is NodeRefusal.NOT_EMPTY:
        return "it has nodes below it"
    if refusal is NodeRefusal.NO_NODE:
        return "there is no node above it" if isinstance(operation, CreateNode) else "there is no such node any more"
    version = "" if isinstance(operation, CreateNode) else f" after version {operation.version}"
    return f"somebody else changed it{version}"


def _check_version(path: str, version: int) -> None:
    if version < 0:
        raise ValueError(f"{path}: {version} is no node's version")
