"""Deleting a ledger's node under guard, and finding out what became of it where the answer is lost.

A node of ours that every look changes tells ZooKeeper's time, and outdates what former looks have led to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.nodes import CheckNode, NodeOperation, Nodes
from offloader.errors import (
    AccessDeniedError,
    MetadataUnavailableError,
    NodeRefusal,
    OperationRefusedError,
    OutcomeUnknownError,
    VersionConflictError,
)
from offloader.lifecycle.deletion.guard import (
    GuardCase,
    MissingReferee,
    RefereeAsRead,
    StandingReferee,
    Unguarded,
    guard,
)
from offloader.lifecycle.deletion.machine import DeletionTry
from offloader.lifecycle.deletion.marking import moved_clock

LOST_RACES = 20


class GuardedOutcome(Enum):
    """In all cases but the first one nothing was done."""

    DELETED = auto()
    ALREADY_GONE = auto()
    LEDGER_CHANGED = auto()  # or was made again: another than the one of the evidence
    REFEREE_CHANGED = auto()  # the ledger may be in use: look again
    UNGUARDED = auto()  # only reported
    LOOKED_SINCE = auto()  # there was a later look, perhaps by another process: what it decides counts


@dataclass(frozen=True, slots=True)
class GuardedDeletion:
    """What became of it, and why."""

    outcome: GuardedOutcome
    why: str = ""


@dataclass(frozen=True, slots=True)
class GuardedLedgers:
    """The ledgers below `root`, beside what refers to them."""

    nodes: Nodes
    root: str
    layout: Layout

    def referee(self, path: str) -> RefereeAsRead:
        """A referee as it is now. Raises MetadataUnavailableError."""
        return read_referee(self.nodes, path)

    def delete(self, case: GuardCase) -> GuardedDeletion:
        """Raises MetadataUnavailableError, AccessDeniedError: nothing was deleted; OutcomeUnknownError: it may have
        been, or will be. In doubt call it again: a ledger goes once."""
        path, ledger = self.root + ledger_path(self.layout, case.ledger.ledger), case.ledger
        own = OwnNode(path, ledger.version, ledger.created_ms)
        return delete_guarded(self.nodes, guard(case, self.root, self.layout), own, case.round_node, case.referees)


class OwnNode(NamedTuple):
    """What goes, as it was when the evidence was read. `number`: of the operations at the end of the transaction that
    delete it, with what is below it."""

    path: str
    version: int
    created_ms: int
    number: int = 1


def delete_guarded(
    nodes: Nodes,
    operations: tuple[NodeOperation, ...] | Unguarded,
    own: OwnNode,
    round_node: CheckNode | None,
    referees: tuple[RefereeAsRead, ...] = (),
) -> GuardedDeletion:
    """See `GuardedLedgers.delete`. `referees`: that are looked at before, too: a node that was deleted and made again
    has its former versions, and its time of creation tells."""
    if isinstance(operations, Unguarded):
        return GuardedDeletion(GuardedOutcome.UNGUARDED, operations.why)
    node = nodes.get(own.path, latest=True)
    if node is None:
        return GuardedDeletion(GuardedOutcome.ALREADY_GONE)
    if (node.version, node.created_ms) != (own.version, own.created_ms):
        return GuardedDeletion(GuardedOutcome.LEDGER_CHANGED, f"{own.path}: somebody changed it, or made it again")
    changed = next((one.path for one in referees if _is_another(nodes, one)), None)
    if changed is not None:
        return GuardedDeletion(GuardedOutcome.REFEREE_CHANGED, f"{changed}: somebody changed it")
    try:
        nodes.multi(operations)
    except OperationRefusedError as error:
        return _refused(operations, own, round_node, error)
    except OutcomeUnknownError as error:
        return read_back(nodes, own.path, own.created_ms, error)
    return GuardedDeletion(GuardedOutcome.DELETED)


def as_try(delete: Callable[[], GuardedDeletion]) -> tuple[DeletionTry, str]:
    """What came of it, as the machine has it; and why it was refused."""
    try:
        done = delete()
    except OutcomeUnknownError as error:
        return DeletionTry.UNKNOWN, str(error)
    except (MetadataUnavailableError, AccessDeniedError) as error:
        return DeletionTry.REFUSED, str(error)
    return _TRIES.get(done.outcome, DeletionTry.REFUSED), done.why


def _is_another(nodes: Nodes, referee: RefereeAsRead) -> bool:
    node = nodes.get(referee.path, latest=True)
    if node is None or isinstance(referee, MissingReferee):
        return (node is None) != isinstance(referee, MissingReferee)
    return (node.version, node.created_ms) != (referee.version, referee.created_ms)


def read_referee(nodes: Nodes, path: str) -> RefereeAsRead:
    """A referee as it is now. Raises MetadataUnavailableError."""
    node = nodes.get(path, latest=True)
    if node is not None:
        return StandingReferee(path, node.version, node.created_ms, node.value)
    missing: list[str] = []
    above = path.rpartition("/")[0]
    while above and nodes.get(above) is None:
        missing.insert(0, above)
        above = above.rpartition("/")[0]
    return MissingReferee(path, tuple(missing))


def read_back(nodes: Nodes, path: str, created_ms: int, lost: OutcomeUnknownError) -> GuardedDeletion:
    """What became of a deletion whose answer is lost. The transaction was all or nothing: the node tells, as it comes
    with no write in doubt behind. Raises MetadataUnavailableError: it was not done; OutcomeUnknownError."""
    try:
        node = nodes.get(path, latest=True)
    except (MetadataUnavailableError, AccessDeniedError) as error:
        raise OutcomeUnknownError(f"{path}: whether it was deleted is not known ({error})") from lost
    if node is None:
        return GuardedDeletion(GuardedOutcome.DELETED, "the answer was lost, and the node is gone")
    if node.created_ms != created_ms:
        return GuardedDeletion(GuardedOutcome.LEDGER_CHANGED, f"{path}: it was deleted, and made again")
    raise MetadataUnavailableError(f"{path}: a request to delete it was lost; it is still there") from lost


def _refused(
    operations: tuple[NodeOperation, ...], own: OwnNode, round_node: CheckNode | None, error: OperationRefusedError
) -> GuardedDeletion:
    if round_node is not None and error.operation == 0:
        return GuardedDeletion(GuardedOutcome.LOOKED_SINCE, f"another look began since: {error}")
    if error.operation < len(operations) - own.number:
        return GuardedDeletion(GuardedOutcome.REFEREE_CHANGED, str(error))
    gone = error.operation == len(operations) - 1 and error.refusal is NodeRefusal.NO_NODE
    return GuardedDeletion(GuardedOutcome.ALREADY_GONE if gone else GuardedOutcome.LEDGER_CHANGED, str(error))


_TRIES = {GuardedOutcome.DELETED: DeletionTry.DONE, GuardedOutcome.ALREADY_GONE: DeletionTry.GONE}


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
