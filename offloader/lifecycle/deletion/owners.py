"""Whether somebody may still write an open ledger that nothing refers to: then it is not fenced."""

from __future__ import annotations

from collections.abc import Callable

from offloader.bookkeeper.managed_ledgers import topic_of
from offloader.errors import OffloadError
from offloader.lifecycle.deletion.records import DeletionProof, PendingDeleteLedgerInfo
from offloader.model import TopicName

LoadedBy = Callable[[TopicName], str | None]
"""The broker that has a topic loaded, if any: `Admin.loaded_by`."""


def still_written(record: PendingDeleteLedgerInfo, loaded_by: LoadedBy) -> str | None:
    """Why an open ledger must not be closed now; None: nobody writes it.

    What was passed by can be written by nobody who would then refer to it: its referee names a later one. Where the
    referee is absent, somebody may have removed it under a broker that goes on: as long as a broker has the topic
    loaded, the ledger is left alone."""
    if record.evidence.proof is not DeletionProof.REFEREE_ABSENT:
        return None
    try:
        broker = loaded_by(topic_of(record.topic_name))
    except (ValueError, OffloadError) as error:
        return f"ledger {record.ledger_id}: whether a broker still writes it cannot be found out ({error})"
    if broker is None:
        return None
    return f"ledger {record.ledger_id}: {record.topic_name} is loaded by the broker {broker}, which may still write it"
