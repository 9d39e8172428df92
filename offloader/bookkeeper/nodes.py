"""A tree of nodes with values and versions: as much of ZooKeeper as a client of BookKeeper needs."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Generic, NamedTuple, Protocol, TypeVar

_Value = TypeVar("_Value")

Fired = Callable[[], None]
"""Called once, from another thread, when what was read with it may have changed. Must not block."""


class Node(NamedTuple):
    """A node's value. `version` grows with each change; the times are of the service's clock."""

    value: bytes
    version: int
    created_ms: int
    modified_ms: int


class Nodes(Protocol):
    """Thread safe. All calls raise MetadataUnavailableError where the service does not answer in time."""

    def get(self, path: str, fired: Fired | None = None, *, latest: bool = False) -> Node | None:
        """None: there is no such node, and nothing is watched. `latest`: as new as the call, from whichever server;
        otherwise it may be a little old."""
        ...

    def children(self, path: str, fired: Fired | None = None) -> list[str] | None:
        """The names of a node's children. None: there is no such node, and nothing is watched."""
        ...

    def set(self, path: str, value: bytes, version: int) -> int | None:
        """Compare-and-set: the new version, None where there is no such node. Raises VersionConflictError,
        OutcomeUnknownError."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class Watched(Generic[_Value]):
    """What `read` found, until what was given to it is called. Safe to use from several threads."""

    def __init__(self, read: Callable[[Fired], _Value]) -> None:
        self._read = read
        self._seen: tuple[_Value, Event] | None = None

    def get(self) -> _Value:
        """Raises what `read` raises; then the next call reads again."""
        seen = self._seen
        if seen is None or seen[1].is_set():
            expired = Event()
            self._seen = seen = self._read(expired.set), expired  # may have expired already
        return seen[0]
