"""A node of ours that every look changes: it tells ZooKeeper's time, and it outdates what former looks have led to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offloader.bookkeeper.nodes import CheckNode, Nodes
from offloader.errors import MetadataUnavailableError, NodeRefusal, OperationRefusedError, VersionConflictError
from offloader.lifecycle.deletion.marking import moved_clock

LOST_RACES = 20


@dataclass(frozen=True, slots=True)
class LookRound:
    """`now_ms`: by ZooKeeper's clock. `check`: in a transaction, that no later look has begun, here or anywhere."""

    now_ms: int
    check: CheckNode


def begin_look(nodes: Nodes, path: str) -> LookRound:
    """Before anything else is read. What was decided by former looks, and is still on its way, deletes nothing any
    more: also not what a process sends that was paused for days. Raises MetadataUnavailableError, OutcomeUnknownError,
    AccessDeniedError."""
    for _ in range(LOST_RACES):
        node = nodes.get(path, latest=True)
        if node is None:
            _create(nodes, path)
            continue
        try:
            written = nodes.set(path, b"", node.version)
        except VersionConflictError:  # another look began: ours comes after it
            continue
        found = nodes.get(path, latest=True) if written is not None else None
        if found is not None and found.version == written:
            return LookRound(found.modified_ms, CheckNode(path, found.version))
    raise MetadataUnavailableError(f"{path}: other processes change it all the time")


def zookeeper_clock(nodes: Nodes, path: str, ours: Callable[[], int]) -> Callable[[], int]:
    """Ours, put to ZooKeeper's time. It begins a look: what another process has decided to delete waits for its next
    try. Raises as `begin_look`."""
    return moved_clock(ours, begin_look(nodes, path).now_ms)


def _create(nodes: Nodes, path: str) -> None:
    try:
        nodes.create(path, parents=True)
    except OperationRefusedError as error:
        if error.refusal is not NodeRefusal.NODE_EXISTS:
            raise
