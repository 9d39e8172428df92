"""Whether what a deletion is about is still there, where nobody knows what came of the last try."""

from __future__ import annotations

from offloader.bookkeeper.metadata import MetadataTree
from offloader.errors import FatalError
from offloader.lifecycle.deletion.bookkeeper_side import round_path
from offloader.lifecycle.deletion.look_round import begin_look
from offloader.lifecycle.deletion.records import LedgerType, PendingDeleteLedgerInfo
from offloader.lifecycle.deletion.timing import DAY_MS
from offloader.lifecycle.explaining.words import moment_text
from offloader.ports.object_store import ObjectStore


def still_in_zookeeper(record: PendingDeleteLedgerInfo, tree: MetadataTree) -> bool:
    """A look of our own: the try that may still be on its way, of whichever process, deletes nothing after it. Raises
    MetadataUnavailableError, AccessDeniedError, OutcomeUnknownError."""
    begin_look(tree.nodes, round_path(tree))
    left_over = record.ledger_type is LedgerType.MANAGED_LEDGER
    path = f"{tree.uri.managed_ledgers}/{record.topic_name}" if left_over else tree.path_of(record.ledger_id)
    node = tree.nodes.get(path, latest=True)
    return node is not None and node.created_ms == record.node.ctime


def still_in_bucket(record: PendingDeleteLedgerInfo, store: ObjectStore, now: int) -> bool | None:
    """No store takes back a request that is on its way: until that must have ended, nobody can say. None: it is in the
    bucket of Pulsar's own offloader. Raises FatalError: it is too early; what the store raises."""
    if now < record.next_at <= now + DAY_MS:
        when = moment_text(record.next_at)
        raise FatalError(f"{record.thing} is {record.state}: its deletion may be on its way; undo it after {when}")
    if record.ledger_type is not LedgerType.OBJECT:
        return None
    if record.upload:
        return any(one.upload == record.upload for one in store.list_uploads(record.object_key))
    return store.stat(record.object_key) is not None
