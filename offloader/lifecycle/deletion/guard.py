"""The transactions that delete, and prove while they do that nobody can refer to what goes. Pure.

Brokers write what refers to a ledger by compare-and-set, in the same ZooKeeper:

certain, referee is there       check it at its version; delete the ledger
certain, referee is missing     create it and those above it that are missing, delete them again; delete the ledger
suspect data, only on demand    set the referee to its own bytes, so that nobody can write it who read it before;
                                delete the ledger

A left-over managed ledger goes whole:

each topic of which its name may be made is at the version that was read, or absent
each subscription of which its name may be made is absent
delete its cursors' nodes, then its own, each at the version that was read

Each of them begins with the check that no later look has begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from offloader.bookkeeper.layout import Layout, ledger_path
from offloader.bookkeeper.nodes import CheckNode, CreateNode, DeleteNode, NodeOperation, SetNode
from offloader.lifecycle.deletion.records import LedgerNode

MOST_OPERATIONS = 1_000  # of one transaction: ZooKeeper takes a megabyte


@dataclass(frozen=True, slots=True)
class LedgerToGo:
    """A ledger's node as it was when the evidence was read. `created_ms`: by ZooKeeper's clock."""

    ledger: int
    version: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class StandingReferee:
    """A node that would refer to the ledger, does not, and is there."""

    path: str
    version: int
    created_ms: int
    value: bytes


@dataclass(frozen=True, slots=True)
class MissingReferee:
    """The same, and is not there. `missing`: those above it that are not there either, the topmost first.

    Raises ValueError for any others.
    """

    path: str
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(_above(below) != one for one, below in pairwise((*self.missing, self.path))):
            raise ValueError(f"{self.path}: {self.missing} are not the nodes right above it")


RefereeAsRead = StandingReferee | MissingReferee


@dataclass(frozen=True, slots=True)
class GuardDoubt:
    """A suspect ledger: a broker may be about to refer to it. `data`: it is a data ledger. `loaded`: some broker has
    its topic loaded. `demanded`: an operator wants this very ledger to go."""

    data: bool
    loaded: bool
    demanded: bool


@dataclass(frozen=True, slots=True)
class GuardCase:
    """All that the guard is made of. `doubt` None: it is certain that nobody will ever refer to the ledger.

    `referees`: all that might refer to it. `one_zookeeper`: they are in the ZooKeeper that has the ledger.
    `round_node`: a node that every later look changes, as it was at the look that this is made of.
    """

    ledger: LedgerToGo
    referees: tuple[RefereeAsRead, ...]
    one_zookeeper: bool
    doubt: GuardDoubt | None = None
    round_node: CheckNode | None = None


@dataclass(frozen=True, slots=True)
class Unguarded:
    """No transaction can prove it: the ledger is reported and stays."""

    why: str


def guard(case: GuardCase, root: str, layout: Layout) -> tuple[NodeOperation, ...] | Unguarded:
    """Its last operation deletes the ledger's node below `root`; no other one leaves anything but what it found.

    Raises ValueError for a referee among BookKeeper's own nodes; LedgerNotFoundError for an impossible id.
    """
    for referee in case.referees:
        _check_place(referee.path, root)
    why = _why_not(case)
    if why:
        return Unguarded(why)
    proof = _rewritten(case.referees) if case.doubt else proof_of_referees(case.referees)
    newest = (case.round_node,) if case.round_node else ()
    return *newest, *proof, DeleteNode(root + ledger_path(layout, case.ledger.ledger), case.ledger.version)


def _why_not(case: GuardCase) -> str:
    if not case.one_zookeeper:
        return "BookKeeper has another ZooKeeper than Pulsar: no transaction is for both"
    if not case.referees:
        return "no node is known that would refer to it"
    return _why_not_in_doubt(case.doubt, case.referees) if case.doubt else ""


def _why_not_in_doubt(doubt: GuardDoubt, referees: tuple[RefereeAsRead, ...]) -> str:
    if not doubt.data:
        return "it is suspect only, and no node of ZooKeeper shows what is written of its kind"
    if not doubt.demanded:
        return "it is suspect only, and nobody has asked for this ledger"
    if doubt.loaded:
        return "it is suspect only, and a broker has its topic loaded"
    if len(referees) != 1 or not isinstance(referees[0], StandingReferee):
        return "it is suspect only, and there is no ledger list that could be written anew"
    return ""


def proof_of_referees(referees: tuple[RefereeAsRead, ...]) -> tuple[NodeOperation, ...]:
    """That each is as it was read: at its version, or absent."""
    return *_checked(referees), *_absent(referees)


def _checked(referees: tuple[RefereeAsRead, ...]) -> Iterator[NodeOperation]:
    return (CheckNode(one.path, one.version) for one in referees if isinstance(one, StandingReferee))


def _absent(referees: tuple[RefereeAsRead, ...]) -> tuple[NodeOperation, ...]:
    """They may have nodes above them in common."""
    missing = {path for one in referees if isinstance(one, MissingReferee) for path in (*one.missing, one.path)}
    down = sorted(missing, key=lambda path: (path.count("/"), path))
    return *map(CreateNode, down), *(DeleteNode(path, 0) for path in reversed(down))


def _rewritten(referees: tuple[RefereeAsRead, ...]) -> Iterator[NodeOperation]:
    return (SetNode(one.path, one.value, one.version) for one in referees if isinstance(one, StandingReferee))


def _check_place(path: str, root: str) -> None:
    within = f"{path}/".startswith(f"{root}/") or f"{root}/".startswith(f"{path}/")
    if within or not path.startswith("/") or path.endswith("/"):
        raise ValueError(f"{path} is no node of Pulsar's beside {root}")


def _above(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class LeftoverCase:
    """`path`: the managed ledger's node, which is `node` with its cursors below. `owners`: topics, and subscriptions
    of those that are there. `round_node`: a node that every later look changes."""

    path: str
    node: LedgerNode
    owners: tuple[RefereeAsRead, ...]
    round_node: CheckNode | None = None


def leftover_guard(case: LeftoverCase) -> tuple[NodeOperation, ...] | Unguarded:
    """Its last operation deletes the managed ledger's node."""
    if not any(isinstance(one, MissingReferee) for one in case.owners):
        return Unguarded("no owner is known whose absence could be proven")
    newest = (case.round_node,) if case.round_node else ()
    cursors = (DeleteNode(f"{case.path}/{name}", one.version) for name, one in case.node.below)
    operations = (*newest, *proof_of_referees(case.owners), *cursors, DeleteNode(case.path, case.node.version))
    if len(operations) > MOST_OPERATIONS:
        return Unguarded(f"its name has too many readings for one transaction: {len(operations)} operations")
    return operations
