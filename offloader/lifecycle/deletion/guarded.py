"""Deleting one ledger's node under guard, and finding out what became of it where the answer is lost."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.nodes import NodeOperation, Nodes
from offloader.errors import (
    AccessDeniedError,
    MetadataUnavailableError,
    NodeRefusal,
    OperationRefusedError,
    OutcomeUnknownError,
)
from offloader.lifecycle.deletion.guard import (
    GuardCase,
    LedgerToGo,
    MissingReferee,
    RefereeAsRead,
    StandingReferee,
    Unguarded,
    guard,
)


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
        operations = guard(case, self.root, self.layout)
        if isinstance(operations, Unguarded):
            return GuardedDeletion(GuardedOutcome.UNGUARDED, operations.why)
        found = self._look(case)
        if found is not None:
            return found
        try:
            self.nodes.multi(operations)
        except OperationRefusedError as error:
            return _refused(case, operations, error)
        except OutcomeUnknownError as error:
            return read_back(self.nodes, self._path(case.ledger), case.ledger.created_ms, error)
        return GuardedDeletion(GuardedOutcome.DELETED)

    def _look(self, case: GuardCase) -> GuardedDeletion | None:
        """A node that was deleted and made again has its former versions: its time of creation tells."""
        path = self._path(case.ledger)
        node = self.nodes.get(path, latest=True)
        if node is None:
            return GuardedDeletion(GuardedOutcome.ALREADY_GONE)
        if (node.version, node.created_ms) != (case.ledger.version, case.ledger.created_ms):
            return GuardedDeletion(GuardedOutcome.LEDGER_CHANGED, f"{path}: somebody changed it, or made it again")
        changed = [one.path for one in case.referees if self._is_another(one)]
        if changed:
            return GuardedDeletion(GuardedOutcome.REFEREE_CHANGED, f"{changed[0]}: somebody changed it")
        return None

    def _is_another(self, referee: RefereeAsRead) -> bool:
        node = self.nodes.get(referee.path, latest=True)
        if node is None or isinstance(referee, MissingReferee):
            return (node is None) != isinstance(referee, MissingReferee)
        return (node.version, node.created_ms) != (referee.version, referee.created_ms)

    def _path(self, ledger: LedgerToGo) -> str:
        return self.root + ledger_path(self.layout, ledger.ledger)


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


def _refused(case: GuardCase, operations: tuple[NodeOperation, ...], error: OperationRefusedError) -> GuardedDeletion:
    if case.round_node is not None and error.operation == 0:
        return GuardedDeletion(GuardedOutcome.LOOKED_SINCE, f"another look began since: {error}")
    if error.operation < len(operations) - 1:
        return GuardedDeletion(GuardedOutcome.REFEREE_CHANGED, str(error))
    gone = error.refusal is NodeRefusal.NO_NODE
    return GuardedDeletion(GuardedOutcome.ALREADY_GONE if gone else GuardedOutcome.LEDGER_CHANGED, str(error))
