"""The way back of a left-over managed ledger: its nodes as they were, in one transaction."""

from __future__ import annotations

from offloader.bookkeeper.metadata import MetadataTree
from offloader.bookkeeper.nodes import CreateNode
from offloader.errors import FatalError, NodeRefusal, OperationRefusedError, OutcomeUnknownError
from offloader.lifecycle.deletion.records import PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.undo import check_acl


def recreate_leftover(tree: MetadataTree, record: PendingDeleteLedgerInfo) -> None:
    """Put the nodes back, if there are none. Repeated it does nothing more. Whether its ledgers are still there is not
    looked at. Raises FatalError: another one has the name, or it cannot be put back as it was;
    MetadataUnavailableError, AccessDeniedError; OutcomeUnknownError: repeat it."""
    check_acl(record)
    path, node = f"{tree.uri.managed_ledgers}/{record.topic_name}", record.node
    below = (CreateNode(f"{path}/{name}", one.data, one.acl or None) for name, one in node.below)
    try:
        tree.nodes.multi((CreateNode(path, node.data, node.acl or None), *below))
    except OperationRefusedError as error:
        if error.refusal is not NodeRefusal.NODE_EXISTS:
            raise FatalError(f"{path} cannot be created: {error}") from error
        _check_same(tree, path, record)
    except OutcomeUnknownError:
        if tree.nodes.get(path, latest=True) is None:
            raise
        _check_same(tree, path, record)


def _check_same(tree: MetadataTree, path: str, record: PendingDeleteLedgerInfo) -> None:
    there = tree.nodes.get(path, latest=True)
    if there is None or there.value != record.node.data or there.version != 0:
        raise FatalError(f"{path}: there is another managed ledger of this name now; nothing was changed")
