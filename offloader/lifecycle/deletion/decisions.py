"""What an operator decides about a deletion: pure, no I/O."""

from __future__ import annotations

from dataclasses import replace

from offloader.errors import FatalError
from offloader.lifecycle.deletion.machine import kept
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, PendingDeleteLedgerInfo


def undone(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """Costs nothing while it is marked, or was given up. Raises FatalError for what is not to be undone like this."""
    if record.state not in (DeletionState.MARKED, DeletionState.GIVEN_UP):
        raise FatalError(f"{record.thing} is {record.state}: only what is marked or given up can be undone")
    return replace(record, state=DeletionState.UNDONE, answer=None, reason="", ended_at=now)


def recreated(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """The second chance: the ledger's node, which we had deleted, is there again."""
    if record.answer is not DeletionAnswer.DELETED:
        raise FatalError(f"{record.thing} is {record.state}: only what we deleted can be created again")
    return replace(record, state=DeletionState.UNDONE, ended_at=now)


def retried(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """An operator wants more tries for what was given up: its next look is due at once."""
    _check_given_up(record)
    return replace(record, state=DeletionState.MARKED, tries=0, next_at=now)


def dropped(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """An operator wants no more tries for what was given up."""
    _check_given_up(record)
    return kept(record, DeletionAnswer.DROPPED, record.reason, now)


def _check_given_up(record: PendingDeleteLedgerInfo) -> None:
    if record.state is not DeletionState.GIVEN_UP:
        raise FatalError(f"{record.thing} is {record.state}, not given up")
