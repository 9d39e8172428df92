"""The transaction that deletes a left-over managed ledger whole and proves, while it does, that it has no owner. Pure.

no later look has begun
each topic of which its name may be made is at the version that was read, or absent
each subscription of which its name may be made is absent
delete its cursors' nodes, then its own, each at the version that was read
"""

from __future__ import annotations

from dataclasses import dataclass

from offloader.bookkeeper.nodes import CheckNode, DeleteNode, NodeOperation
from offloader.lifecycle.deletion.guard import MissingReferee, RefereeAsRead, Unguarded, proof_of_referees
from offloader.lifecycle.deletion.records import LedgerNode

MOST_OPERATIONS = 1_000  # of one transaction: ZooKeeper takes a megabyte


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
