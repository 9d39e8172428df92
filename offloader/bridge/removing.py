"""The objects of a bridge that is withdrawn go: exactly those that its round named."""

from __future__ import annotations

from collections.abc import Iterable

from offloader.bridge.uploading import end_uploads
from offloader.metadata.bridges import BridgedLedger
from offloader.metadata.stock_keys import data_key, index_key
from offloader.ports.object_store import ObjectStore


def remove_objects(bucket: ObjectStore, ledgers: Iterable[BridgedLedger]) -> None:
    """For ledgers to which no record refers any more, and that no broker has loaded with our context.

    The indexes go first, all of them: while one is there, readers and scans take its data object for whole; a data
    object alone is one that was never finished. Uploads that are still open go, too, or one that was begun by a process
    that died would stay for ever. Safe to repeat; raises what the store raises.
    """
    found = list(ledgers)
    bucket.delete([index_key(each.uuid, each.ledger) for each in found])
    for each in found:
        end_uploads(bucket, data_key(each.uuid, each.ledger))
    bucket.delete([data_key(each.uuid, each.ledger) for each in found])
