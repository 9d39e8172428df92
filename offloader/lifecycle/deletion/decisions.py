"""What an operator decides about a deletion: pure, no I/O."""

from __future__ import annotations

from dataclasses import replace

from offloader.errors import FatalError
from offloader.lifecycle.deletion.machine import gone, kept
from offloader.lifecycle.deletion.records import DeletionAnswer, DeletionState, PendingDeleteLedgerInfo


def undone(record: PendingDeleteLedgerInfo, now: int) -> PendingDeleteLedgerInfo:
    """Costs nothing as long as it is known to be there: while it is marked, after a try that was refused, when it was
    given up. Raises FatalError for what has ended, and for what is in doubt: see `taken_back`."""
    if record.has_ended:
        raise FatalError(f"{record.thing} is {record.state}: nothing is left to undo")
    if record.in_doubt:
        raise FatalError(f"{record.thing} is {record.state}, and may be gone: it has to be looked at first")
    return replace(record, state=DeletionState.UNDONE, answer=None, reason="", ended_at=now)


def taken_back(record: PendingDeleteLedgerInfo, *, there: bool | None, now: int) -> PendingDeleteLedgerInfo:
    """Of a try nobody knows what came; `there`: whether a look that outdates it has found the thing, None: nobody can
    look. What is gone ends as deleted by us."""
    if there is False:
        return gone(record, now, by_us=True)
    taken = undone(replace(record, in_doubt=False), now)
    return taken if there else replace(taken, reason="whether it had been deleted before is not known")


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
    """An operator wants no more tries for what was given up. Raises FatalError also for what is in doubt: see
    `let_be`."""
    _check_given_up(record)
    if record.in_doubt:
        raise FatalError(f"{record.thing} was given up, and may be gone: it has to be looked at first")
    return kept(record, DeletionAnswer.DROPPED, record.reason, now)


def let_be(record: PendingDeleteLedgerInfo, *, there: bool | None, now: int) -> PendingDeleteLedgerInfo:
    """The same, where nobody knows what came of a try; `there`: as of `taken_back`."""
    _check_given_up(record)
    return gone(record, now, by_us=True) if there is False else dropped(replace(record, in_doubt=False), now)


def _check_given_up(record: PendingDeleteLedgerInfo) -> None:
    if record.state is not DeletionState.GIVEN_UP:
        raise FatalError(f"{record.thing} is {record.state}, not given up")
